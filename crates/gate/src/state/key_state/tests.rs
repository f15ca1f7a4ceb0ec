use std::vec;
use std::vec::Vec;

use tidegate_core::lease::Id;
use tidegate_core::{Micros, Timestamp};

use super::KeyState;
use crate::decide::{Limits, Verdict};
use crate::limit::{Budget, Operation, Request};
use crate::policy::Policy;

const LIMITS: &str = "limits = [
  { algorithm = 'fixed_window', limit = 5, period = '1m' },
  { algorithm = 'budget', most = 5, time = '1m' },
  { algorithm = 'penalty', refusals = 2, within = '1m', duration = '1m' },
]";

struct Key {
    limits: Limits,
    state: KeyState,
}

impl Key {
    fn blocked() -> Self {
        let limits = Policy::parse("p", LIMITS).unwrap().limits().clone();
        let mut state = KeyState::default();
        limits.records().iter().for_each(|record| state.add(record, None));
        let mut key = Self { limits, state };
        assert!(!key.ask(Operation::Block(Micros::SECOND)).decision.is_allowed());
        key
    }

    fn ask(&mut self, operation: Operation) -> Verdict {
        self.ask_at(7, operation)
    }

    fn ask_at(&mut self, now: u64, operation: Operation) -> Verdict {
        self.state.operate(&self.limits, Timestamp(now), &operation).unwrap()
    }
}

#[test]
fn a_blocked_key_answers_what_asks_for_nothing_new() {
    let holder = Id([1, 0]);
    let budget = Operation::Budget(Budget { holder, wants: 3, unspent: None });
    for (operation, allowed) in [
        (Operation::from(1), false),
        (Operation::from(0), false),
        (Operation::Peek(Request::of(1)), false),
        (Operation::Refund(1), true),
        (Operation::Charge(1), true),
        (budget, true),
        (Operation::Block(Micros::SECOND), false),
        (Operation::Block(Micros::ZERO), true),
    ] {
        let verdict = Key::blocked().ask(operation);
        assert_eq!(verdict.decision.is_allowed(), allowed, "{operation:?}");
        let is_over = operation == Operation::Block(Micros::ZERO);
        assert_eq!(verdict.decision.remaining(), if is_over { 5 } else { 0 }, "{operation:?}");
        let lent = verdict.effect.allowance().map(|allowance| allowance.left);
        assert_eq!(lent, (operation == budget).then_some(0));
    }
}

#[test]
fn a_request_for_nothing_is_no_refusal_that_counts() {
    let mut key = Key::blocked();
    let before = key.state.words.clone();
    let changed: Vec<bool> = [0, 1]
        .map(|cost| {
            let _ = key.ask(Operation::from(cost));
            key.state.words != before
        })
        .into();
    assert_eq!(changed, vec![false, true]);
}

#[test]
fn a_block_of_no_span_leaves_no_block() {
    let mut key = Key::blocked();
    let _ = key.ask(Operation::Block(Micros::ZERO));
    assert_eq!(key.state.block, None);
}

#[test]
fn a_block_goes_by_the_clock_of_the_key() {
    const MINUTE: u64 = 60_000_000;
    let block = Operation::Block(Micros(3_000_000));
    let ask = |before: &[(u64, Operation)], now| {
        let mut key = Key::blocked();
        let _ = key.ask(Operation::Block(Micros::ZERO));
        before.iter().for_each(|(now, operation)| drop(key.ask_at(MINUTE + now, *operation)));
        let verdict = key.ask_at(MINUTE + now, Operation::from(1));
        let at = verdict.at.0 - MINUTE;
        (at, verdict.decision.is_allowed(), verdict.decision.retry_after().0)
    };
    let check = Operation::from(1);
    let checked_and_blocked = [(5_000_000, check), (5_000_000, block)];
    assert_eq!(ask(&checked_and_blocked, 1_900_000), (5_000_000, false, 3_000_000));
    assert_eq!(ask(&checked_and_blocked, 8_000_000), (8_000_000, true, 0));
    // the block is the first that the key sees
    assert_eq!(ask(&[(5_000_000, block)], 1_900_000), (1_900_000, false, 6_100_000));
    // the block comes late: it begins, as everything, at the newest time
    let late = [(5_000_000, check), (4_000_000, block)];
    assert_eq!(ask(&late, 7_999_999), (7_999_999, false, 1));
}
