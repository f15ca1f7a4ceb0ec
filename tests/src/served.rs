//! Real servers of the decision API: the host in memory and on Redis, and the built Worker in workerd.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate::gate::Policies;
use tidegate::http::{Access, Tokens};
use tidegate::local::{RedisCluster, RedisServer, Workerd, WorkerdOptions};
use tidegate::serve::{Bounds, Files, Reload, Service, Watch, serve};
use tidegate::store::{self, RedisOptions, Store};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::Api;

/// The token that callers must send, for decisions and for administration.
pub const TOKEN: &str = "token of the tests";

/// A served API, and the servers that must live as long.
pub struct Served {
    pub api: Api,
    pub url: String,
    worker: Option<Workerd>,
    redis: Option<RedisServer>,
    _host: Option<oneshot::Sender<()>>,
}

impl Served {
    /// The number of the process of workerd.
    ///
    /// # Panics
    /// Panics if the API is not the Worker.
    pub fn process(&self) -> u32 {
        self.worker.as_ref().expect("a Worker").process()
    }

    /// Stops the Redis behind the API.
    ///
    /// # Panics
    /// Panics if the API has no Redis.
    pub fn stop_redis(&mut self) {
        self.redis.as_mut().expect("a Redis").stop();
    }
}

fn host(policies: &str, store: impl FnOnce(&Policies) -> Store, bounds: Bounds) -> Served {
    host_of((Files::new(policies.to_owned()), Watch::default()), store, bounds)
}

fn host_of(
    (files, watch): (Files, Watch),
    store: impl FnOnce(&Policies) -> Store,
    bounds: Bounds,
) -> Served {
    let policies = Policies::parse(files.in_force()).expect("valid policies");
    let (stop, stopped) = oneshot::channel::<()>();
    let (ready, listening) = std::sync::mpsc::channel();
    let (store, token) = (store(&policies), Some(TOKEN.to_owned()));
    let tokens = Tokens { decisions: token.clone(), administration: token };
    let access = Access::new(&policies, tokens).expect("a valid token");
    let reload = Reload::default();
    let service = Service { store, policies, files, access, bounds, watch, reload };
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            ready.send(listener.local_addr().unwrap()).unwrap();
            let stopped = async { drop(stopped.await) };
            serve(service, vec![listener], stopped).await;
        });
    });
    let url = format!("http://{}", listening.recv().expect("it listens"));
    let api = Api::new(&url, Some(TOKEN));
    Served { api, url, worker: None, redis: None, _host: Some(stop) }
}

/// The host with states in its memory.
pub fn memory(policies: &str) -> Served {
    bounded_memory(policies, Bounds::default())
}

/// The host with states in its memory, which keeps in this file what is put in force.
pub fn kept_memory(policies: &str, kept_in: &Path) -> Served {
    let files = Files::new(policies.to_owned()).kept_in(kept_in.to_owned()).expect("its revisions");
    watched_memory(files, Watch::default())
}

/// The host with states in its memory, which tells this about itself.
pub fn watched_memory(files: Files, watch: Watch) -> Served {
    let store = |policies: &Policies| Store::memory(policies, 64 << 20).expect("room");
    host_of((files, watch), store, Bounds::default())
}

/// The host with states in its memory, and with these bounds.
pub fn bounded_memory(policies: &str, bounds: Bounds) -> Served {
    host(policies, |policies| Store::memory(policies, 64 << 20).expect("room"), bounds)
}

/// The host with states in a private Redis. Its deadline is long enough for a slow machine.
pub fn redis(policies: &str) -> Served {
    let server = RedisServer::start().expect("a Redis");
    let served = host_on(server.url(), policies);
    Served { redis: Some(server), ..served }
}

/// A private Redis Cluster of three masters, on which many hosts can be tried: it takes seconds to start.
pub fn a_cluster() -> RedisCluster {
    RedisCluster::start(3, false).expect("a Redis Cluster")
}

/// The host with states in this Cluster, which has none at first.
pub fn cluster(policies: &str, cluster: &RedisCluster) -> Served {
    for node in cluster.nodes() {
        let client = redis::Client::open(node.url()).expect("its address");
        let mut connection = client.get_connection().expect("a node that answers");
        redis::cmd("FLUSHALL").exec(&mut connection).expect("no states");
    }
    host_on(&cluster.url(), policies)
}

fn host_on(url: &str, policies: &str) -> Served {
    let options = RedisOptions { deadline: Duration::from_secs(10), ..RedisOptions::default() };
    let store = store::Redis::new(url, options).expect("its address");
    host(policies, |_| Store::Redis(Arc::new(store)), Bounds::default())
}

/// The built Worker.
pub fn worker(options: WorkerdOptions) -> Served {
    let token = options.token.clone();
    let worker = Workerd::start(&options).expect("a built Worker");
    let url = worker.url().to_owned();
    let api = Api::new(&url, token.as_deref());
    Served { api, url, worker: Some(worker), redis: None, _host: None }
}

/// Options for a Worker that is like the other servers: it has these policies and the token, and decides at
/// its own time.
pub fn worker_options(policies: &str) -> WorkerdOptions {
    WorkerdOptions {
        policies: policies.to_owned(),
        token: Some(TOKEN.to_owned()),
        ..WorkerdOptions::default()
    }
}

/// Makes a test on every server from each function of a suite, under the same policies.
#[macro_export]
macro_rules! on_every_server {
    ($policies:expr; $($module:ident: $($test:ident),* ;)*) => {
        mod on_memory {
            $($(#[test] fn $test() { super::$module::$test(&$crate::memory($policies)); })*)*
        }
        mod on_redis {
            $($(#[test] fn $test() { super::$module::$test(&$crate::redis($policies)); })*)*
        }
        mod everything {
            #[test]
            fn on_a_cluster() {
                let cluster = $crate::a_cluster();
                $($(
                    println!("{}", stringify!($test));
                    super::$module::$test(&$crate::cluster($policies, &cluster));
                )*)*
            }
        }
        mod on_the_worker {
            $($(#[test] fn $test() {
                super::$module::$test(&$crate::worker($crate::worker_options($policies)));
            })*)*
        }
    };
}
