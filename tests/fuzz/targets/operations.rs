//! Any operations at any times on any state that any policy accepts.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::{Corpus, fuzz_target};
use tidegate_fuzz::{Amount, Parameters, policy};
use tidegate_gate::{Decision, Micros, Policy, Timestamp};

#[derive(Arbitrary, Debug)]
struct Input {
    limits: [Parameters; 3],
    operations: Vec<Operation>,
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Decide(Time, Cost),
    Peek(Time, Cost),
    Advance(Time),
    TimeToLive(Time, Cost),
    /// Writes into the state; what no decisions of the policy can have left is undone.
    Foreign([(u8, Amount); 3]),
}

/// From the last time.
#[derive(Arbitrary, Debug)]
enum Time {
    Ahead(Amount),
    Back(Amount),
    To(Amount),
    /// To just before, or at, the moment that the last refusal named.
    Retry {
        early: bool,
    },
}

#[derive(Arbitrary, Debug)]
enum Cost {
    Any(Amount),
    /// As much below the most that can be granted.
    Most(u8),
}

fuzz_target!(|input: Input| -> Corpus {
    let Some(policy) = policy(&input.limits) else { return Corpus::Reject };
    let mut key = Key { words: vec![0; policy.words()], policy, now: 0, retry_at: 0 };
    for operation in &input.operations {
        key.apply(operation);
        assert!(key.policy.accepts(&key.words).is_ok(), "{operation:?} left {:?}", key.words);
        assert!(key.has_one_clock(), "{operation:?} left {:?}", key.words);
    }
    Corpus::Keep
});

struct Key {
    policy: Policy,
    words: Vec<u64>,
    now: u64,
    retry_at: u64,
}

impl Key {
    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Decide(time, cost) => {
                let (now, cost) = (self.at(time), self.cost(cost));
                self.decide(now, cost);
            }
            Operation::Peek(time, cost) => {
                let (now, cost) = (self.at(time), self.cost(cost));
                self.peek(now, cost);
            }
            Operation::Advance(time) => {
                let newest = Timestamp(self.newest());
                let now = self.at(time).taken_after(newest, self.policy.period());
                for (place, range) in self.parts() {
                    self.policy.limits()[place].limit.advance(&mut self.words[range], now);
                }
            }
            Operation::TimeToLive(time, cost) => {
                let (now, cost) = (self.at(time), self.cost(cost));
                self.expires(now, cost);
            }
            Operation::Foreign(writes) => {
                let before = self.words.clone();
                for &(place, amount) in writes {
                    let place = usize::from(place) % self.words.len();
                    self.words[place] = amount.value();
                }
                if self.policy.accepts(&self.words).is_err() || !self.has_one_clock() {
                    self.words = before;
                }
            }
        }
    }

    fn decide(&mut self, now: Timestamp, cost: u64) {
        let before = self.words.clone();
        let decided = self.policy.decide(&mut self.words, now, cost);
        let mut explained = before.clone();
        let verdict = self.policy.decide_and_explain(&mut explained, now, cost);
        assert_eq!((verdict.map(|verdict| verdict.decision), &explained), (decided, &self.words));
        let Ok(decision) = decided else {
            assert!(cost > self.policy.most_at_once());
            assert_eq!(self.words, before, "an error changes nothing");
            return;
        };
        assert!(cost <= self.policy.most_at_once());
        assert!(decision.remaining() <= decision.limit());
        if cost == 0 {
            assert_eq!(self.words, before, "a cost of 0 changes nothing");
            assert!(decision.is_allowed(), "to look is free");
        }
        if let Decision::Deny { remaining, retry_after, .. } = decision {
            let mut peeked = self.words.clone();
            let left = self.policy.decide(&mut peeked, now, 0).map(|peeked| peeked.remaining());
            assert_eq!(left, Ok(remaining), "a refusal consumes nothing");
            self.is_retried_to_the_microsecond(retry_after, cost);
        }
    }

    /// Spans count from the time at which the decision was taken, which is now the newest.
    fn is_retried_to_the_microsecond(&mut self, retry_after: Micros, cost: u64) {
        assert!(retry_after > Micros::ZERO);
        let Some(at) = self.newest().checked_add(retry_after.0) else { return };
        self.retry_at = at;
        let allowed = |at| {
            let mut words = self.words.clone();
            self.policy.decide(&mut words, Timestamp(at), cost).map(|it| it.is_allowed())
        };
        assert_eq!(allowed(at - 1), Ok(false), "{retry_after:?} is too long");
        assert_eq!(allowed(at), Ok(true), "{retry_after:?} is too short");
    }

    /// Each limit's own peek says what its own decision then does.
    fn peek(&self, now: Timestamp, cost: u64) {
        for (place, range) in self.parts() {
            let limit = &self.policy.limits()[place].limit;
            let words = &self.words[range];
            let peeked = limit.peek(words, now, cost);
            let mut decided = words.to_vec();
            assert_eq!(limit.decide(&mut decided, now, cost), peeked);
            assert!(limit.accepts(&decided).is_ok());
        }
    }

    /// A state whose time to live is over and a fresh one cannot be told apart.
    fn expires(&self, now: Timestamp, cost: u64) {
        let span = self.policy.time_to_live(&self.words, now);
        assert!(span <= Micros::MAX);
        let Some(at) = now.0.checked_add(span.0).filter(|_| span < Micros::MAX) else { return };
        let (mut old, mut fresh) = (self.words.clone(), vec![0; self.words.len()]);
        let decided = self.policy.decide(&mut old, Timestamp(at), cost);
        assert_eq!(decided, self.policy.decide(&mut fresh, Timestamp(at), cost));
        if decided.is_ok() && cost > 0 {
            assert_eq!(old, fresh);
        }
    }

    fn at(&mut self, time: &Time) -> Timestamp {
        self.now = match time {
            Time::Ahead(by) => self.now.saturating_add(by.value()),
            Time::Back(by) => self.now.saturating_sub(by.value()),
            Time::To(time) => time.value(),
            Time::Retry { early } => self.retry_at.saturating_sub(u64::from(*early)),
        };
        Timestamp(self.now)
    }

    fn cost(&self, cost: &Cost) -> u64 {
        match cost {
            Cost::Any(amount) => amount.value(),
            Cost::Most(below) => self.policy.most_at_once().saturating_sub((*below).into()),
        }
    }

    fn newest(&self) -> u64 {
        self.clocks().into_iter().max().unwrap_or_default()
    }

    /// All limits of a policy decide as at one time.
    fn has_one_clock(&self) -> bool {
        self.clocks().iter().all(|&clock| clock == self.newest())
    }

    /// The newest time of each limit.
    fn clocks(&self) -> Vec<u64> {
        let parts = self.parts().into_iter();
        parts
            .map(|(place, range)| {
                let limit = &self.policy.limits()[place].limit;
                limit.newest_and_reset(&self.words[range]).0.0
            })
            .collect()
    }

    /// Each limit's place and its words.
    fn parts(&self) -> Vec<(usize, std::ops::Range<usize>)> {
        let mut start = 0;
        let limits = self.policy.limits().iter().enumerate();
        limits
            .map(|(place, each)| {
                let range = start..start + each.limit.words();
                start = range.end;
                (place, range)
            })
            .collect()
    }
}
