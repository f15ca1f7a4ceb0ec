//! The decision API over real sockets: the same suite on `tidegate serve` in memory, on Redis, and
//! on the built Worker in workerd.

mod leases;
mod object;
mod policies;
mod surface;

use tidegate::gate::Policies;
use tidegate::gate::http::Access;
use tidegate::local::{RedisServer, Workerd, WorkerdOptions};
use tidegate::serve::{Service, serve};
use tidegate::store::{Redis, RedisOptions, Store};
use tidegate_tests::Api;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Long periods, so that no test depends on how fast it runs.
pub const POLICIES: &str = r#"
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

[policies.login]
limits = [
  { algorithm = "token_bucket", name = "attempts", capacity = 2, rate = "1/d" },
  { algorithm = "penalty", name = "penalty", refusals = 2, within = "1d", duration = "30d" },
]
"#;

pub const TOKEN: &str = "token of the tests";

/// A served API, and what must live as long.
pub struct Served {
    pub api: Api,
    pub url: String,
    _worker: Option<Workerd>,
    _redis: Option<RedisServer>,
    _host: Option<oneshot::Sender<()>>,
}

pub fn host(store: impl FnOnce(&Policies) -> Store, redis: Option<RedisServer>) -> Served {
    let policies = Policies::parse(POLICIES).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let (ready, listening) = std::sync::mpsc::channel();
    let service =
        Service { store: store(&policies), policies, access: Access::Token(TOKEN.to_owned()) };
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            ready.send(listener.local_addr().unwrap()).unwrap();
            let stopped = async { drop(stopped.await) };
            serve(service, listener, stopped).await.unwrap();
        });
    });
    let url = format!("http://{}", listening.recv().unwrap());
    let api = Api::new(&url, Some(TOKEN));
    Served { api, url, _worker: None, _redis: redis, _host: Some(stop) }
}

pub fn memory() -> Served {
    host(|policies| Store::memory(policies, 1_000), None)
}

pub fn redis() -> Served {
    let server = RedisServer::start().unwrap();
    let store = Redis::new(server.url(), RedisOptions::default()).unwrap();
    host(|_| Store::Redis(Box::new(store)), Some(server))
}

pub fn worker(options: WorkerdOptions) -> Served {
    let token = options.token.clone();
    let worker = Workerd::start(&options).unwrap();
    let url = worker.url().to_owned();
    let api = Api::new(&url, token.as_deref());
    Served { api, url, _worker: Some(worker), _redis: None, _host: None }
}

pub fn worker_options() -> WorkerdOptions {
    WorkerdOptions {
        policies: POLICIES.to_owned(),
        token: Some(TOKEN.to_owned()),
        ..WorkerdOptions::default()
    }
}

/// Stamps the suite on every server.
macro_rules! on_every_server {
    ($($module:ident: $($test:ident),* ;)*) => {
        mod on_memory { $($(#[test] fn $test() { crate::$module::$test(&crate::memory()); })*)* }
        mod on_redis { $($(#[test] fn $test() { crate::$module::$test(&crate::redis()); })*)* }
        mod on_the_worker {
            $($(#[test] fn $test() { crate::$module::$test(&crate::worker(crate::worker_options())); })*)*
        }
    };
}

on_every_server!(
    surface:
        grants_until_the_limit_and_says_when,
        a_gate_answers_204_or_429,
        headers_that_come_twice_are_joined,
        a_batch_keeps_its_order,
        keys_and_policies_are_counted_apart,
        a_peek_changes_nothing,
        nobody_gets_in_without_the_token,
        bad_input_is_refused_and_nothing_is_consumed,
        a_body_of_10_mb_is_refused,
        concurrent_requests_share_one_limit,
        a_time_of_the_callers_is_ignored;
    leases:
        leases_are_acquired_renewed_and_released,
        a_lease_is_named_by_any_text,
        connections_are_counted_by_their_owner,
        concurrent_requests_never_hold_more_than_there_is,
        bad_leases_are_refused_and_nothing_is_consumed,
        what_was_reserved_is_settled,
        a_budget_is_taken_out_of_the_rate_and_given_back;
    policies:
        a_report_is_answered_with_the_factor_and_suppresses,
        load_is_shed_by_class_while_the_signal_is_bad,
        users_are_counted_within_their_organisation,
        overrides_and_lists_hold_for_some_keys,
        addresses_are_counted_by_their_network,
        in_shadow_nobody_is_refused,
        who_is_refused_too_often_is_refused_everything;
);
