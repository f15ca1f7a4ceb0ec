//! Several policies in one layer, and the signal of a limit that sheds load.

use std::cell::Cell;

use super::*;

const FILE: &str = "
    [policies.user]
    key = ['header:client']
    limits = [{ algorithm = 'fixed_window', limit = 3, period = '1h' }]
    [policies.all]
    key = ['header:host']
    limits = [{ algorithm = 'fixed_window', limit = 4, period = '1h' }]
    [policies.jobs]
    key = ['header:client']
    limits = [{ algorithm = 'concurrency', capacity = 1, time_to_live = '1h' }]
    [policies.paid]
    key = ['header:client']
    limits = [
        { algorithm = 'fixed_window', name = 'plan', limit = 1, period = '1h', payer = true },
        { algorithm = 'fixed_window', name = 'credits', limit = 9, period = '1h', payer = true },
    ]
";

fn several(build: impl FnOnce(Builder) -> Builder) -> Result<RateLimitLayer, LayerError> {
    let policies = Policies::parse(FILE).unwrap();
    let store = Store::memory(&policies, 1 << 20).unwrap();
    build(RateLimitLayer::builder(store, &policies, "user").clock(|| Timestamp(0))).build()
}

fn of(client: &str) -> Asked {
    get(client).header("host", "h")
}

#[tokio::test]
async fn if_one_policy_refuses_none_is_charged() {
    let layer = several(|builder| builder.and("all")).unwrap();
    for client in ["a", "a", "a"] {
        let (status, fields, _) = ask(&layer, of(client)).await;
        assert_eq!(status, 200);
        assert!(fields["ratelimit"].to_str().unwrap().contains("\"user\";r="), "{fields:?}");
        assert!(fields["ratelimit"].to_str().unwrap().contains("\"all\";r="), "{fields:?}");
    }
    for _ in 0..5 {
        let (status, _, body) = ask(&layer, of("a")).await;
        assert!(status == 429 && body.contains(r#""violated-policies":["user"]"#), "{body}");
    }
    assert_eq!(status(&layer, of("b")).await, 200, "the refusals took nothing from `all`");
    let (refused, _, body) = ask(&layer, of("b")).await;
    assert!(refused == 429 && body.contains(r#""policy":"all""#), "{body}");
    let left = ask(&several(|builder| builder).unwrap(), of("b")).await.1;
    assert_eq!(left["ratelimit"].to_str().unwrap().split(';').nth(1), Some("r=2"));
}

#[tokio::test]
async fn a_lease_comes_back_if_another_policy_refuses() {
    let layer = several(|builder| builder.and("jobs").and("all")).unwrap();
    // the lease of a response that has ended is released a moment later, by a task that runs when this one waits
    let mut passed = 0;
    for _ in 0..50 {
        passed += u32::from(status(&layer, of(&passed.to_string())).await == 200);
        tokio::task::yield_now().await;
    }
    assert_eq!(passed, 4, "`all` lets four pass");
    let jobs = several(|builder| builder.and("jobs")).unwrap();
    let held = ask_and_keep(&jobs, of("a")).await;
    assert_eq!(held.status(), 200);
    let (refused, _, body) = ask(&jobs, of("a")).await;
    assert!(refused == 429 && body.contains(r#""policy":"jobs""#), "{body}");
    drop(held);
    while status(&jobs, of("a")).await != 200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn functions_belong_to_the_policy_that_was_named_last() {
    let layer = several(|builder| {
        let key = |request: &http::request::Parts| Some(request.uri.path().to_owned());
        builder.cost(|_| Some(2)).and("all").key(key).cost(|_| Some(1))
    });
    let layer = layer.unwrap();
    let fields = ask(&layer, of("a")).await.1;
    let left = fields["ratelimit"].to_str().unwrap();
    assert!(left.contains("\"user\";r=1") && left.contains("\"all\";r=3"), "{left}");
}

#[test]
fn a_layer_of_wrong_policies_is_not_built() {
    let error = |build: fn(Builder) -> Builder| several(build).unwrap_err();
    assert_eq!(error(|builder| builder.and("none")), LayerError::NoPolicy("none".to_owned()));
    assert_eq!(error(|builder| builder.and("user")), LayerError::Twice("user".to_owned()));
    let payers = error(|builder| builder.and("paid").and("all"));
    assert_eq!(payers, LayerError::Payers("paid".to_owned()));
    assert!(several(|builder| builder.and("all").and("paid")).is_ok());
}

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// A clock on which a millisecond passes whenever it is read: two for each request.
fn ticking() -> Timestamp {
    NOW.set(NOW.get() + 1_000);
    Timestamp(NOW.get())
}

#[tokio::test]
async fn a_busy_service_sheds_load_by_class() {
    let policy = "
        key = ['header:client']
        classes = ['batch', 'critical']
        limits = [{ algorithm = 'utilization', delay = '10ms', full = '10ms' }]
    ";
    let class =
        |parts: &http::request::Parts| Some(parts.headers.get("class")?.to_str().ok()?.to_owned());
    let busy = |parts: &http::request::Parts| {
        Some(if parts.headers.contains_key("idle") { 0 } else { 1_000_000 })
    };
    let layer = layer(policy, |builder| builder.signal(busy).class(class).clock(ticking));
    for _ in 0..100 {
        assert_eq!(status(&layer, get("a").header("idle", "yes")).await, 200);
    }
    let mut shed = Vec::new();
    for _ in 0..60 {
        shed.push(status(&layer, get("a")).await == 503);
    }
    assert!(shed[..4].iter().all(|shed| !shed), "nothing is shed before the delay: {shed:?}");
    assert!(shed[30..].iter().all(|shed| *shed), "and all of the class after it: {shed:?}");
    assert_eq!(status(&layer, get("a").header("class", "critical")).await, 200);
}
