//! What a request holds, and when it ends.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::gate::Metering;

/// A client has one place.
const ONE_PLACE: &str = "key = ['header:client']
                         limits = [{ algorithm = 'concurrency', capacity = 1, time_to_live = '30s' }]";

/// Lets the tasks of this thread do all that they can do.
async fn settled() {
    for _ in 0..10 {
        yield_now().await;
    }
}

/// Whether a client gets its place, which it gives back.
async fn is_free(layer: &RateLimitLayer) -> bool {
    settled().await;
    let is_free = status(layer, get("a")).await == 200;
    settled().await;
    is_free
}

/// Asks a service that gives this response.
async fn asked<B>(
    layer: &RateLimitLayer,
    request: Asked,
    response: Response<B>,
) -> Response<ResponseBody<B>>
where
    B: Body<Data = Bytes> + Send + 'static,
{
    let response = Arc::new(Mutex::new(Some(response)));
    let service = service_fn(move |_| {
        let response = response.lock().unwrap().take().unwrap();
        async { Ok::<_, BoxError>(response) }
    });
    layer.layer(service).oneshot(request.body(()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_lease_is_held_until_the_body_has_been_read() {
    let layer = layer(ONE_PLACE, |builder| builder);
    let (sender, body) = open();
    let mut body = asked(&layer, get("a"), Response::new(body)).await.into_body();
    for _ in 0..3 {
        sender.send(Ok(Bytes::from("a"))).unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
        assert!(!is_free(&layer).await);
    }
    assert_eq!(status(&layer, get("b")).await, 200);
    drop(sender);
    assert!(body.frame().await.is_none());
    assert!(is_free(&layer).await, "although the body still exists");
}

#[tokio::test]
async fn a_lease_ends_when_the_body_breaks_off_or_is_dropped() {
    let layer = layer(ONE_PLACE, |builder| builder);
    let (sender, body) = open();
    let mut body = asked(&layer, get("a"), Response::new(body)).await.into_body();
    sender.send(Err("broken".into())).unwrap();
    assert!(!is_free(&layer).await);
    assert!(body.frame().await.unwrap().is_err());
    assert!(is_free(&layer).await);

    let (_sender, body) = open();
    let response = asked(&layer, get("a"), Response::new(body)).await;
    assert!(!is_free(&layer).await);
    drop(response);
    assert!(is_free(&layer).await);
}

#[tokio::test]
async fn a_lease_ends_with_a_body_that_says_by_itself_that_it_has_ended() {
    let layer = layer(ONE_PLACE, |builder| builder);
    let mut body = ask_and_keep(&layer, get("a")).await.into_body();
    assert!(!is_free(&layer).await);
    assert!(body.frame().await.is_some());
    assert!(body.is_end_stream());
    assert!(is_free(&layer).await);

    let empty = asked(&layer, get("a"), Response::new(Full::default())).await;
    assert!(is_free(&layer).await);
    let head = Request::head("/").header("client", "a");
    let of_head = asked(&layer, head, Response::new(Full::from("nobody reads it"))).await;
    assert!(is_free(&layer).await);
    drop((empty, of_head));
}

#[tokio::test]
async fn a_lease_ends_if_the_service_fails_or_the_client_leaves_before_the_response() {
    let layer = layer(ONE_PLACE, |builder| builder);
    let fails =
        service_fn(async |_| -> Result<Response<Full<Bytes>>, BoxError> { Err("failed".into()) });
    assert!(layer.layer(fails).oneshot(get("a").body(()).unwrap()).await.is_err());
    assert!(is_free(&layer).await);

    let waits = service_fn(|_| pending::<Result<Response<Full<Bytes>>, BoxError>>());
    let mut waits = Box::pin(layer.layer(waits).oneshot(get("a").body(()).unwrap()));
    assert!(timeout(Duration::ZERO, &mut waits).await.is_err());
    assert!(!is_free(&layer).await);
    drop(waits);
    assert!(is_free(&layer).await);
}

thread_local! {
    /// The time at which the test of this thread began, by a clock that the test moves.
    static BEGAN: Instant = Instant::now();
}

fn paused_clock() -> Timestamp {
    let passed = BEGAN.with(Instant::elapsed);
    Timestamp(u64::try_from(passed.as_micros()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_while_the_response_lasts_and_not_for_longer() {
    let layer = layer(ONE_PLACE, |builder| builder.clock(paused_clock));
    let response = ask_and_keep(&layer, get("a")).await;
    sleep(Duration::from_secs(3_600)).await;
    assert!(!is_free(&layer).await);
    drop(response);
    assert!(is_free(&layer).await);
}

#[tokio::test]
async fn a_request_of_a_policy_without_leases_holds_nothing() {
    let layer = layer(&of_client(9), |builder| builder);
    let (sender, body) = open();
    let mut body = asked(&layer, get("a"), Response::new(body)).await.into_body();
    sender.send(Ok(Bytes::from("a"))).unwrap();
    assert!(body.frame().await.is_some());
    assert!(format!("{body:?}").contains("held: None"), "{body:?}");
}

/// A client has 100 units, and the response says what a request has cost.
fn metered(build: impl FnOnce(Builder) -> Builder) -> RateLimitLayer {
    let metering =
        r#"{ "actual": { "field": "usage.total_tokens" }, "count_if": { "status": 200 } }"#;
    let metering = Metering::parse(metering).unwrap().unwrap();
    layer(&format!("{}reservations = {{}}", of_client(100)), |builder| {
        build(builder.cost(|_| Some(40)).metering(metering))
    })
}

/// The units that a client has left once a request has reserved 40 of them.
async fn left(layer: &RateLimitLayer) -> String {
    settled().await;
    ask_and_keep(layer, get("a")).await.headers()["ratelimit"].to_str().unwrap().to_owned()
}

fn json(status: u16, body: &'static str) -> Response<Full<Bytes>> {
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(Full::from(body)).unwrap()
}

#[tokio::test]
async fn the_true_cost_is_read_from_the_response_and_committed() {
    let layer = metered(|builder| builder);
    let response =
        asked(&layer, get("a"), json(200, r#"{ "usage": { "total_tokens": 7 } }"#)).await;
    assert_eq!(response.headers()["ratelimit"], "\"p\";r=60;t=3600");
    response.into_body().collect().await.unwrap();
    assert_eq!(left(&layer).await, "\"p\";r=53;t=3600");
}

#[tokio::test]
async fn the_estimate_is_committed_if_the_client_leaves_and_nothing_if_the_response_does_not_count()
{
    let layer = metered(|builder| builder);
    let not_counted =
        asked(&layer, get("a"), json(500, r#"{ "usage": { "total_tokens": 7 } }"#)).await;
    not_counted.into_body().collect().await.unwrap();
    let fails =
        service_fn(async |_| -> Result<Response<Full<Bytes>>, BoxError> { Err("failed".into()) });
    assert!(layer.layer(fails).oneshot(get("a").body(()).unwrap()).await.is_err());
    settled().await;
    let left_by_client =
        asked(&layer, get("a"), json(200, r#"{ "usage": { "total_tokens": 7 } }"#)).await;
    assert_eq!(left_by_client.headers()["ratelimit"], "\"p\";r=60;t=3600");
    drop(left_by_client);
    assert_eq!(left(&layer).await, "\"p\";r=20;t=3600");
}

#[tokio::test]
async fn a_commit_releases_the_lease_of_its_request() {
    let both = format!("{ONE_PLACE}\nreservations = {{}}").replace(
        "limits = [",
        "limits = [{ algorithm = 'fixed_window', limit = 9, period = '1h' }, ",
    );
    let layer = layer(&both, |builder| builder.metering(Metering::default()));
    let response = ask_and_keep(&layer, get("a")).await;
    assert!(!is_free(&layer).await);
    response.into_body().collect().await.unwrap();
    assert!(is_free(&layer).await);
}
