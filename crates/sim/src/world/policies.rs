//! The policies that a world may have.

/// Comes between two revisions of a policy. Other policies are replaced by the same text.
pub(super) const EDITED: &str = "\n# edited\n";

/// The policies by name.
pub(super) const POLICIES: [(&str, &str); 29] = [
    ("bucket", "limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '5/s' }]"),
    ("window", "limits = [{ algorithm = 'fixed_window', limit = 6, period = '2s' }]"),
    (
        "sliding",
        "limits = [{ algorithm = 'sliding_window', limit = 8, period = '3s', segments = 3 }]",
    ),
    ("log", "limits = [{ algorithm = 'sliding_log', rates = ['4/2s', '2/200ms'] }]"),
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
        "limits = [{ algorithm = 'utilization', delay = '1s', full = '30s' }]",
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
        "on_change = 'keep'
        limits = [{ algorithm = 'fixed_window', limit = 2, period = '1s' }]
# edited
        on_change = 'keep'
        limits = [{ algorithm = 'fixed_window', limit = 3, period = '3s' }]",
    ),
    (
        "kept-leases",
        "on_change = 'keep'
        limits = [{ algorithm = 'concurrency', capacity = 3, time_to_live = '2s' }]
# edited
        on_change = 'keep'
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
        "limits = [{ algorithm = 'sliding_window', limit = 4, period = '2s', segments = 2 }]
# edited
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
                  { algorithm = 'concurrency', capacity = 3, time_to_live = '2s' }]",
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
        "on_change = 'keep'
        remember = '500ms'
        local = { most = 5, time = '2s' }
        limits = [{ algorithm = 'sliding_window', limit = 60, period = '1s', segments = 4 }]
# edited
        on_change = 'keep'
        remember = '500ms'
        local = { most = 3, time = '1s' }
        limits = [{ algorithm = 'sliding_window', limit = 80, period = '1s', segments = 4 }]",
    ),
];
