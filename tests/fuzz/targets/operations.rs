//! Any operations at any times on any state that any policy accepts.

#![no_main]

use std::ops::Range;

use arbitrary::Arbitrary;
use libfuzzer_sys::{Corpus, fuzz_target};
use tidegate_fuzz::{Amount, Parameters, limits};
use tidegate_gate::{
    Decision, Limit, Limits, Micros, Operation as Asked, Part, Request, Settlement, Timestamp,
};

#[derive(Arbitrary, Debug)]
struct Input {
    limits: [Parameters; 3],
    operations: Vec<Operation>,
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Decide(Time, Cost),
    Peek(Time, Cost),
    /// Another limit has refused.
    Refused(Time, Cost),
    Settle(Time, [Amount; 2]),
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
    let Some(limits) = limits(&input.limits) else { return Corpus::Reject };
    let mut key =
        Key { words: vec![0; limits.words()], limits, now: 0, granted_at: 0, retry_at: 0 };
    for operation in &input.operations {
        key.apply(operation);
        assert!(key.accepts(), "{operation:?} left {:?}", key.words);
    }
    Corpus::Keep
});

struct Key {
    limits: Limits,
    words: Vec<u64>,
    now: u64,
    granted_at: u64,
    retry_at: u64,
}

impl Key {
    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Decide(time, cost) => {
                let (now, request) = (self.at(time), self.request(cost));
                self.decide(now, request);
            }
            Operation::Peek(time, cost) => {
                let (now, request) = (self.at(time), self.request(cost));
                self.peek(now, request);
            }
            Operation::Refused(time, cost) => {
                let newest = Timestamp(self.newest());
                let now = self.at(time).taken_after(newest, self.limits.period());
                let request = self.request(cost);
                for (limit, range) in self.each() {
                    limit.refused(&mut self.words[range], now, &request);
                }
            }
            // what is charged does not move a penalty's clock, which then is not that of the others
            Operation::Settle(..) if !self.limits.iter().all(|it| it.limit.counts_units()) => {}
            Operation::Settle(time, [reserved, actual]) => {
                let settlement = Settlement {
                    granted_at: Timestamp(self.granted_at),
                    reserved: reserved.value(),
                    actual: actual.value(),
                };
                let now = self.at(time);
                let verdict = self.limits.operate(&mut self.words, now, &Asked::Settle(settlement));
                assert!(verdict.is_ok_and(|verdict| verdict.decision.is_allowed()));
            }
            Operation::TimeToLive(time, cost) => {
                let (now, request) = (self.at(time), self.request(cost));
                self.expires(now, request);
            }
            Operation::Foreign(writes) => {
                let before = self.words.clone();
                for &(place, amount) in writes {
                    let place = usize::from(place) % self.words.len();
                    self.words[place] = amount.value();
                }
                if !self.accepts() {
                    self.words = before;
                }
            }
        }
    }

    fn decide(&mut self, now: Timestamp, request: Request) {
        let before = self.words.clone();
        let decided = self.limits.decide(&mut self.words, now, &request);
        let mut explained = before.clone();
        let verdict = self.limits.operate(&mut explained, now, &Asked::Decide(request));
        assert_eq!((verdict.map(|verdict| verdict.decision), &explained), (decided, &self.words));
        let Ok(decision) = decided else {
            assert!(request.cost > self.limits.most_at_once());
            assert_eq!(self.words, before, "an error changes nothing");
            return;
        };
        assert!(request.cost <= self.limits.most_at_once());
        assert!(decision.remaining() <= decision.limit());
        if request.cost == 0 {
            assert_eq!(self.words, before, "a cost of 0 changes nothing");
        }
        match decision {
            Decision::Allow { .. } => self.granted_at = self.newest(),
            Decision::Deny { remaining, retry_after, .. } => {
                let left = self.limits.decide(&mut self.words.clone(), now, &Request::of(0));
                if !self.limits.iter().any(|each| each.limit.remembers_refusals()) {
                    let left = left.map(|peeked| peeked.remaining());
                    assert_eq!(left, Ok(remaining), "a refusal consumes nothing");
                }
                self.is_retried_to_the_microsecond(retry_after, request);
            }
        }
    }

    /// Spans count from the time at which the decision was taken, which is now the newest.
    fn is_retried_to_the_microsecond(&mut self, retry_after: Micros, request: Request) {
        assert!(retry_after > Micros::ZERO);
        let Some(at) = self.newest().checked_add(retry_after.0) else { return };
        self.retry_at = at;
        let allowed = |at| {
            let decided = self.limits.decide(&mut self.words.clone(), Timestamp(at), &request);
            decided.map(|decision| decision.is_allowed())
        };
        assert_eq!(allowed(at - 1), Ok(false), "{retry_after:?} is too long");
        assert_eq!(allowed(at), Ok(true), "{retry_after:?} is too short");
    }

    /// Each limit's own peek says what its own decision then does.
    fn peek(&self, now: Timestamp, request: Request) {
        for (limit, range) in self.each() {
            let words = &self.words[range];
            let peeked = limit.peek(words, now, &request);
            let mut decided = words.to_vec();
            assert_eq!(limit.decide(&mut decided, now, &request), peeked);
            assert!(limit.accepts(&decided).is_ok());
        }
    }

    /// A state whose time to live is over and a fresh one cannot be told apart.
    fn expires(&self, now: Timestamp, request: Request) {
        let span = self.part().time_to_live(&self.words, now);
        assert!(span <= Micros::MAX);
        if self.some_start_empty() {
            return; // they are to be kept for ever
        }
        let Some(at) = now.0.checked_add(span.0).filter(|_| span < Micros::MAX) else { return };
        let (mut old, mut fresh) = (self.words.clone(), vec![0; self.words.len()]);
        let decided = self.limits.decide(&mut old, Timestamp(at), &request);
        assert_eq!(decided, self.limits.decide(&mut fresh, Timestamp(at), &request));
        if decided.is_ok() && request.cost > 0 {
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
        // full at the epoch cannot be told from never seen, which for some is empty
        self.now = self.now.max(u64::from(self.some_start_empty()));
        Timestamp(self.now)
    }

    fn some_start_empty(&self) -> bool {
        let limits = self.limits.iter();
        limits
            .map(|each| each.limit)
            .any(|limit| matches!(limit, Limit::TokenBucket(bucket) if bucket.starts_empty()))
    }

    fn request(&self, cost: &Cost) -> Request {
        Request::of(match cost {
            Cost::Any(amount) => amount.value(),
            Cost::Most(below) => self.limits.most_at_once().saturating_sub((*below).into()),
        })
    }

    /// Also that all limits decide as at one time.
    fn accepts(&self) -> bool {
        let newest = self.newest();
        self.part().accepts(&self.words).is_ok() && self.clocks().iter().all(|&it| it == newest)
    }

    fn newest(&self) -> u64 {
        self.clocks().into_iter().max().unwrap_or_default()
    }

    /// The newest time of each limit.
    fn clocks(&self) -> Vec<u64> {
        let each = self.each().into_iter();
        each.map(|(limit, range)| limit.newest_and_reset(&self.words[range]).0.0).collect()
    }

    fn part(&self) -> &Part {
        &self.limits.parts()[0]
    }

    /// Each limit with the place of its words.
    fn each(&self) -> Vec<(Limit, Range<usize>)> {
        let mut start = 0;
        let limits = self.limits.iter();
        limits
            .map(|each| {
                let range = start..start + each.limit.words();
                start = range.end;
                (each.limit, range)
            })
            .collect()
    }
}
