//! Stripe, "Scaling your API with rate limiters": the two limiters of a user's requests. The two
//! load shedders are in [`stripe_shedders`](crate::stripe_shedders).
//!
//! | the source has | here |
//! |---|---|
//! | a token bucket: 100 a second, 500 at once | `requests`, limit `rate` |
//! | 100 requests at once; a lost request counts for 60 s | limit `concurrent` |
//! | if Redis fails, requests pass, and somebody is told | `on_error = "open"`; the answer says `degraded` |
//!
//! What the author was missing: the bucket uses whole seconds and the clocks of its clients. So the tokens of
//! a second come a millisecond early, and again each time a slow clock has written. A request that the
//! concurrency limiter refuses has cost a token. A request that takes longer than 60 s no longer counts. Two
//! requests with the same random name share one place. A user who never comes again leaves a set behind for
//! ever.

use serde_json::{Value, json};
use tidegate_gate::{Micros, Timestamp};
use tidegate_tests::{Served, redis};

use crate::{MINUTE, POLICIES, SECOND, System, at, batch, number, number_of};

const USER: &str = "user:42";
const MILLISECOND: u64 = 1_000;

/// Sends requests that end at once and release their leases. Returns how many pass.
fn passed(system: &mut System, now: Timestamp, requests: u64) -> u64 {
    let passes = |_: &u64| {
        let allowed = system.acquire(USER, now, "request").decision.is_allowed();
        assert_eq!(system.release(USER, now, "request").effect.live(), Some(allowed));
        allowed
    };
    (0..requests).filter(passes).count().try_into().unwrap()
}

/// The published bucket, which uses the whole seconds of the caller's clock.
struct Published {
    tokens: u64,
    refreshed: u64,
}

impl Published {
    fn passed(&mut self, now: Timestamp, requests: u64) -> u64 {
        let second = now.0 / SECOND;
        let filled = (self.tokens + 100 * second.saturating_sub(self.refreshed)).min(500);
        let passed = filled.min(requests);
        (self.tokens, self.refreshed) = (filled - passed, second);
        passed
    }
}

#[test]
fn bursts_of_500_and_then_100_a_second() {
    let mut requests = System::of("requests");
    assert_eq!(passed(&mut requests, at(0), 600), 500);
    let refused = requests.acquire(USER, at(0), "request");
    assert_eq!(refused.decision.retry_after(), Micros(10 * MILLISECOND));
    assert_eq!(passed(&mut requests, at(10 * MILLISECOND - 1), 1), 0);
    let in_ten_seconds = (10..=10_000).map(|ms| passed(&mut requests, at(ms * MILLISECOND), 1));
    assert_eq!(in_ten_seconds.sum::<u64>(), 1_000);
    assert_eq!(passed(&mut requests, at(15 * SECOND), 600), 500, "full again after five seconds");
}

#[test]
fn a_seconds_tokens_do_not_come_early() {
    let (before, after) = (at(SECOND - MILLISECOND), at(SECOND));
    let mut published = Published { tokens: 500, refreshed: 0 };
    assert_eq!((published.passed(before, 600), published.passed(after, 600)), (500, 100));
    let mut requests = System::of("requests");
    assert_eq!((passed(&mut requests, before, 600), passed(&mut requests, after, 600)), (500, 0));
}

#[test]
fn servers_whose_clocks_differ_refill_nothing() {
    let (slow, fast) = (at(9 * SECOND), at(10 * SECOND));
    let mut published = Published { tokens: 500, refreshed: 0 };
    let mut requests = System::of("requests");
    let (mut by_published, mut by_requests) = (0, 0);
    for _ in 0..20 {
        for now in [fast, slow] {
            by_published += published.passed(now, 600);
            by_requests += passed(&mut requests, now, 600);
        }
    }
    assert_eq!((by_published, by_requests), (500 + 19 * 100, 500));
}

/// A system with a hundred requests that have begun and not ended.
fn busy() -> System {
    let mut requests = System::of("requests");
    for request in 0..100 {
        let verdict = requests.acquire(USER, at(0), &format!("request-{request}"));
        assert!(verdict.decision.is_allowed(), "{request}");
    }
    requests
}

#[test]
fn a_hundred_run_at_once_and_a_refused_request_takes_no_token() {
    let mut requests = busy();
    let refused = requests.acquire(USER, at(0), "one-more");
    let [rate, concurrent] = refused.limits.as_slice() else { panic!("{refused:?}") };
    assert_eq!((rate.is_allowed(), rate.remaining()), (true, 400));
    assert_eq!((concurrent.is_allowed(), concurrent.remaining()), (false, 0));
    assert_eq!(requests.operate(USER, at(0), 0).limits[0].remaining(), 400);

    assert_eq!(requests.release(USER, at(1), "request-7").effect.live(), Some(true));
    assert_eq!(
        requests.release(USER, at(1), "request-7").effect.live(),
        Some(false),
        "twice is once"
    );
    assert!(requests.acquire(USER, at(1), "one-more").decision.is_allowed());
    assert!(!requests.acquire(USER, at(1), "and-another").decision.is_allowed());
}

#[test]
fn a_lost_request_frees_its_place_after_60_seconds() {
    let mut requests = busy();
    for request in 0..99 {
        assert_eq!(
            requests.release(USER, at(1), &format!("request-{request}")).effect.live(),
            Some(true)
        );
    }
    // the machine with the last request dies, and another machine fills up the limit
    for request in 0..99 {
        requests.acquire(USER, at(30 * SECOND), &format!("later-{request}"));
    }
    let refused = requests.acquire(USER, at(30 * SECOND), "one-more").decision;
    assert_eq!((refused.is_allowed(), refused.retry_after()), (false, Micros(30 * SECOND)));
    assert!(!requests.acquire(USER, at(MINUTE - 1), "one-more").decision.is_allowed());
    assert!(requests.acquire(USER, at(MINUTE), "one-more").decision.is_allowed());
}

#[test]
fn a_request_that_takes_longer_is_renewed_and_counts() {
    let mut requests = busy();
    for request in 0..100 {
        let name = format!("request-{request}");
        assert_eq!(requests.renew(USER, at(50 * SECOND), &name).effect.live(), Some(true));
    }
    // the published system would forget all of them and let a hundred more begin
    assert!(!requests.acquire(USER, at(61 * SECOND), "one-more").decision.is_allowed());
    assert_eq!(requests.release(USER, at(61 * SECOND), "request-0").effect.live(), Some(true));
    assert!(requests.acquire(USER, at(61 * SECOND), "one-more").decision.is_allowed());
}

#[test]
fn a_user_who_never_comes_again_leaves_no_state_behind() {
    let mut requests = busy();
    assert_eq!((requests.states_left(at(MINUTE - 1)), requests.states_left(at(MINUTE))), (1, 0));
}

fn check(lease: &str) -> Value {
    json!({ "policy": "requests", "key": USER, "lease": lease })
}

pub fn requests_are_limited_over_http(served: &Served) {
    let checks: Vec<_> = (0..101).map(|request| check(&format!("request-{request}"))).collect();
    let decisions = batch(served, &checks);
    let (last, first) = decisions.split_last().unwrap();
    assert!(first.iter().all(|decision| decision["allowed"] == true), "{first:?}");
    assert_eq!((&last["allowed"], number(last, "retry_after_us")), (&json!(false), MINUTE));
    let limits = &last["limits"];
    assert_eq!((&limits[0]["allowed"], &limits[0]["remaining"]), (&json!(true), &json!(400)));
    assert_eq!((&limits[1]["allowed"], &limits[1]["name"]), (&json!(false), &json!("concurrent")));

    let release = || served.api.delete(&format!("/v1/leases/request-7?policy=requests&key={USER}"));
    assert_eq!((release().get("live"), release().get("live")), (json!(true), json!(false)));
    let unnamed = json!({ "policy": "requests", "key": USER }).to_string();
    let acquired = served.api.post("/v1/leases", &unnamed);
    assert_eq!(acquired.get("allowed"), true, "{acquired:?}");
    assert_eq!(
        acquired.get("lease").as_str().unwrap().len(),
        32,
        "a name has 128 bits, and not 32"
    );
    let quotas = "\"rate\";q=500;w=5, \"concurrent\";q=100;qu=\"concurrent-requests\"";
    assert_eq!(acquired.header("ratelimit-policy"), Some(quotas));
    let refused = served.api.post("/v1/leases", &unnamed);
    assert_eq!((refused.status, refused.get("allowed")), (200, json!(false)));
    assert_eq!(refused.get("limits")[1]["allowed"], false);
    assert!(refused.header("retry-after").is_some());
    let renewed = served.api.put("/v1/leases/request-8", &unnamed);
    assert_eq!(renewed.get("live"), true, "{renewed:?}");
}

pub fn an_expensive_request_gives_units_back_over_http(served: &Served) {
    let body = json!({ "policy": "requests", "key": USER, "lease": "export", "cost": 300 });
    let taken = served.api.post("/v1/leases", body.to_string());
    assert_eq!((taken.get("allowed"), taken.get("remaining")), (json!(true), json!(200)));
    let unused = json!({ "policy": "requests", "key": USER, "units": 200 });
    let refunded = served.api.post("/v1/refund", unused.to_string());
    // the state is as if 100 had been taken at once, and one unit comes back every 10 ms
    let span = number_of(&refunded, "at_us") - number_of(&taken, "at_us");
    let back = span / (10 * MILLISECOND);
    let limits = refunded.get("limits");
    assert_eq!(number(&limits[0], "remaining"), (400 + back).min(500), "{refunded:?}");
    assert_eq!(number(&limits[1], "remaining"), 99, "the request is still under way");
}

#[test]
fn requests_pass_when_redis_fails_and_the_answer_says_so() {
    let mut served = redis(&POLICIES);
    assert_eq!(served.api.post("/v1/leases", check("before").to_string()).get("allowed"), true);
    served.stop_redis();
    for policy in ["requests", "fleet"] {
        let body = json!({ "policy": policy, "key": USER }).to_string();
        let passed = served.api.post("/v1/leases", body);
        assert_eq!((passed.status, passed.get("allowed")), (200, json!(true)), "{passed:?}");
        assert!(passed.get("degraded").is_string(), "{passed:?}");
    }
    let gate = served.api.get("/v1/gate?policy=worker&key=machine-7&class=test_mode", &[]);
    assert_eq!(gate.status, 204, "{gate:?}");
    let push = served.api.get("/v1/gate?policy=push&key=teacher:42", &[]);
    assert_eq!(push.status, 503, "ClassDojo's middleware answers with an error");
}
