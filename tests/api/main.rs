//! The decision API over real sockets. The same suite runs on `tidegate serve` in memory and on Redis, and on
//! the built Worker in workerd.

mod browser;
mod client;
mod costs;
mod faults;
mod gateway;
mod heads;
mod held;
mod hostile;
mod keys;
mod leases;
mod lists;
mod metered;
mod misconfigured;
mod model;
mod modes;
mod object;
mod origins;
mod outage;
mod overrides;
mod patience;
mod policies;
mod repeated;
mod revisions;
mod same;
mod soak {
    mod everything;
}
mod storage;
mod surface;
mod together;
mod upstream;
mod watch;

use tidegate_tests::on_every_server;

/// The periods are long, so that no test depends on its speed.
pub const POLICIES: &str = r#"
trusted_proxies = ["127.0.0.0/8"]

[policies.day]
limits = [
  { algorithm = "token_bucket", name = "burst", capacity = 3, rate = "3/d" },
  { algorithm = "sliding_window", name = "year", limit = 5, period = "365d", segments = 5 },
]
key = ["header:x-api-key", "ip"]
cost = { header = "x-cost" }

[policies.open]
limits = [{ algorithm = "token_bucket", capacity = 5, rate = "1/d" }]
on_error = "open"
placement = "shard:4"

[policies.jobs]
limits = [{ algorithm = "concurrency", capacity = 2, time_to_live = "1d" }]

[policies.sockets]
limits = [{ algorithm = "connections", limit = 3, expiry = "1d" }]

[policies.spread]
limits = [
  { algorithm = "token_bucket", name = "units", capacity = 100, rate = "1/d" },
  { algorithm = "budget", name = "budget", most = 40, time = "1d" },
]

[policies.log]
limits = [{ algorithm = "sliding_log", rates = ["100/365d"] }]

[policies.orders]
limits = [{ algorithm = "token_bucket", capacity = 5, rate = "1/d" }]
idempotency = "1d"
reservations = { most = 4 }

[policies.account]
limits = [{ algorithm = "suppression", rate = "1/6s" }]

[policies.busy]
classes = ["batch", "default", "critical"]
limits = [{ algorithm = "utilization", delay = "2s", full = "1us" }]

[policies.warming]
limits = [{ algorithm = "token_bucket", capacity = 5, rate = "1/d", start = "empty" }]

[policies.tree]
limits = [
  { algorithm = "token_bucket", name = "user", capacity = 2, rate = "1/d" },
  { algorithm = "token_bucket", name = "organisation", depth = 1, capacity = 3, rate = "1/d" },
]

[policies.crowd]
limits = [
  { algorithm = "fixed_window", name = "user", limit = 1, period = "365d" },
  { algorithm = "fixed_window", name = "all", depth = 0, limit = 1_000_000, period = "365d" },
]

[policies.tenants]
key = [["header:x-tenant", "cookie:sid"], "ip"]
limits = [
  { algorithm = "fixed_window", name = "session", limit = 1, period = "365d" },
  { algorithm = "fixed_window", name = "tenant", depth = 1, limit = 2, period = "365d" },
]

[policies.special]
limits = [{ algorithm = "token_bucket", capacity = 1, rate = "1/d" }]
deny = ["ip:192.0.2.0/24", "bot-*"]
allow = ["ip:2001:db8::/32", "monitor"]

[policies.special.overrides]
"user:42" = { capacity = 3 }
"worker-*" = { limits = [{ algorithm = "concurrency", capacity = 1, time_to_live = "1d" }] }

[policies.trial]
shadow = true
limits = [{ algorithm = "token_bucket", capacity = 1, rate = "1/d" }]

[policies.planned]
limits = [
  { algorithm = "token_bucket", name = "now", capacity = 4, rate = "1/d", warn_at = "50%" },
  { algorithm = "token_bucket", name = "planned", capacity = 1, rate = "1/d", shadow = true },
]

[policies.login]
limits = [
  { algorithm = "token_bucket", name = "attempts", capacity = 2, rate = "1/d" },
  { algorithm = "penalty", name = "penalty", refusals = 2, within = "1d", duration = "30d" },
]
"#;

on_every_server!(
    crate::POLICIES;
    surface:
        a_refused_key_is_in_the_list_of_its_limit,
        a_policy_keeps_more_keys_than_a_part_of_a_table,
        nobody_gets_in_without_the_token,
        a_body_of_10_mb_is_refused,
        concurrent_requests_share_one_limit,
        the_time_of_a_caller_is_ignored;
    client:
        a_client_asks_for_decisions,
        a_client_reserves_and_commits_once,
        a_client_holds_leases,
        a_client_says_what_is_wrong_with_a_call;
    leases:
        concurrent_requests_never_hold_more_than_the_capacity,
        a_budget_takes_units_from_the_rate_and_gives_them_back;
    policies:
        a_report_is_answered_with_the_factor_and_suppresses,
        load_is_shed_by_class_while_the_signal_is_bad;
    repeated:
        a_call_that_comes_often_is_taken_once;
    revisions:
        an_edit_keeps_the_states_of_all_other_policies;
    overrides:
        one_key_has_other_limits_until_a_time;
    watch:
        decisions_are_counted_by_policy_and_outcome,
        reservations_are_counted_by_what_became_of_them,
        nobody_is_told_how_long_the_store_took,
        half_a_body_consumes_nothing;
);
