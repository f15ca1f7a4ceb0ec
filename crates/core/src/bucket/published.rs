//! The test cases of a widely used token bucket, Go's golang.org/x/time/rate (`rate_test.go`, The
//! Go Authors), with their inputs and outcomes in this limiter's terms. Times are in steps of
//! 100 ms, and tokens come back at 10 per second, one per step.
//!
//! Tidegate differs on purpose in three ways. Each case that differs says how:
//! - In Go, a reservation lets the level fall below zero and names the time to act. Tidegate
//!   refuses the request, and `retry_after` names the time to try again. Requests do not queue, so
//!   a caller that never tries again holds up no other caller.
//! - In Go, a clock that goes back moves the bucket back, and tokens flow in twice for the same
//!   time. In Tidegate the bucket stays at the newest time.
//! - In Go, a cancellation gives back the tokens that no later reservation counts on. Tidegate has
//!   no reservations, and a refund gives back the tokens that the caller did not use.

use std::vec::Vec;

use super::{Config, State};
use crate::window::Refund;
use crate::{Micros, Rate, RateLimiter, Timestamp};

/// One step: the time in which a token comes back.
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
    /// Each row is (step, tokens before, cost, whether the request passes). A cost above the
    /// capacity is an error.
    fn check(&mut self, rows: &[(u64, u64, u64, bool)]) {
        for &(step, tokens, cost, passes) in rows {
            let before = self.config.peek(&self.state, at(step), 0).unwrap();
            assert_eq!(before.remaining(), tokens, "before {cost} at {step}");
            let decided = self.config.decide(&mut self.state, at(step), cost);
            assert_eq!(decided.is_ok_and(|d| d.is_allowed()), passes, "{cost} at {step}");
            assert_eq!(decided.is_err(), cost > self.config.capacity());
        }
    }

    /// The step at which a caller passes if it asks at `step` and again after `retry_after`. `None`
    /// if its cost can never pass.
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
        (1, 0, 1, false), // in Go a token has come in since the clock went back to 0
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
    // 500 requests per second for 5 s; 100 at once and 100 per second pass, in Go within 0.1 %
    let config = Config::new(100, Rate::new(100, Micros::SECOND).unwrap()).unwrap();
    let mut state = State::default();
    let times = (0..2_500).map(|i| at(0).saturating_add(Micros(i * 2_000)));
    let passed = times.filter(|&now| config.decide(&mut state, now, 1).unwrap().is_allowed());
    assert_eq!(passed.count(), 100 + 499); // 499.8 have flowed in at the last request, at 4.998 s
}

#[test]
fn zero_limit() {
    assert!(Rate::new(0, Micros::SECOND).is_err(), "in Go a request passes once and never again");
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
    // in Go the level is −1 at step 1, because the tokens of step 2 are reserved; here 1 is left
    bucket.check(&[(1, 0, 1, false), (3, 1, 1, true)]);
}

#[test]
fn reserve_jump_back() {
    let mut bucket = bucket(2);
    assert_eq!(bucket.passes_at(1, 2), Some(1));
    assert_eq!(bucket.passes_at(0, 1), Some(2)); // in Go at 1: its test calls that a violation
    assert_eq!(bucket.passes_at(2, 2), Some(4)); // in Go therefore at 3
}

#[test]
fn reserve_jump_back_and_cancel() {
    let mut bucket = bucket(2);
    assert_eq!(bucket.passes_at(1, 2), Some(1));
    assert_eq!(bucket.passes_at(1, 2), Some(3));
    assert_eq!(bucket.passes_at(1, 1), Some(4));
    bucket.refund(2);
    // Go's caller asks at 1 and passes at 4 too, but only 1 token had come back: its test calls
    // that a violation. Here both tokens come back, and 2 + 1 + 2 of the available 2 + 3 are used
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
    bucket.check(&[(0, 0, 2, false)]); // a caller cancels by not trying again
    assert_eq!(bucket.passes_at(1, 2), Some(2));
}

#[test]
fn cancel_too_late() {
    for (given_back, passes_at) in [
        (0, 4), // in Go, because the time to act is over
        (2, 3), // here, because the caller did not use the tokens
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
    // in Go at 2 and 3: a reservation behind a cancelled one keeps its place
    assert_eq!(bucket.passes_at(0, 1), Some(1));
    assert_eq!(bucket.passes_at(0, 1), Some(2));
}

#[test]
fn cancel_1_token() {
    let mut bucket = bucket(2);
    assert_eq!(bucket.passes_at(0, 2), Some(0));
    assert_eq!(bucket.passes_at(0, 2), Some(2));
    bucket.refund(2);
    // in Go at 3 and 4: one of the two comes back, because a later reservation counts on the other
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
    // in Go at 5 as well, although cancelled at 1: two of the three came back
    assert_eq!(bucket.passes_at(1, 3), Some(5));
    bucket.check(&[(5, 1, 1, true), (5, 0, 1, false)]);
}
