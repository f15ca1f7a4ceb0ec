//! The decision API over real sockets: the same suite on `tidegate serve` in memory, on Redis, and
//! on the built Worker in workerd.

mod object;
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
    ($($test:ident),* $(,)?) => {
        mod on_memory { $(#[test] fn $test() { crate::surface::$test(&crate::memory()); })* }
        mod on_redis { $(#[test] fn $test() { crate::surface::$test(&crate::redis()); })* }
        mod on_the_worker {
            $(#[test] fn $test() { crate::surface::$test(&crate::worker(crate::worker_options())); })*
        }
    };
}

on_every_server!(
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
    a_time_of_the_callers_is_ignored,
);
