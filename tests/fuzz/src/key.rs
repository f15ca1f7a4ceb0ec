//! A key of a policy, and the properties that must hold after each step.

mod promises;

use std::ops::Range;

use tidegate_gate::{
    Budget, Grant, Kind, Limit, Limits, Micros, NamedLimit, Offered, OnChange, Operation, Policy,
    Record, Request, Timestamp, Unspent, blob,
};

use crate::leases::Leases;
use crate::parameters::RULES;
use crate::step::{Ask, Cost, Granted, Step, Time, What};

pub struct Key {
    limits: Limits,
    words: Vec<u64>,
    now: u64,
    /// The time at which the last request was granted, or the last units were lent.
    granted_at: u64,
    retry_at: u64,
    /// Whether foreign words were written.
    is_foreign: bool,
    /// The leases of each limit, with the limit's place; empty once foreign words were written.
    leases: Vec<(usize, Leases)>,
}

impl Key {
    pub fn new(limits: Limits) -> Self {
        let each = limits.iter().map(|each| Leases::of(each.limit.clone())).enumerate();
        let leases = each.filter_map(|(place, leases)| Some((place, leases?))).collect();
        let words = vec![0; limits.words()];
        Self { limits, words, now: 0, granted_at: 0, retry_at: 0, is_foreign: false, leases }
    }

    /// How many limits have leases, also after foreign words were written.
    fn limits_of_leases(&self) -> usize {
        self.limits.iter().filter(|each| Leases::of(each.limit.clone()).is_some()).count()
    }

    pub fn step(&mut self, step: &Step) {
        match step {
            Step::Do(time, what) => {
                let now = self.at(*time);
                let operation = self.operation(what);
                self.operate(now, &operation);
            }
            Step::AfterAll(time, what) => {
                let now = self.at(*time);
                let operation = self.operation(what);
                self.expires(now, &operation);
            }
            Step::Refused(time, ask) => {
                let now = self.at(*time);
                let request = self.request(ask);
                // a peek is never refused, and a cost that is never granted is an error
                let most = self.limits.capacity();
                let request = Request { cost: request.cost.clamp(1, most), ..request };
                let (newest, at) = (self.newest(), self.taken_at(now));
                for (limit, range) in self.each() {
                    // a limit in shadow may grant less
                    let request = Request { cost: request.cost.min(limit.capacity()), ..request };
                    let refused = limit.refuse(&mut self.words[range], at, &request, false);
                    let (_, _wait) = refused.expect("a state");
                }
                self.held(newest, at, &Operation::Decide(Request::of(0)), None);
            }
            Step::Foreign(writes) => self.write(writes),
            Step::Edit { proportional, limits } => {
                if let Some(limits) = crate::limits(limits) {
                    self.edit(limits, &RULES[1 + usize::from(*proportional)]);
                }
            }
        }
        let [reset, ..] = &*RULES;
        let blob = blob::encode(reset, self.record(), &self.words);
        let read = blob::decode(reset, self.record(), &blob, Timestamp::EPOCH);
        assert_eq!(read.as_ref(), Ok(&self.words), "{step:?}");
    }

    fn operate(&mut self, now: Timestamp, operation: &Operation) {
        assert_eq!(Operation::from_words(&operation.to_words()).as_ref(), Some(operation));
        let before = self.words.clone();
        let (newest, at) = (self.newest(), self.taken_at(now));
        let outcome = self.limits.operate(&mut self.words, now, operation);
        if operation.is_peek() || outcome.is_err() {
            assert_eq!(self.words, before, "a peek, or an error, changes nothing");
        }
        if let Operation::Decide(request) = operation {
            self.is_decided_alike(&before, now, request, &outcome);
        }
        let Ok(verdict) = outcome else { return };
        assert!(verdict.decision.remaining() <= verdict.decision.limit());
        assert_eq!(verdict.limits.len(), self.limits.iter().count());
        assert_eq!(verdict.factor.is_some(), self.has(|it| matches!(it, Limit::Suppression(_))));
        if !operation.is_peek() {
            assert_eq!(verdict.at, self.newest());
            self.moved_no_faster_than_it_may(&before, newest);
        }
        assert_eq!(verdict.at, at);
        match operation {
            Operation::Decide(request) => self.decided(&before, at, request, &verdict),
            Operation::Peek(request) => {
                let decided = self.limits.decide(&mut before.clone(), now, request);
                let allowed = decided.map(|decision| decision.is_allowed());
                // without a lease a peek answers, and a decision may be an error
                if request.lease.is_some() {
                    assert_eq!(
                        allowed,
                        Ok(verdict.decision.is_allowed()),
                        "a decision agrees with the peek"
                    );
                }
            }
            _ => {
                assert!(verdict.decision.is_allowed(), "an operation without a request is allowed")
            }
        }
        match operation {
            Operation::Charge(0) | Operation::RefundOf(_, 0) => {
                assert_eq!(self.words, self.advanced(&before, at), "nothing but the time changes");
            }
            // another limit may still hold the lease, and renew it
            Operation::Heartbeat(_) | Operation::Count(..) | Operation::Release(_)
                if verdict.effect.live() != Some(true) && self.limits_of_leases() <= 1 =>
            {
                assert_eq!(self.words, self.advanced(&before, at), "an unknown lease is harmless");
            }
            Operation::Budget(budget) => self.lent(&before, at, budget, &verdict),
            _ => {}
        }
        if !operation.is_peek() {
            self.held(newest, verdict.at, operation, Some(&verdict));
        }
    }

    /// Asserts that an expired state and a fresh one answer alike.
    fn expires(&self, now: Timestamp, operation: &Operation) {
        let span = self.record().time_to_live(&self.words, now);
        assert!(span <= Micros::MAX);
        let never_ends = |(limit, range): (Limit, Range<usize>)| {
            limit.newest_and_reset(&self.words[range]).1 == Micros::MAX
        };
        if self.some_start_empty() || self.each().into_iter().any(never_ends) {
            return; // the state never expires
        }
        // foreign words may say that more is used without a reservation than with it, which its end then shows
        let holds = |limit: &Limit| matches!(limit, Limit::Holding(_));
        if self.is_foreign && self.has(holds) {
            return;
        }
        // at the last timestamp a reservation is live that would end later
        let ends = |at: &u64| span < Micros::MAX && *at < u64::MAX;
        let Some(at) = now.0.checked_add(span.0).filter(ends) else { return };
        let (mut old, mut fresh) = (self.words.clone(), vec![0; self.words.len()]);
        let verdict = self.limits.operate(&mut old, Timestamp(at), operation);
        assert_eq!(verdict, self.limits.operate(&mut fresh, Timestamp(at), operation));
        if verdict.is_ok() && !operation.is_peek() {
            assert_eq!(old, fresh);
        }
    }

    /// Writes foreign words. Each limit keeps the words that it accepts, and moves to the newest time of all.
    fn write(&mut self, writes: &[(u8, crate::Amount)]) {
        let before = self.words.clone();
        for &(place, amount) in writes {
            let place = usize::from(place) % self.words.len();
            self.words[place] = amount.value();
        }
        if self.record().accepts(&self.words).is_err() {
            for (limit, range) in self.each() {
                if limit.accepts(&self.words[range.clone()]).is_err() {
                    self.words[range.clone()].copy_from_slice(&before[range]);
                }
            }
            self.words = self.advanced(&self.words, self.newest());
        }
        if self.words != before {
            self.is_foreign = true;
            self.leases.clear();
        }
    }

    /// Edits the limits. The new limits go on from the state of the old ones, and rates have used no fewer units.
    /// A log may keep the times of its units instead.
    fn edit(&mut self, limits: Limits, rule: &Policy) {
        let newest = self.newest();
        let blob = blob::encode(rule, self.record(), &self.words);
        let words =
            blob::decode(rule, &limits.records()[0], &blob, Timestamp::EPOCH).expect("a state");
        if limits == self.limits {
            assert_eq!(words, self.words, "the limits are the same");
            return;
        }
        let used = |key: &Self| -> Vec<(Limit, Option<u64>)> {
            let used = |(limit, range): (Limit, Range<usize>)| {
                let peeked = limit.peek(&key.words[range], newest, &Request::of(0));
                let remaining = peeked.expect("it costs nothing").remaining();
                let counts = limit.kind() == Kind::Rate && !is_log(&limit);
                let used = counts.then(|| limit.capacity() - remaining);
                (limit, used)
            };
            key.each().into_iter().map(used).collect()
        };
        // nothing is stored of a key never seen, and under new limits it starts as they start
        let is_seen = self.words.iter().any(|word| *word != 0);
        let before = if is_seen { used(self) } else { Vec::new() };
        (self.limits, self.words) = (limits, words);
        self.leases.clear();
        assert_eq!(self.newest(), newest);
        for (used, (limit, is)) in found_again(before, used(self)) {
            if let (Some(used), Some(is), OnChange::Keep) = (used, is, rule.on_change()) {
                assert!(
                    is >= used.min(limit.capacity()),
                    "{used} units were used, and {is} after the edit"
                );
            }
        }
    }

    fn at(&mut self, time: Time) -> Timestamp {
        self.now = match time {
            Time::Ahead(by) => self.now.saturating_add(by.value()),
            Time::Back(by) => self.now.saturating_sub(by.value()),
            Time::To(time) => time.value(),
            Time::Retry { early } => self.retry_at.saturating_sub(early.into()),
        };
        // full at the epoch looks like never seen, and some limits start empty
        self.now = self.now.max(u64::from(self.some_start_empty()));
        Timestamp(self.now)
    }

    fn operation(&self, what: &What) -> Operation {
        match *what {
            What::Decide(ask) => Operation::Decide(self.request(&ask)),
            What::Peek(ask) => Operation::Peek(self.request(&ask)),
            What::Refund(units) => Operation::Refund(units.value()),
            What::RefundOf(granted, [units, unused]) => {
                let grant = Grant { at: self.named(granted), units: units.value() };
                Operation::RefundOf(grant, unused.value())
            }
            What::Charge(units) => Operation::Charge(units.value()),
            What::Commit(who, actual) => Operation::Commit(who.id(), actual.value()),
            What::Heartbeat(who) => Operation::Heartbeat(who.id()),
            What::Count(who, count) => Operation::Count(who.id(), count.value()),
            What::Release(who) => Operation::Release(who.id()),
            What::Budget(who, wants, back) => {
                let unspent = back.map(|(granted, left)| Unspent {
                    granted_at: self.named(granted),
                    left: left.value(),
                });
                Operation::Budget(Budget { holder: who.id(), wants: wants.value(), unspent })
            }
            What::Report(at, [admitted, suppressed]) => Operation::Report(Offered {
                at: at.map(|at| self.named(at)),
                admitted: admitted.value(),
                suppressed: suppressed.value(),
            }),
        }
    }

    fn named(&self, granted: Granted) -> Timestamp {
        Timestamp(match granted {
            Granted::Last => self.granted_at,
            Granted::Later(by) => self.now.saturating_add(by.value()),
            Granted::At(time) => time.value(),
        })
    }

    fn request(&self, ask: &Ask) -> Request {
        let cost = match ask.cost {
            Cost::Any(amount) => amount.value(),
            Cost::Most(below) => self.limits.capacity().saturating_sub(below.into()),
        };
        let lease = Some(ask.who.id());
        let (hold, class) = (ask.hold(), ask.class());
        let (signal, draw) = (ask.signal(), ask.draw());
        Request { cost, lease, hold, class, signal, draw }
    }

    /// The time at which all limits decide.
    fn taken_at(&self, now: Timestamp) -> Timestamp {
        now.taken_after(self.newest(), self.limits.period())
    }

    fn newest(&self) -> Timestamp {
        let each = self.each().into_iter();
        let newest = each.map(|(limit, range)| limit.newest_and_reset(&self.words[range]).0);
        newest.max().unwrap_or_default()
    }

    fn advanced(&self, words: &[u64], at: Timestamp) -> Vec<u64> {
        let each = self.each().into_iter();
        each.flat_map(|(limit, range)| advanced(&limit, &words[range], at)).collect()
    }

    fn has(&self, what: impl Fn(&Limit) -> bool) -> bool {
        self.limits.iter().any(|each| what(&each.limit))
    }

    fn some_start_empty(&self) -> bool {
        self.has(starts_empty)
    }

    /// The capacity of the limits together.
    fn capacity(&self) -> u64 {
        let enforced = self.limits.iter().filter(|each| !each.shadow);
        enforced.map(|each| each.limit.capacity()).min().unwrap_or_default()
    }

    fn record(&self) -> &Record {
        &self.limits.records()[0]
    }

    /// Each limit that refuses, with the range of its words.
    fn enforced(&self) -> Vec<(Limit, Range<usize>)> {
        let each = self.each().into_iter().zip(self.limits.iter());
        each.filter(|(_, named)| !named.shadow).map(|(each, _)| each).collect()
    }

    /// Each limit with the range of its words.
    fn each(&self) -> Vec<(Limit, Range<usize>)> {
        let mut start = 0;
        let each = |NamedLimit { limit, .. }: &NamedLimit| {
            let range = start..start + limit.words();
            start = range.end;
            (limit.clone(), range)
        };
        self.limits.iter().map(each).collect()
    }
}

type Used = (Limit, Option<u64>);

/// The units that each limit had used before. Limits without names are matched by their parameters, and the rest
/// by their order.
fn found_again(mut before: Vec<Used>, after: Vec<Used>) -> Vec<(Option<u64>, Used)> {
    let same = after.into_iter().map(|is| {
        let place = before.iter().position(|(limit, _)| *limit == is.0);
        (place.map(|place| before.remove(place).1), is)
    });
    let same: Vec<_> = same.collect();
    let mut left = before.into_iter().map(|(_, used)| used);
    same.into_iter().map(|(used, is)| (used.unwrap_or_else(|| left.next().flatten()), is)).collect()
}

fn advanced(limit: &Limit, words: &[u64], at: Timestamp) -> Vec<u64> {
    let mut words = words.to_vec();
    limit.advance(&mut words, at);
    words
}

/// The numbers of the limit that counts, also under reservations.
fn counting(limit: &Limit) -> Vec<u64> {
    let numbers = limit.parameters();
    match limit {
        Limit::Holding(_) => numbers[5..].to_vec(), // behind the terms
        _ => numbers,
    }
}

fn is_log(limit: &Limit) -> bool {
    counting(limit)[0] == 4
}

fn starts_empty(limit: &Limit) -> bool {
    matches!(counting(limit)[..], [1, _, _, _, 1])
}
