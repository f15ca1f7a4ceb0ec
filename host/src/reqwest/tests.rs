//! Tests of the middleware on a clock that moves on when all wait.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ::reqwest::StatusCode;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tokio::time::Instant;

use super::*;

thread_local! {
    static BEGAN: OnceCell<Instant> = const { OnceCell::new() };
}

/// The time by the clock that also wakes sleepers.
fn now() -> Timestamp {
    let began = BEGAN.with(|began| *began.get_or_init(Instant::now));
    Timestamp(1_000_000_000 + u64::try_from(began.elapsed().as_micros()).unwrap())
}

fn waited() -> Duration {
    Duration::from_micros(now().0 - 1_000_000_000)
}

/// A status, and the header `Retry-After`.
type Told = (u16, Option<&'static str>);

/// A server in place of the network: answers as told, one after another, and then with 200. Counts its requests.
#[derive(Clone, Default)]
struct Upstream {
    answers: Arc<Mutex<Vec<Told>>>,
    requests: Arc<AtomicUsize>,
}

#[async_trait]
impl Middleware for Upstream {
    async fn handle(
        &self,
        _: Request,
        _: &mut Extensions,
        _: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut answers = self.answers.lock().unwrap();
        let (status, wait) = if answers.is_empty() { (200, None) } else { answers.remove(0) };
        let mut response = http::Response::builder().status(status);
        if let Some(wait) = wait {
            response = response.header("retry-after", wait);
        }
        Ok(response.body("").unwrap().into())
    }
}

fn client(
    policy: &str,
    answers: &[Told],
    build: impl FnOnce(Builder) -> Builder,
) -> (ClientWithMiddleware, Upstream) {
    now();
    let policies = Policies::parse(&format!("[policies.p]\n{policy}")).unwrap();
    let store = Store::memory(&policies, 1 << 20).unwrap();
    let limit = build(RateLimit::builder(store, &policies, "p").clock(now)).build().unwrap();
    let upstream = Upstream::default();
    upstream.answers.lock().unwrap().extend(answers);
    let client = ClientBuilder::new(::reqwest::Client::new()).with(limit).with(upstream.clone());
    (client.build(), upstream)
}

const BUCKET: &str = "limits = [{ algorithm = 'token_bucket', capacity = 2, rate = '1/s' }]";
const MANY: &str = "limits = [{ algorithm = 'token_bucket', capacity = 99, rate = '99/s' }]";

fn not_sent(error: &Error) -> &NotSent {
    match error {
        Error::Middleware(cause) => cause.downcast_ref().unwrap(),
        error @ Error::Reqwest(_) => panic!("{error:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_keeps_within_its_limit() {
    let (client, upstream) = client(BUCKET, &[], |builder| builder);
    for _ in 0..7 {
        assert_eq!(client.get("http://a/x").send().await.unwrap().status(), StatusCode::OK);
    }
    // two at once, then one a second; a timer of tokio is up to a millisecond late
    let slack = Duration::from_millis(50);
    assert!(
        (Duration::from_secs(5)..Duration::from_secs(5) + slack).contains(&waited()),
        "{:?}",
        waited()
    );
    client.get("http://b/x").send().await.unwrap(); // another host has a key of its own
    assert!(waited() < Duration::from_secs(5) + slack);
    assert_eq!(upstream.requests.load(Ordering::Relaxed), 8);
}

#[tokio::test(start_paused = true)]
async fn key_and_cost_are_what_the_functions_say() {
    let (client, _) = client(BUCKET, &[], |builder| {
        builder
            .key(|request| request.url().path().to_owned())
            .cost(|request| (request.method() == "POST").then_some(2))
    });
    client.post("http://a/x").send().await.unwrap();
    client.post("http://a/y").send().await.unwrap();
    assert_eq!(waited(), Duration::ZERO);
    client.get("http://b/x").send().await.unwrap();
    assert!(waited() >= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_too_long_is_not_sent() {
    let (client, upstream) =
        client(BUCKET, &[], |builder| builder.longest_wait(Duration::from_millis(900)));
    for _ in 0..2 {
        client.get("http://a/").send().await.unwrap();
    }
    let error = client.get("http://a/").send().await.unwrap_err();
    assert!(matches!(not_sent(&error), NotSent::TooLong { .. }), "{error:?}");
    assert_eq!((upstream.requests.load(Ordering::Relaxed), waited()), (2, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn what_never_passes_is_not_sent() {
    let denied = format!("{BUCKET}\ndeny = ['a']");
    let (denied, _) = client(&denied, &[], |builder| builder);
    let error = denied.get("http://a/").send().await.unwrap_err();
    assert!(matches!(not_sent(&error), NotSent::ForEver), "{error:?}");
    let (costly, _) = client(BUCKET, &[], |builder| builder.cost(|_| Some(3)));
    let error = costly.get("http://a/").send().await.unwrap_err();
    assert!(matches!(not_sent(&error), NotSent::Ask(AskError::Cost(_))), "{error:?}");
    let (shadow, _) = client(&format!("{BUCKET}\nshadow = true"), &[], |builder| builder);
    for _ in 0..5 {
        shadow.get("http://a/").send().await.unwrap();
    }
    assert_eq!(waited(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_server_is_waited_for() {
    let (client, upstream) = client(MANY, &[(429, Some("7")), (503, Some("2"))], |builder| builder);
    let response = client.get("http://a/").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(upstream.requests.load(Ordering::Relaxed), 3);
    assert!(
        (Duration::from_secs(9)..Duration::from_secs(10)).contains(&waited()),
        "{:?}",
        waited()
    );
}

#[tokio::test(start_paused = true)]
async fn other_refusals_are_returned_at_once() {
    for (method, status, wait) in [
        ("GET", 429, None),
        ("GET", 429, Some("61")), // longer than a minute
        ("GET", 500, Some("1")),
        ("POST", 503, Some("1")), // it may have been done in part
    ] {
        let (client, upstream) = client(MANY, &[(status, wait)], |builder| builder);
        let method = method.parse().unwrap();
        let response = client.request(method, "http://a/").send().await.unwrap();
        assert_eq!(response.status().as_u16(), status);
        assert_eq!(upstream.requests.load(Ordering::Relaxed), 1);
    }
    assert_eq!(waited(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn repeats_are_bounded_and_count_against_the_limit() {
    let (client, upstream) =
        client(BUCKET, &[(429, Some("0")); 9], |builder| builder.most_repeats(4));
    let response = client.post("http://a/").body("again").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(upstream.requests.load(Ordering::Relaxed), 5);
    assert!(waited() >= Duration::from_secs(3), "{:?}", waited());
}

#[tokio::test(start_paused = true)]
async fn on_error_decides_if_the_store_fails() {
    let policies = Policies::parse(&format!("[policies.p]\n{BUCKET}")).unwrap();
    for (more, passes) in [("", false), ("on_error = 'open'", true), ("shadow = true", true)] {
        // this store knows no policy `q`
        let store = Store::memory(&policies, 1 << 20).unwrap();
        let q = Policies::parse(&format!("[policies.q]\n{BUCKET}\n{more}")).unwrap();
        let limit = RateLimit::builder(store, &q, "q").clock(now).build().unwrap();
        let client =
            ClientBuilder::new(::reqwest::Client::new()).with(limit).with(Upstream::default());
        let answer = client.build().get("http://a/").send().await;
        assert_eq!(answer.is_ok(), passes, "{more}: {answer:?}");
        if let Err(error) = answer {
            assert!(matches!(not_sent(&error), NotSent::Store(_)), "{error:?}");
        }
    }
}

#[test]
fn a_policy_that_is_missing_or_limits_leases_builds_nothing() {
    let policies = Policies::parse(
        "policies.p.limits = [{ algorithm = 'concurrency', capacity = 2, time_to_live = '1s' }]",
    )
    .unwrap();
    let store = Arc::new(Store::memory(&policies, 1 << 20).unwrap());
    let build = |name| RateLimit::builder(Arc::clone(&store), &policies, name).build().unwrap_err();
    assert_eq!(build("q"), BuildError::NoPolicy("q".to_owned()));
    assert_eq!(build("p"), BuildError::Leases("p".to_owned()));
}
