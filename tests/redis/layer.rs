//! The layer in front of a service whose states are in Redis.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use http::{Request, Response};
use tidegate::gate::{Metering, Policies};
use tidegate::local::RedisServer;
use tidegate::store::Store;
use tidegate::tower::{Builder, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

use super::{ask as command, store};

const PLACE: &str = "limits = [{ algorithm = 'concurrency', capacity = 1, time_to_live = '1h' }]";
const UNITS: &str = "limits = [{ algorithm = 'fixed_window', limit = 1, period = '365d' }]\n\
                     reservations = { time_to_live = '1h' }";

/// A layer of a policy, by one key.
fn layer(
    server: &RedisServer,
    policy: &str,
    build: impl FnOnce(Builder) -> Builder,
) -> RateLimitLayer {
    let policies = Policies::parse(&format!("[policies.p]\n{policy}")).unwrap();
    let store = Store::Redis(Arc::new(store(server)));
    let builder = RateLimitLayer::builder(store, &policies, "p");
    build(builder.key(|_| Some("k".to_owned()))).build().unwrap()
}

/// Asks a service that answers nothing.
async fn ask(layer: &RateLimitLayer) -> u16 {
    let service = service_fn(async |_| Ok::<_, Infallible>(Response::new(String::new())));
    layer.layer(service).oneshot(Request::new(())).await.unwrap().status().as_u16()
}

/// A client leaves after Redis has granted its request and before it hears of that. Another one gets the place or the units soon,
/// and not only when they expire.
async fn leaves_nothing_behind(layer: &RateLimitLayer) {
    let mut leaves = Box::pin(ask(layer));
    assert!((&mut leaves).now_or_never().is_none(), "Redis answers later");
    assert_eq!(ask(layer).await, 429, "the first client has all");
    drop(leaves);
    let mut tries = 0..1_000;
    while ask(layer).await != 200 {
        assert!(tries.next().is_some(), "nothing came back");
    }
}

#[tokio::test]
async fn a_client_that_leaves_while_redis_is_asked_keeps_no_lease() {
    let server = RedisServer::start().unwrap();
    leaves_nothing_behind(&layer(&server, PLACE, |builder| builder)).await;
}

#[tokio::test]
async fn a_client_that_leaves_while_redis_is_asked_keeps_no_units() {
    let server = RedisServer::start().unwrap();
    // responses cost nothing
    let free = r#"{ "count_if": { "status": 500 } }"#;
    let metering = Metering::parse(free).unwrap().unwrap();
    leaves_nothing_behind(&layer(&server, UNITS, |builder| builder.metering(metering))).await;
}

#[tokio::test]
async fn on_error_decides_while_redis_is_gone_and_a_note_says_why() {
    let units = "nodes = 1\nlimits = [{ algorithm = 'fixed_window', limit = 2, period = '365d' }]";
    for (on_error, limits, expected) in
        [("open", PLACE, 200), ("closed", PLACE, 503), ("local", units, 200)]
    {
        let mut server = RedisServer::start().unwrap();
        let policy = format!("{limits}\non_error = '{on_error}'");
        let noted = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&noted);
        let layer = layer(&server, &policy, |builder| {
            builder.on_store_error(move |_| _ = count.fetch_add(1, Relaxed))
        });
        assert_eq!((ask(&layer).await, noted.load(Relaxed)), (200, 0));
        server.stop();
        assert_eq!(ask(&layer).await, expected, "{on_error}");
        assert!(noted.load(Relaxed) > 0, "{on_error}");
    }
}

#[tokio::test]
async fn what_redis_says_is_why_a_share_decides() {
    let server = RedisServer::start().unwrap();
    let policy = "nodes = 1\non_error = 'local'\n\
                  limits = [{ algorithm = 'fixed_window', limit = 9, period = '365d' }]";
    let said = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&said);
    let layer = layer(&server, policy, |builder| {
        builder.on_store_error(move |error| notes.lock().unwrap().push(error.to_string()))
    });
    assert_eq!(ask(&layer).await, 200);
    let () = command(&server, &[b"CONFIG", b"SET", b"maxmemory", b"1"]).await;
    assert_eq!(ask(&layer).await, 200);
    let said = said.lock().unwrap();
    assert!(said.len() == 1 && said[0].contains("OOM"), "{said:?}");
}
