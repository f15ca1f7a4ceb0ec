//! senderista, "A Distributed Rate Limiter in Go": the sliding window of subintervals.
//!
//! | the source has | here |
//! |---|---|
//! | counters of a second, an interval of a minute; in its example 100 with counters of 5 s | `api`: 60 segments; or 12 |
//! | the requests of an interval may come at any time in it, even all at once | 1,000 at one microsecond |
//! | weighting the trailing counter by its overlap is closer on average, with errors in both directions | the same estimate, in whole numbers |
//! | constant space, and no state once the interval is over | 64 words, then none |
//!
//! What the author was missing: the error of the estimate, which is measured here against an exact count.
//! Clients learn of each other's requests only at the next second, so each may let the whole limit through in
//! between; here all clients share one count.

use fastrand::Rng;
use serde_json::json;
use tidegate_gate::{Grant, Micros, Operation};
use tidegate_tests::Served;

use crate::{MINUTE, SECOND, START, System, assert_refused_by, at, number_of};

const RESOURCE: &str = "/articles";
const LIMIT: u64 = 1_000;

#[test]
fn the_whole_limit_may_come_at_once_or_evenly() {
    let mut at_once = System::of("api");
    for request in 0..LIMIT {
        assert!(at_once.passes(RESOURCE, at(7), 1), "{request}");
    }
    let refused = at_once.operate(RESOURCE, at(7), 1).decision;
    // a thousandth of the trailing second must have left the window
    assert_eq!(refused.retry_after(), Micros(MINUTE + SECOND / LIMIT - 7));
    assert!(!at_once.passes(RESOURCE, at(MINUTE + SECOND / LIMIT - 1), 1));
    assert!(at_once.passes(RESOURCE, at(MINUTE + SECOND / LIMIT), 1));

    let mut evenly = System::of("api");
    for request in 0..10 * LIMIT {
        assert!(
            evenly.passes(RESOURCE, at(request * MINUTE / (LIMIT - 1) + SECOND), 1),
            "{request}"
        );
    }
}

#[test]
fn its_example_has_counters_of_five_seconds() {
    let mut api = System::edited("api", "1_000, period = \"1m\", segments = 60", EXAMPLE);
    assert!(api.passes(RESOURCE, at(4 * SECOND), 100));
    let refused = api.operate(RESOURCE, at(30 * SECOND), 1).decision;
    assert_eq!(
        refused.retry_after(),
        Micros(30 * SECOND + 50_000),
        "a hundredth of 5 s has left the window"
    );
}

const EXAMPLE: &str = "100, period = \"1m\", segments = 12";

#[test]
fn a_state_does_not_grow_with_requests_and_is_gone_after_the_interval() {
    let mut api = System::of("api");
    assert_eq!(api.policy.limits().words(), 64);
    for request in 0..600 {
        api.passes(RESOURCE, at(request * 100_000), 1);
    }
    assert_eq!(api.states(), 1);
    assert_eq!(api.states_left(at(2 * MINUTE + SECOND)), 0);
}

/// The estimate counts the trailing second by the part that the window covers. It is worst for loads that lie
/// entirely inside that part, or entirely outside it.
#[test]
fn the_estimate_undercounts_and_overcounts_by_what_the_trailing_second_had() {
    let half = MINUTE + SECOND / 2;
    let mut late = System::of("api");
    assert!(late.passes(RESOURCE, at(SECOND - 1), LIMIT));
    assert_eq!(late.operate(RESOURCE, at(half), 0).decision.remaining(), LIMIT / 2);
    assert!(late.passes(RESOURCE, at(half), LIMIT / 2), "1,500 in less than a minute");

    let mut early = System::of("api");
    assert!(early.passes(RESOURCE, at(0), LIMIT));
    assert!(
        !early.passes(RESOURCE, at(half), LIMIT / 2 + 1),
        "refused, with no grant in the last minute"
    );
}

/// Every grant, counted one by one.
#[derive(Default)]
struct Exact(Vec<u64>);

impl Exact {
    /// The number of grants in the minute up to now.
    fn count(&self, now: u64) -> u64 {
        let recent = self.0.iter().rev().take_while(|grant| now - **grant < MINUTE);
        recent.count().try_into().unwrap()
    }

    /// The number of grants in the second that lies `before` seconds before the current one.
    fn in_second(&self, now: u64, before: u64) -> u64 {
        let Some(second) = (now / SECOND).checked_sub(before) else { return 0 };
        let recent = self.0.iter().rev().skip_while(|grant| **grant / SECOND > second);
        recent.take_while(|grant| **grant / SECOND == second).count().try_into().unwrap()
    }

    /// The estimate of 60 counters without a trailing one.
    fn by_plain_counters(&self, now: u64) -> u64 {
        let first = (now / SECOND).saturating_sub(59);
        let recent = self.0.iter().rev().take_while(|grant| **grant / SECOND >= first);
        recent.count().try_into().unwrap()
    }
}

/// Ten minutes at one and a half times the limit, with independent times.
#[test]
fn under_an_overload_the_estimate_is_off_by_no_more_than_the_trailing_second() {
    let mut api = System::of("api");
    let mut exact = Exact::default();
    let mut rng = Rng::with_seed(1);
    let mut times: Vec<u64> = (0..15_000).map(|_| rng.u64(..10 * MINUTE)).collect();
    times.sort_unstable();
    let (mut off, mut off_without_trailing, mut worst_minute) = (0, 0, 0);
    for now in times {
        let estimate = LIMIT - api.operate(RESOURCE, at(now), 0).decision.remaining();
        let counted = exact.count(now);
        let error = estimate.abs_diff(counted);
        assert!(error <= exact.in_second(now, 60), "{estimate} for {counted} at {now}");
        off += error;
        off_without_trailing += exact.by_plain_counters(now).abs_diff(counted);
        let passed = api.passes(RESOURCE, at(now), 1);
        assert_eq!(passed, estimate < LIMIT, "the estimate decides");
        if passed {
            exact.0.push(now);
            worst_minute = worst_minute.max(counted + 1);
        }
    }
    assert_eq!(worst_minute, WORST_MINUTE);
    assert!(off * 4 < off_without_trailing, "{off}, {off_without_trailing} without a trailing one");
    let granted = exact.0.len();
    assert!((9_950..=10_050).contains(&granted), "{granted} in ten minutes");
}

/// The most grants in any minute of the load above: 0.6 % more than the limit.
const WORST_MINUTE: u64 = 1_006;

#[test]
fn unneeded_units_come_back_to_their_second() {
    let mut api = System::of("api");
    assert!(api.passes(RESOURCE, at(0), 400));
    let refund = Operation::RefundOf(Grant { at: at(0), units: 400 }, 250);
    assert_eq!(api.operate(RESOURCE, at(30 * SECOND), refund).decision.remaining(), 850);
    let later = api.operate(RESOURCE, at(MINUTE + SECOND / 2), 0).decision;
    assert_eq!(later.remaining(), LIMIT - 75, "half of the actual cost");
}

pub fn a_thousand_pass_in_a_minute_over_http(served: &Served) {
    let check = |cost: u64| served.api.check("api", RESOURCE, cost, None);
    let never = check(LIMIT + 1);
    assert_eq!(
        (never.status, never.get("type")),
        (400, json!("urn:tidegate:cost-exceeds-capacity"))
    );
    let all = check(LIMIT);
    assert_eq!((all.get("allowed"), number_of(&all, "remaining")), (json!(true), 0));
    assert_eq!(all.header("ratelimit-policy"), Some("\"api\";q=1000;w=60"));
    let refused = check(1);
    assert_eq!(refused.get("allowed"), false, "{refused:?}");
    let second = number_of(&all, "at_us") / SECOND * SECOND;
    let passes = number_of(&refused, "at_us") + number_of(&refused, "retry_after_us");
    assert_eq!(
        passes,
        second + MINUTE + SECOND / LIMIT,
        "a thousandth of that second has left the window"
    );
    let gate = served.api.get("/v1/gate?policy=api&key=/articles", &[]);
    assert_refused_by(&gate, 429, "quota-exceeded", "api");
}

/// In the published system each of three clients would let the whole limit through within a second.
pub fn clients_share_one_window(served: &Served) {
    let ask = || {
        let replies = (0..10).map(|_| served.api.check("api", RESOURCE, 100, None));
        let granted = replies.filter(|reply| reply.get("allowed") == true);
        granted.map(|reply| number_of(&reply, "at_us")).collect::<Vec<u64>>()
    };
    let mut granted: Vec<u64> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    granted.sort_unstable();
    let within = granted.iter().filter(|time| **time < granted[0] + MINUTE - SECOND).count();
    assert_eq!(within, 10, "the number of clients does not matter");
    assert!(granted[0] > START, "the server decides at its own time");
}
