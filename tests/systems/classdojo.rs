//! ClassDojo, "Better Rate Limiting With Redis Sorted Sets".
//!
//! | the source has | here |
//! |---|---|
//! | a rolling window: not ten at 0:59 and ten more at 1:01 | `push`, exactly, by the microsecond |
//! | ten a minute and two in 3 s by one limiter; a shortest time between two messages | both rates and 200 ms in one limit |
//! | a refused action counts, so a caller who never stops never passes | `count_denied = true`, a choice |
//! | how long to wait, in ms | the first microsecond |
//!
//! What the authors were missing: refused actions always count. A set whose members are times has only one
//! member for two actions at one microsecond, so dozens of workers may pass at once, which the set was to
//! prevent.

use std::collections::BTreeSet;

use serde_json::json;
use tidegate_gate::Micros;
use tidegate_tests::Served;

use crate::{MINUTE, SECOND, System, assert_refused_by, at, batch, number, number_of};

const TEACHER: &str = "teacher:42";
const MILLISECOND: u64 = 1_000;

/// The same policy without counting refused actions.
fn forgiving() -> System {
    System::edited("push", "count_denied = true", "count_denied = false")
}

/// The times at which a caller passes who asks at a fixed interval.
fn passed(system: &mut System, every: u64, end: u64) -> Vec<u64> {
    let mut times: Vec<u64> = (0..end / every).map(|attempt| attempt * every).collect();
    times.retain(|time| system.passes(TEACHER, at(*time), 1));
    times
}

/// Asserts the rates by counting one by one: the most in any rolling span, and the shortest distance.
fn assert_within_the_rates(times: &[u64]) {
    for (span, most) in [(MINUTE, 10), (3 * SECOND, 2), (200 * MILLISECOND, 1)] {
        for (last, time) in times.iter().enumerate() {
            let within = times[..=last].iter().filter(|one| time - **one < span).count();
            assert!(within <= most, "{within} in the {span} us before {time}");
        }
    }
}

#[test]
fn not_ten_before_the_minute_and_ten_after_it() {
    let mut push = System::of("push");
    for message in 0..10 {
        // the last of the ten comes at 0:59
        assert!(push.passes(TEACHER, at(45_500 * MILLISECOND + message * 1_500 * MILLISECOND), 1));
    }
    let refused = push.operate(TEACHER, at(61 * SECOND), 1).decision;
    assert!(!refused.is_allowed());
    // the refused action counts: of the eleven, the first two must be a minute old
    let passes = 47 * SECOND + MINUTE;
    assert_eq!(refused.retry_after(), Micros(passes - 61 * SECOND));
    assert!(push.passes(TEACHER, at(passes), 1));
}

#[test]
fn two_in_three_seconds_and_none_closer_than_200_ms() {
    let mut push = System::of("push");
    assert!(push.passes(TEACHER, at(0), 1));
    let close = push.clone().operate(TEACHER, at(200 * MILLISECOND - 1), 1).decision;
    assert!(!close.is_allowed());
    assert!(push.passes(TEACHER, at(200 * MILLISECOND), 1));
    let third = push.operate(TEACHER, at(SECOND), 1).decision;
    assert!(!third.is_allowed());
    // the refused action counts: two of the three must have left the window
    let passes = 3_200 * MILLISECOND;
    assert_eq!(third.retry_after(), Micros(passes - SECOND));
    assert!(!push.clone().passes(TEACHER, at(passes - 1), 1));
    assert!(push.passes(TEACHER, at(passes), 1));
}

#[test]
fn a_caller_within_the_rate_is_never_refused() {
    assert_eq!(passed(&mut System::of("push"), 6 * SECOND, 10 * MINUTE).len(), 100);
}

#[test]
fn a_caller_who_never_stops_never_passes_again() {
    for (every, first_few) in [(100 * MILLISECOND, 1), (SECOND, 2), (2 * SECOND, 10)] {
        let mut push = System::of("push");
        let times = passed(&mut push, every, 10 * MINUTE);
        assert_eq!(times.len(), first_few, "every {every} us");
        assert_within_the_rates(&times);

        let last = push.operate(TEACHER, at(10 * MINUTE), 1).decision;
        let stopped = 10 * MINUTE + last.retry_after().0;
        assert!(!push.clone().passes(TEACHER, at(stopped - 1), 1));
        assert!(push.passes(TEACHER, at(stopped), 1), "a caller who pauses for this long passes");
    }
}

#[test]
fn a_caller_who_never_stops_passes_at_the_rate_if_refusals_do_not_count() {
    for every in [100 * MILLISECOND, SECOND, 2 * SECOND] {
        let times = passed(&mut forgiving(), every, 10 * MINUTE);
        assert_eq!(times.len(), 100, "every {every} us");
        assert_within_the_rates(&times);
    }
}

#[test]
fn two_actions_at_one_microsecond_count_as_two() {
    let workers = 12;
    // the published system: the members of the set are the times
    let mut set = BTreeSet::new();
    let passes = |_: &usize| {
        let before = set.len();
        set.insert(at(0).0);
        before < 2
    };
    assert_eq!((0..workers).filter(passes).count(), workers);

    let mut push = System::edited("push", "min_gap = \"200ms\", ", "");
    let passes = |_: &usize| push.passes(TEACHER, at(0), 1);
    assert_eq!((0..workers).filter(passes).count(), 2);
}

/// The example of their module: ten in a second, and at least 100 ms between two.
#[test]
fn their_example_limits_logins_by_the_second() {
    let rates = "rates = [\"10/m\", \"2/3s\"], min_gap = \"200ms\"";
    let mut logins = System::edited("push", rates, "rates = [\"10/s\"], min_gap = \"100ms\"");
    assert_eq!(passed(&mut logins.clone(), 100 * MILLISECOND, MINUTE).len(), 600, "at the rate");
    assert_eq!(passed(&mut logins, 99 * MILLISECOND, MINUTE).len(), 1, "just above the rate");
}

#[test]
fn a_state_is_forgotten_a_minute_after_the_last_attempt() {
    let mut push = System::of("push");
    for attempt in 0..100 {
        push.passes(TEACHER, at(attempt * SECOND), 1);
    }
    let last = 99 * SECOND;
    assert_eq!(
        (push.states_left(at(last + MINUTE - 1)), push.states_left(at(last + MINUTE))),
        (1, 0)
    );
}

/// Whether an action may pass after these attempts, counted one by one.
fn may_pass(attempts: &[u64], now: u64) -> bool {
    let within = |span| attempts.iter().filter(|attempt| now - **attempt < span).count();
    within(MINUTE) < 10 && within(3 * SECOND) < 2 && within(200 * MILLISECOND) < 1
}

/// A limiter that reads the state and changes it later would let several workers pass at once.
pub fn dozens_of_workers_share_one_log_over_http(served: &Served) {
    let ask = || {
        let reply = served.api.check("push", TEACHER, 1, None);
        (reply.get("allowed") == true).then(|| number_of(&reply, "at_us"))
    };
    let mut granted: Vec<u64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..24).map(|_| scope.spawn(ask)).collect();
        workers.into_iter().filter_map(|worker| worker.join().unwrap()).collect()
    });
    granted.sort_unstable();
    assert!(!granted.is_empty(), "the first action passes");
    assert_within_the_rates(&granted);
}

pub fn every_attempt_counts_over_http(served: &Served) {
    let mut attempts = Vec::new();
    let mut granted = 0;
    for _ in 0..40 {
        let reply = served.api.check("push", TEACHER, 1, None);
        let now = number_of(&reply, "at_us");
        let expected = may_pass(&attempts, now);
        assert_eq!(reply.get("allowed"), expected, "after {attempts:?}: {reply:?}");
        granted += usize::from(expected);
        attempts.push(now);
    }
    assert!(granted > 0, "the first attempt passes");

    // of a dozen workers at one time one passes, and the others count until ten are counted
    let check = json!({ "policy": "push", "key": "teacher:7" });
    let decisions = batch(served, &vec![check; 12]);
    let waits: Vec<_> =
        decisions.iter().map(|decision| number(decision, "retry_after_us")).collect();
    assert_eq!(waits, [[0].as_slice(), &[3 * SECOND; 8], &[MINUTE; 3]].concat());
    let gate = served.api.get("/v1/gate?policy=push&key=teacher:7", &[]);
    assert_refused_by(&gate, 429, "quota-exceeded", "push");
    assert!(gate.get("retry_after_us").as_u64().unwrap() <= MINUTE);
    assert_eq!(gate.header("ratelimit-policy"), Some("\"push\";q=2;w=60"));
    assert_eq!(served.api.get("/v1/gate?policy=push&key=teacher:8", &[]).status, 204);
}
