//! The policies that a world may have.

mod reserved;

use reserved::KILLED;
pub(super) use reserved::{RESERVED, RESERVED_AHEAD, RESERVED_WIRE};

/// Comes between two revisions of a policy. Other policies are replaced by the same text.
pub(super) const EDITED: &str = "\n# edited\n";

/// All policies, by name.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let plain = AHEAD.into_iter().chain(HOSTS).chain(TABLE).chain(WIRE).chain(LOCAL);
    plain.chain(RESERVED).chain(RESERVED_AHEAD).chain(RESERVED_WIRE).chain(KILLED)
}

/// A revision of a policy, 0 or 1. Checks share calls only where the policy says so, so that both ways are tried.
pub(super) fn text_of(texts: &str, revision: usize) -> String {
    let text = texts.split(EDITED).nth(revision).unwrap_or(texts);
    let says = text.contains("share_calls");
    if says { text.to_owned() } else { format!("share_calls = false\n{text}") }
}

/// The policies of hosts, by name.
pub(super) const HOSTS: [(&str, &str); 30] = [
    ("bucket", "limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '5/s' }]"),
    ("window", "limits = [{ algorithm = 'fixed_window', limit = 6, period = '2s' }]"),
    (
        "sliding",
        "limits = [{ algorithm = 'sliding_window', limit = 8, period = '3s', segments = 3 }]",
    ),
    ("log", "limits = [{ algorithm = 'sliding_log', rates = ['4/2s', '2/200ms'] }]"),
    (
        "payers",
        "remember = '1s'
        limits = [{ algorithm = 'token_bucket', capacity = 9, rate = '8/s' },
                  { algorithm = 'fixed_window', limit = 5, period = '2s', payer = true },
                  { algorithm = 'sliding_log', rates = ['6/3s'], payer = true },
                  { algorithm = 'token_bucket', capacity = 5, rate = '1/s', depth = 1, payer = true }]",
    ),
    (
        "three",
        "limits = [{ algorithm = 'token_bucket', capacity = 4, rate = '4/s' },
                   { algorithm = 'fixed_window', limit = 9, period = '3s' },
                   { algorithm = 'sliding_log', rates = ['5/1s'] }]",
    ),
    (
        "depth",
        "limits = [{ algorithm = 'fixed_window', limit = 3, period = '1s' },
                   { algorithm = 'token_bucket', capacity = 6, rate = '3/s', depth = 1 }]",
    ),
    (
        "depths",
        "limits = [{ algorithm = 'sliding_log', rates = ['3/1s'] },
                   { algorithm = 'token_bucket', capacity = 5, rate = '4/s', depth = 1 },
                   { algorithm = 'fixed_window', limit = 12, period = '3s', depth = 0 }]",
    ),
    // every limit counts by a part of the key, so no key can be blocked
    ("partition", "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1s', depth = 1 }]"),
    ("empty", "limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '3/s', start = 'empty' }]"),
    ("denied", "limits = [{ algorithm = 'sliding_log', rates = ['3/1s'], count_denied = true }]"),
    (
        "rules",
        "shadow = true
        deny = ['k/2']
        overrides = { 'k/1' = { limit = 2 } }
        limits = [{ algorithm = 'fixed_window', limit = 4, period = '2s' }]",
    ),
    ("leases", "limits = [{ algorithm = 'concurrency', capacity = 2, time_to_live = '2s' }]"),
    (
        "connections",
        "limits = [{ algorithm = 'connections', limit = 4, expiry = '2s', max_owners = 3 }]",
    ),
    (
        "fleet",
        "limits = [{ algorithm = 'fleet_usage', capacity = 4, reserve = '50%', time_to_live = '2s' },
                   { algorithm = 'fixed_window', limit = 9, period = '1s' }]",
    ),
    (
        "utilization",
        "limits = [{ algorithm = 'utilization', delay = '200ms', full = '120s' }]",
    ),
    ("suppression", "limits = [{ algorithm = 'suppression', rate = '2/s' }]"),
    (
        "penalty",
        "limits = [{ algorithm = 'fixed_window', limit = 2, period = '1s', depth = 1 },
                   { algorithm = 'penalty', refusals = 3, within = '2s', duration = '1s', max = '4s' }]",
    ),
    (
        "budget",
        "limits = [{ algorithm = 'token_bucket', capacity = 12, rate = '6/s' },
                   { algorithm = 'fixed_window', limit = 20, period = '2s', depth = 1 },
                   { algorithm = 'budget', most = 5, time = '2s', max_holders = 2 }]",
    ),
    (
        "kept",
        "limits = [{ algorithm = 'fixed_window', limit = 2, period = '1s' }]
# edited
        limits = [{ algorithm = 'fixed_window', limit = 3, period = '3s' }]",
    ),
    (
        "kept-leases",
        "limits = [{ algorithm = 'concurrency', capacity = 3, time_to_live = '2s' }]
# edited
        limits = [{ algorithm = 'concurrency', capacity = 2, time_to_live = '3s', max_leases = 3 }]",
    ),
    (
        "scaled",
        "on_change = 'proportional'
        limits = [{ algorithm = 'token_bucket', capacity = 4, rate = '2/s' },
                  { algorithm = 'sliding_log', rates = ['5/1s'], depth = 1 }]
# edited
        on_change = 'proportional'
        limits = [{ algorithm = 'token_bucket', capacity = 8, rate = '1/s' },
                  { algorithm = 'sliding_log', rates = ['9/2s'], depth = 1 }]",
    ),
    (
        "reset",
        "on_change = 'reset'
        limits = [{ algorithm = 'sliding_window', limit = 4, period = '2s', segments = 2 }]
# edited
        on_change = 'reset'
        limits = [{ algorithm = 'sliding_window', limit = 6, period = '1s' }]",
    ),
    (
        "remembered",
        "remember = '2s'
        limits = [{ algorithm = 'token_bucket', capacity = 4, rate = '2/s' },
                  { algorithm = 'fixed_window', limit = 9, period = '3s', depth = 1 }]",
    ),
    (
        "remembered-leases",
        "remember = '1s'
        limits = [{ algorithm = 'sliding_log', rates = ['4/1s'], min_gap = '50ms' },
                  { algorithm = 'concurrency', capacity = 2, time_to_live = '2s' }]",
    ),
    (
        "lent",
        "local = { most = 12, time = '1s' }
        limits = [{ algorithm = 'token_bucket', capacity = 60, rate = '100/s' }]",
    ),
    (
        "lent-windows",
        "remember = '1s'
        local = { most = 8, time = '3s', max_holders = 2 }
        limits = [{ algorithm = 'fixed_window', limit = 90, period = '2s' },
                  { algorithm = 'sliding_log', rates = ['60/500ms'], depth = 1 }]",
    ),
    (
        "first",
        "remember = '1s'
        limits = [{ algorithm = 'fixed_window', limit = 6, period = '2s', start = 'first' },
                  { algorithm = 'token_bucket', capacity = 9, rate = '4/s', depth = 1 }]",
    ),
    (
        "lent-first",
        "remember = '500ms'
        local = { most = 8, time = '3s', max_holders = 2 }
        limits = [{ algorithm = 'fixed_window', limit = 90, period = '2s', start = 'first' }]",
    ),
    (
        "lent-kept",
        "remember = '500ms'
        local = { most = 5, time = '2s' }
        limits = [{ algorithm = 'sliding_window', limit = 60, period = '1s', segments = 4 }]
# edited
        remember = '500ms'
        local = { most = 3, time = '1s' }
        limits = [{ algorithm = 'sliding_window', limit = 80, period = '1s', segments = 4 }]",
    ),
];

/// Further policies of objects. Most of them store states ahead.
pub(super) const AHEAD: [(&str, &str); 16] = [
    (
        "ahead",
        "persist_ahead = { most = 4, time = '500ms' }
        limits = [{ algorithm = 'token_bucket', capacity = 20, rate = '10/s' }]",
    ),
    (
        "ahead-short",
        "persist_ahead = { most = 30, time = '10ms' }
        limits = [{ algorithm = 'token_bucket', capacity = 12, rate = '7/3s' }]",
    ),
    (
        "ahead-long",
        "persist_ahead = { most = 1000, time = '1h' }
        limits = [{ algorithm = 'token_bucket', capacity = 15, rate = '30/s' }]",
    ),
    (
        "ahead-window",
        "persist_ahead = { most = 3, time = '1s' }
        limits = [{ algorithm = 'fixed_window', limit = 9, period = '2s' }]",
    ),
    (
        "ahead-first",
        "persist_ahead = { most = 3, time = '1s' }
        limits = [{ algorithm = 'fixed_window', limit = 9, period = '2s', start = 'first' }]",
    ),
    (
        "ahead-first-kept",
        "persist_ahead = { most = 4 }
        limits = [{ algorithm = 'fixed_window', limit = 9, period = '2s', start = 'first' }]
# edited
        persist_ahead = { most = 4 }
        limits = [{ algorithm = 'fixed_window', limit = 12, period = '3s', start = 'first' }]",
    ),
    (
        "ahead-sliding",
        "persist_ahead = { most = 4 }
        limits = [{ algorithm = 'sliding_window', limit = 12, period = '3s', segments = 3 }]",
    ),
    (
        "ahead-two",
        "persist_ahead = { most = 2, time = '200ms' }
        limits = [{ algorithm = 'token_bucket', capacity = 8, rate = '8/s' },
                  { algorithm = 'fixed_window', limit = 14, period = '3s' }]",
    ),
    (
        "ahead-depth",
        "persist_ahead = { most = 3, time = '300ms' }
        limits = [{ algorithm = 'fixed_window', limit = 6, period = '1s' },
                  { algorithm = 'token_bucket', capacity = 25, rate = '12/s', depth = 1 }]",
    ),
    (
        "ahead-depths",
        "persist_ahead = { most = 5, time = '1s' }
        limits = [{ algorithm = 'sliding_window', limit = 7, period = '2s', segments = 2 },
                  { algorithm = 'token_bucket', capacity = 30, rate = '9/s', depth = 1 },
                  { algorithm = 'fixed_window', limit = 50, period = '5s', depth = 0 }]",
    ),
    (
        "ahead-empty",
        "persist_ahead = { most = 3, time = '400ms' }
        limits = [{ algorithm = 'token_bucket', capacity = 9, rate = '6/s', start = 'empty' }]",
    ),
    (
        "ahead-remembered",
        "persist_ahead = { most = 3 }
        remember = '1s'
        limits = [{ algorithm = 'token_bucket', capacity = 6, rate = '3/s' }]",
    ),
    (
        "ahead-lent",
        "persist_ahead = { most = 10, time = '1s' }
        local = { most = 8, time = '1s' }
        limits = [{ algorithm = 'token_bucket', capacity = 60, rate = '80/s' }]",
    ),
    (
        "shared",
        "share_calls = true
        placement = 'shard:2'
        limits = [{ algorithm = 'token_bucket', capacity = 9, rate = '7/s' }]",
    ),
    (
        "shared-ahead",
        "share_calls = true
        placement = 'shard:1'
        remember = '500ms'
        local = { most = 4, time = '1s' }
        persist_ahead = { most = 4, time = '300ms' }
        limits = [{ algorithm = 'fixed_window', limit = 20, period = '2s' }]",
    ),
    (
        "ahead-kept",
        "persist_ahead = { most = 4 }
        limits = [{ algorithm = 'token_bucket', capacity = 10, rate = '5/s' },
                  { algorithm = 'fixed_window', limit = 20, period = '4s', depth = 1 }]
# edited
        persist_ahead = { most = 6 }
        limits = [{ algorithm = 'token_bucket', capacity = 14, rate = '4/s' },
                  { algorithm = 'fixed_window', limit = 15, period = '4s', depth = 1 }]",
    ),
];

/// The policies of a table.
pub(super) const TABLE: [(&str, &str); 11] = [
    (
        "refused-bucket",
        "remember = '2s'
        limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/3s' }]",
    ),
    (
        "refused-window",
        "remember = '2s'
        limits = [{ algorithm = 'fixed_window', limit = 5, period = '9s' }]",
    ),
    (
        "refused-sliding",
        "remember = '2s'
        limits = [{ algorithm = 'sliding_window', limit = 5, period = '9s', segments = 3 }]",
    ),
    (
        "refused-log",
        "remember = '2s'
        limits = [{ algorithm = 'sliding_log', rates = ['5/9s', '7/20s'], min_gap = '900ms' }]",
    ),
    (
        "refused-depth",
        "remember = '2s'
        limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/3s' },
                  { algorithm = 'fixed_window', depth = 1, limit = 8, period = '20s' }]",
    ),
    (
        "refused-empty",
        "remember = '2s'
        limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/3s', start = 'empty' },
                  { algorithm = 'sliding_window', limit = 5, period = '9s' }]",
    ),
    (
        "lent-bucket",
        "local = { most = 20, time = '1s' }
        limits = [{ algorithm = 'token_bucket', capacity = 60, rate = '40/s' }]",
    ),
    (
        "lent-log",
        "local = { most = 20, time = '1s' }
        limits = [{ algorithm = 'sliding_log', rates = ['80/3s'] }]",
    ),
    (
        "lent-window",
        "local = { most = 20, time = '1s' }
        limits = [{ algorithm = 'fixed_window', limit = 50, period = '1s' }]",
    ),
    (
        "lent-refused",
        "remember = '2s'
        local = { most = 20, time = '1s' }
        limits = [{ algorithm = 'token_bucket', capacity = 30, rate = '20/s' }]",
    ),
    (
        "reported",
        "reports = true
        limits = [{ algorithm = 'suppression', rate = '10/s' }]",
    ),
];

/// The policies of nodes that ask by wire alone. No window ends while a history lasts.
const WIRE: [(&str, &str); 5] = [
    (
        "large",
        "limits = [{ algorithm = 'fixed_window', limit = 1_000_000, period = '1d' },
                   { algorithm = 'fixed_window', limit = 1_000_000, period = '1d', depth = 1 }]",
    ),
    (
        "small",
        "limits = [{ algorithm = 'fixed_window', limit = 20, period = '1d' },
                   { algorithm = 'fixed_window', limit = 1_000_000, period = '1d', depth = 1 }]",
    ),
    ("alone", "limits = [{ algorithm = 'fixed_window', limit = 1_000_000, period = '1d' }]"),
    (
        "large-shared",
        "share_calls = true
        placement = 'shard:1'
        limits = [{ algorithm = 'fixed_window', limit = 1_000_000, period = '1d' },
                  { algorithm = 'fixed_window', limit = 1_000_000, period = '1d', depth = 1 }]",
    ),
    (
        "small-shared",
        "share_calls = true
        placement = 'shard:1'
        limits = [{ algorithm = 'fixed_window', limit = 20, period = '1d' },
                  { algorithm = 'fixed_window', limit = 1_000_000, period = '1d', depth = 1 }]",
    ),
];

/// The policies of hosts whose store goes away. No window ends while a history lasts, and each record has one limit.
pub(super) const LOCAL: [(&str, &str); 4] = [
    (
        "share",
        "on_error = 'local'
        limits = [{ algorithm = 'fixed_window', limit = 40, period = '1d' }]",
    ),
    (
        "share-log",
        "on_error = 'local'
        limits = [{ algorithm = 'sliding_log', rates = ['30/1d'] }]",
    ),
    (
        "share-depth",
        "on_error = 'local'
        limits = [{ algorithm = 'fixed_window', limit = 30, period = '1d' },
                  { algorithm = 'fixed_window', limit = 50, period = '1d', depth = 1 }]",
    ),
    (
        "share-small",
        "on_error = 'local'
        limits = [{ algorithm = 'sliding_window', limit = 7, period = '1d', segments = 4 }]",
    ),
];
