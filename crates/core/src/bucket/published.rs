//! The cases of a token bucket that many rely on: Go's golang.org/x/time/rate (`rate_test.go`, The
//! Go Authors). Their inputs and outcomes, in this limiter's terms; times are in steps of 100 ms,
//! and tokens come back at 10 per second, one a step.
//!
//! Where Tidegate differs it does so on purpose, and the case says how:
//! - There, a reservation lets the level fall below zero and names the time to act. Here it is
//!   refused, and `retry_after` names the time to come back. Nobody queues, so who never comes
//!   back holds up nobody.
//! - There, a clock that goes back moves the bucket back, and the same time flows in twice. Here
//!   the bucket stays at the newest time.
//! - There, cancelling gives back what no later reservation counts on. Here there are none, and a
//!   refund gives back what the caller says it has not used.

use std::vec::Vec;

use super::{Config, State};
use crate::window::Refund;
use crate::{Micros, Rate, RateLimiter, Timestamp};

/// One step, the time in which a token comes back.
const STEP: u64 = 100_000;

struct Bucket {
    config: Config,
    state: State,
}

fn bucket(capacity: u64) -> Bucket {
    let rate = Rate::new(10, Micros::SECOND).unwrap();
    Bucket { config: Config::new(capacity, rate).unwrap(), state: State::default() }
}

fn at(step: u64) -> Timestamp {
    Timestamp(1_700_000_000_000_000 + step * STEP)
}

impl Bucket {
    /// Each row: step, tokens before, cost, whether it passes. A cost that never can is an error.
    fn check(&mut self, rows: &[(u64, u64, u64, bool)]) {
        for &(step, tokens, cost, passes) in rows {
            let before = self.config.peek(&self.state, at(step), 0).unwrap();
            assert_eq!(before.remaining(), tokens, "before {cost} at {step}");
            let decided = self.config.decide(&mut self.state, at(step), cost);
            assert_eq!(decided.is_ok_and(|d| d.is_allowed()), passes, "{cost} at {step}");
            assert_eq!(decided.is_err(), cost > self.config.capacity());
        }
    }

    /// The step at which a caller passes who asks at `step` and comes back when it is told to;
    /// none if its cost never passes.
    fn passes_at(&mut self, step: u64, cost: u64) -> Option<u64> {
        let refused = self.config.decide(&mut self.state, at(step), cost).ok()?;
        let come_back = self.state.newest().saturating_add(refused.retry_after());
        if !refused.is_allowed() {
            assert!(self.config.decide(&mut self.state, come_back, cost).unwrap().is_allowed());
        }
        Some((come_back.0 - at(0).0) / STEP)
    }

    fn refund(&mut self, cost: u64) {
        self.config.refund(&mut self.state, Refund { granted_at: Timestamp(0), cost });
    }
}

#[test]
fn limiter_burst_1() {
    bucket(1).check(&[
        (0, 1, 1, true),
        (0, 0, 1, false),
        (0, 0, 1, false),
        (1, 1, 1, true),
        (1, 0, 1, false),
        (1, 0, 1, false),
        (2, 1, 2, false),
        (2, 1, 1, true),
        (2, 0, 1, false),
    ]);
}

#[test]
fn limiter_burst_3() {
    bucket(3).check(&[
        (0, 3, 2, true),
        (0, 1, 2, false),
        (0, 1, 1, true),
        (0, 0, 1, false),
        (1, 1, 4, false),
        (2, 2, 1, true),
        (3, 2, 1, true),
        (4, 2, 1, true),
        (4, 1, 1, true),
        (4, 0, 1, false),
        (4, 0, 1, false),
        (9, 3, 3, true),
        (9, 0, 0, true),
    ]);
}

#[test]
fn limiter_jump_backwards() {
    bucket(3).check(&[
        (1, 3, 1, true),
        (0, 2, 1, true),
        (0, 1, 1, true),
        (0, 0, 1, false),
        (0, 0, 1, false),
        (1, 0, 1, false), // there a token has come in since the clock went back to 0
        (1, 0, 1, false),
        (2, 1, 1, true),
        (2, 0, 1, false),
        (2, 0, 1, false),
    ]);
}

#[test]
fn no_truncation_errors() {
    // 0.769230769… per second, exactly 10 in 13 s
    let config = Config::new(1, Rate::new(10, Micros(13_000_000)).unwrap()).unwrap();
    let mut state = State::default();
    assert!(config.decide(&mut state, at(0), 1).unwrap().is_allowed());
    let refused = config.decide(&mut state, at(0), 1).unwrap();
    assert_eq!(refused.retry_after(), Micros(1_300_000));
}

#[test]
fn simultaneous_requests() {
    let config = Config::new(5, Rate::new(1, Micros::SECOND).unwrap()).unwrap();
    let mut state = State::default();
    let passed: Vec<bool> =
        (0..15).map(|_| config.decide(&mut state, at(0), 1).unwrap().is_allowed()).collect();
    assert_eq!(passed.iter().filter(|&&passed| passed).count(), 5);
}

#[test]
fn long_running_requests_per_second() {
    // 500 per second for 5 s, 100 at once and 100 per second let through: there within 0.1 %
    let config = Config::new(100, Rate::new(100, Micros::SECOND).unwrap()).unwrap();
    let mut state = State::default();
    let times = (0..2_500).map(|i| at(0).saturating_add(Micros(i * 2_000)));
    let passed = times.filter(|&now| config.decide(&mut state, now, 1).unwrap().is_allowed());
    assert_eq!(passed.count(), 100 + 499); // the last comes at 4.998 s: 499.8 have flowed in
}

#[test]
fn zero_limit() {
    assert!(Rate::new(0, Micros::SECOND).is_err(), "there it passes once and never again");
}

#[test]
fn simple_reserve() {
    let mut bucket = bucket(2);
    assert_eq!(bucket.passes_at(0, 2), Some(0));
    assert_eq!(bucket.passes_at(0, 2), Some(2));
    assert_eq!(bucket.passes_at(3, 2), Some(4));
}

#[test]
fn mix() {
    let mut bucket = bucket(2);
    assert_eq!(bucket.passes_at(0, 3), None);
    assert_eq!(bucket.passes_at(0, 2), Some(0));
    bucket.check(&[(1, 1, 2, false)]);
    assert_eq!(bucket.passes_at(1, 2), Some(2));
    // there −1 tokens at 1, as those of 2 are taken already; here 1 is over
    bucket.check(&[(1, 0, 1, false), (3, 1, 1, true)]);
}

#[test]
fn reserve_jump_back() {
    let mut bucket = bucket(2);
    assert_eq!(bucket.passes_at(1, 2), Some(1));
    assert_eq!(bucket.passes_at(0, 1), Some(2)); // there at 1, which its own test calls a violation
    assert_eq!(bucket.passes_at(2, 2), Some(4)); // and so 3
}

#[test]
fn reserve_jump_back_and_cancel() {
    let mut bucket = bucket(2);
    assert_eq!(bucket.passes_at(1, 2), Some(1));
    assert_eq!(bucket.passes_at(1, 2), Some(3));
    assert_eq!(bucket.passes_at(1, 1), Some(4));
    bucket.refund(2);
    // there at 4 too, asked for at 1, which its own test calls a violation: 1 had come back. Here
    // all 2 do, and 2 + 1 + 2 were used of the 2 + 3 to be had
    assert_eq!(bucket.passes_at(4, 2), Some(4));
    bucket.check(&[(4, 0, 1, false)]);
}

#[test]
fn cancel_what_never_was_granted() {
    let mut bucket = bucket(2);
    assert_eq!(bucket.passes_at(0, 2), Some(0));
    assert_eq!(bucket.passes_at(0, 3), None); // nothing was taken, so nothing comes back
    assert_eq!(bucket.passes_at(0, 2), Some(2));
}

#[test]
fn cancel_last() {
    let mut bucket = bucket(2);
    assert_eq!(bucket.passes_at(0, 2), Some(0));
    bucket.check(&[(0, 0, 2, false)]); // to cancel is not to come back
    assert_eq!(bucket.passes_at(1, 2), Some(2));
}

#[test]
fn cancel_too_late() {
    for (given_back, passes_at) in [
        (0, 4), // there, as the time to act is over
        (2, 3), // here, the caller says that it has not used them
    ] {
        let mut bucket = bucket(2);
        assert_eq!(bucket.passes_at(0, 2), Some(0));
        assert_eq!(bucket.passes_at(0, 2), Some(2));
        bucket.refund(given_back);
        assert_eq!(bucket.passes_at(3, 2), Some(passes_at));
    }
}

#[test]
fn cancel_0_tokens() {
    let mut bucket = bucket(2);
    assert_eq!(bucket.passes_at(0, 2), Some(0));
    bucket.check(&[(0, 0, 1, false)]);
    // there at 2 and 3: who queued behind the cancelled one stays there
    assert_eq!(bucket.passes_at(0, 1), Some(1));
    assert_eq!(bucket.passes_at(0, 1), Some(2));
}

#[test]
fn cancel_1_token() {
    let mut bucket = bucket(2);
    assert_eq!(bucket.passes_at(0, 2), Some(0));
    assert_eq!(bucket.passes_at(0, 2), Some(2));
    bucket.refund(2);
    // there at 3 and 4: one of the two comes back, as the other is counted on
    assert_eq!(bucket.passes_at(0, 1), Some(2));
    assert_eq!(bucket.passes_at(2, 2), Some(3));
}

#[test]
fn cancel_multi() {
    let mut bucket = bucket(4);
    assert_eq!(bucket.passes_at(0, 4), Some(0));
    assert_eq!(bucket.passes_at(0, 3), Some(3));
    assert_eq!(bucket.passes_at(0, 1), Some(4));
    assert_eq!(bucket.passes_at(0, 1), Some(5));
    bucket.refund(1);
    bucket.refund(3);
    // there at 5 as well, although cancelled at 1: two of the three came back
    assert_eq!(bucket.passes_at(1, 3), Some(5));
    bucket.check(&[(5, 1, 1, true), (5, 0, 1, false)]);
}
