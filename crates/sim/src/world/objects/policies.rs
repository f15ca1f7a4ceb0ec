//! The policies of a world of objects: some store states ahead, and the others are those of the world of hosts.

use super::super::policies::POLICIES;

/// All policies by name.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    AHEAD.into_iter().chain(POLICIES)
}

const AHEAD: [(&str, &str); 16] = [
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
        "on_change = 'keep'
        persist_ahead = { most = 4 }
        limits = [{ algorithm = 'fixed_window', limit = 9, period = '2s', start = 'first' }]
# edited
        on_change = 'keep'
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
        "on_change = 'keep'
        persist_ahead = { most = 4 }
        limits = [{ algorithm = 'token_bucket', capacity = 10, rate = '5/s' },
                  { algorithm = 'fixed_window', limit = 20, period = '4s', depth = 1 }]
# edited
        on_change = 'keep'
        persist_ahead = { most = 6 }
        limits = [{ algorithm = 'token_bucket', capacity = 14, rate = '4/s' },
                  { algorithm = 'fixed_window', limit = 15, period = '4s', depth = 1 }]",
    ),
];
