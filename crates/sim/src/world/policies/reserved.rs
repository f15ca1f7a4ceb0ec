//! The policies with reservations. Only seeds of worlds that reserve draw them.

/// The policies with reservations of hosts, of a table and of objects, by name.
pub(in crate::world) const RESERVED: [(&str, &str); 19] = [
    (
        "reserved-bucket",
        "reservations = { most = 4, time_to_live = '2s', remember = '1s' }
        limits = [{ algorithm = 'token_bucket', capacity = 12, rate = '6/s' }]",
    ),
    (
        "reserved-charged",
        "reservations = { most = 5, time_to_live = '1s', remember = '2s', on_expiry = 'charge' }
        limits = [{ algorithm = 'token_bucket', capacity = 20, rate = '7/s' }]",
    ),
    (
        "reserved-window",
        "reservations = { most = 3, time_to_live = '1s', remember = '500ms', on_expiry = 'charge' }
        limits = [{ algorithm = 'fixed_window', limit = 9, period = '2s' }]",
    ),
    (
        "reserved-first",
        "reservations = { most = 4, time_to_live = '3s', remember = '700ms' }
        limits = [{ algorithm = 'fixed_window', limit = 10, period = '3s', start = 'first' }]",
    ),
    (
        "reserved-sliding",
        "reservations = { most = 6, time_to_live = '3s', remember = '1s' }
        limits = [{ algorithm = 'sliding_window', limit = 14, period = '3s', segments = 3 }]",
    ),
    (
        "reserved-log",
        "reservations = { most = 4, time_to_live = '1s', remember = '1s', largest_share = '50%' }
        limits = [{ algorithm = 'sliding_log', rates = ['12/2s', '7/500ms'] }]",
    ),
    (
        "reserved-two",
        "reservations = { most = 4, time_to_live = '2s', remember = '1s', largest_share = '40%' }
        limits = [{ algorithm = 'token_bucket', capacity = 10, rate = '5/s' },
                  { algorithm = 'fixed_window', limit = 30, period = '4s', depth = 1 }]",
    ),
    (
        "reserved-three",
        "reservations = { most = 5, time_to_live = '800ms', remember = '800ms' }
        limits = [{ algorithm = 'sliding_window', limit = 9, period = '2s', segments = 4 },
                  { algorithm = 'token_bucket', capacity = 16, rate = '8/s', depth = 1 },
                  { algorithm = 'sliding_log', rates = ['30/4s'], depth = 0 }]",
    ),
    (
        "reserved-leases",
        "reservations = { most = 4, time_to_live = '2s', remember = '600ms' }
        limits = [{ algorithm = 'token_bucket', capacity = 15, rate = '6/s' },
                  { algorithm = 'concurrency', capacity = 2, time_to_live = '2s' }]",
    ),
    (
        "reserved-empty",
        "reservations = { most = 3, time_to_live = '2s', remember = '1s' }
        limits = [{ algorithm = 'token_bucket', capacity = 9, rate = '6/s', start = 'empty' }]",
    ),
    (
        "reserved-denied",
        "reservations = { most = 3, time_to_live = '1s', remember = '1s' }
        limits = [{ algorithm = 'sliding_log', rates = ['9/2s'], count_denied = true }]",
    ),
    (
        "reserved-rules",
        "shadow = true
        deny = ['k/2']
        overrides = { 'k/1' = { limit = 5 } }
        reservations = { most = 2, time_to_live = '1s', remember = '2s' }
        limits = [{ algorithm = 'fixed_window', limit = 8, period = '2s' }]",
    ),
    (
        "reserved-kept",
        "reservations = { most = 4, time_to_live = '2s', remember = '1s' }
        limits = [{ algorithm = 'token_bucket', capacity = 12, rate = '6/s' },
                  { algorithm = 'fixed_window', limit = 20, period = '2s', depth = 1 }]
# edited
        reservations = { most = 2, time_to_live = '3s', remember = '2s', on_expiry = 'charge' }
        limits = [{ algorithm = 'token_bucket', capacity = 8, rate = '9/s' },
                  { algorithm = 'fixed_window', limit = 25, period = '3s', depth = 1 }]",
    ),
    // reservations are known for much longer than units count
    (
        "reserved-long",
        "reservations = { most = 5, time_to_live = '15s', remember = '10s', on_expiry = 'charge' }
        limits = [{ algorithm = 'fixed_window', limit = 12, period = '1s' }]",
    ),
    (
        "remembered-reserved",
        "remember = '2s'
        reservations = { most = 4, time_to_live = '2s', remember = '1s' }
        limits = [{ algorithm = 'token_bucket', capacity = 8, rate = '1/s' }]",
    ),
    (
        "remembered-reserved-window",
        "remember = '1s'
        reservations = { most = 4, time_to_live = '1s', remember = '1s' }
        limits = [{ algorithm = 'sliding_window', limit = 8, period = '5s', segments = 5 },
                  { algorithm = 'fixed_window', limit = 18, period = '6s', depth = 1 }]",
    ),
    // each payer has room for the highest cost but the one that no limit grants
    (
        "reserved-payers",
        "reservations = { most = 4, time_to_live = '2s', remember = '1s' }
        limits = [{ algorithm = 'token_bucket', capacity = 18, rate = '20/s' },
                  { algorithm = 'fixed_window', limit = 6, period = '3s', payer = true },
                  { algorithm = 'token_bucket', capacity = 8, rate = '2/s', depth = 1, payer = true },
                  { algorithm = 'sliding_log', rates = ['7/4s'], payer = true }]",
    ),
    (
        "remembered-payers",
        "remember = '1s'
        reservations = { most = 4, time_to_live = '1s', remember = '1s', on_expiry = 'charge' }
        limits = [{ algorithm = 'sliding_window', limit = 6, period = '5s', segments = 5, payer = true },
                  { algorithm = 'token_bucket', capacity = 6, rate = '1/s', payer = true }]",
    ),
    (
        "lent-reserved",
        "remember = '500ms'
        local = { most = 10, time = '1s' }
        reservations = { most = 4, time_to_live = '1s', remember = '1s' }
        limits = [{ algorithm = 'token_bucket', capacity = 60, rate = '40/s' }]",
    ),
];

/// The policies with reservations of nodes that ask by wire alone. Nothing ends while a history lasts.
pub(in crate::world) const RESERVED_WIRE: [(&str, &str); 2] = [
    (
        "held-large",
        "reservations = { most = 150, time_to_live = '1h', remember = '1h' }
        limits = [{ algorithm = 'fixed_window', limit = 10_000, period = '1d' }]",
    ),
    (
        "held-small",
        "reservations = { most = 150, time_to_live = '1h', remember = '1h', on_expiry = 'charge' }
        limits = [{ algorithm = 'fixed_window', limit = 10_000, period = '1d', depth = 1 },
                  { algorithm = 'fixed_window', limit = 60, period = '1d' }]",
    ),
];

/// A policy that no seed draws, with room for all calls of `tests/reservations.rs`.
pub(in crate::world) const KILLED: [(&str, &str); 1] = [(
    "killed",
    "reservations = { most = 10, time_to_live = '300ms', remember = '100ms' }
    limits = [{ algorithm = 'token_bucket', capacity = 200, rate = '100/s' },
              { algorithm = 'sliding_window', limit = 400, period = '4s', segments = 4, depth = 1 }]",
)];

/// Further policies of objects, which store states ahead.
pub(in crate::world) const RESERVED_AHEAD: [(&str, &str); 4] = [
    (
        "ahead-reserved",
        "persist_ahead = { most = 4, time = '500ms' }
        reservations = { most = 3, time_to_live = '800ms', remember = '300ms' }
        limits = [{ algorithm = 'token_bucket', capacity = 20, rate = '10/s' }]",
    ),
    (
        "ahead-reserved-window",
        "persist_ahead = { most = 3, time = '1s' }
        reservations = { most = 3, time_to_live = '500ms', remember = '500ms', on_expiry = 'charge' }
        limits = [{ algorithm = 'fixed_window', limit = 12, period = '2s' },
                  { algorithm = 'sliding_window', limit = 25, period = '3s', segments = 3, depth = 1 }]",
    ),
    (
        "ahead-reserved-kept",
        "persist_ahead = { most = 4 }
        reservations = { most = 3, time_to_live = '700ms', remember = '300ms' }
        limits = [{ algorithm = 'token_bucket', capacity = 12, rate = '5/s' }]
# edited
        persist_ahead = { most = 6 }
        reservations = { most = 4, time_to_live = '500ms', remember = '500ms' }
        limits = [{ algorithm = 'token_bucket', capacity = 16, rate = '4/s' }]",
    ),
    (
        "shared-reserved",
        "share_calls = true
        placement = 'shard:1'
        remember = '500ms'
        persist_ahead = { most = 4, time = '300ms' }
        reservations = { most = 3, time_to_live = '500ms', remember = '200ms' }
        limits = [{ algorithm = 'fixed_window', limit = 20, period = '2s' }]",
    ),
];
