//! The properties of each answer.

use std::ops::Range;

use tidegate_core::Limiter;
use tidegate_core::shed::suppression::PART;
use tidegate_core::shed::utilization;
use tidegate_gate::{
    Budget, Class, Decision, Id, Kind, Limit, MAX_QUANTITY, Micros, Operation, OperationError,
    Request, Timestamp, Verdict,
};

use super::{Key, advanced};

impl Key {
    /// Asserts that `decide`, `operate` and each limit by itself decide alike.
    pub(super) fn is_decided_alike(
        &self,
        before: &[u64],
        now: Timestamp,
        request: &Request,
        outcome: &Result<Verdict, OperationError>,
    ) {
        let mut decided = before.to_vec();
        let decision = self.limits.decide(&mut decided, now, request);
        assert_eq!(decision, outcome.clone().map(|verdict| verdict.decision));
        assert_eq!(decided, self.words);
        let most = self.limits.capacity();
        assert_eq!(decision.is_err(), request.cost > most && self.capacity() == most);
        for (limit, range) in self.each() {
            let peeked = limit.peek(&before[range.clone()], now, request);
            let mut words = before[range].to_vec();
            assert_eq!(limit.decide(&mut words, now, request), peeked, "{limit:?}");
            assert!(limit.accepts(&words).is_ok());
        }
    }

    pub(super) fn decided(
        &mut self,
        before: &[u64],
        at: Timestamp,
        request: &Request,
        verdict: &Verdict,
    ) {
        let peeks: Vec<Decision> = self
            .enforced()
            .into_iter()
            .map(|(limit, range)| {
                let words = &before[range];
                let peeked = limit.peek(words, at, request).expect("it was decided");
                if never_refused(&limit, &advanced(&limit, words, at), request) {
                    assert!(peeked.is_allowed(), "{limit:?} refused {request:?}");
                }
                peeked
            })
            .collect();
        let allowed = peeks.iter().all(Decision::is_allowed);
        if self.repeats(before, at, request, &peeks) {
            assert!(verdict.decision.is_allowed(), "a reservation that came again: {request:?}");
            return; // it takes nothing more, whatever the other limits say
        }
        assert_eq!(verdict.decision.is_allowed(), allowed, "all or nothing");
        let soft = self.limits.softness(verdict);
        if soft.would_allow(allowed).is_some() {
            self.is_decided_without_shadows(before, at, request, verdict);
        }
        match verdict.decision {
            Decision::Allow { .. } => self.granted_at = at.0,
            Decision::Deny { remaining, retry_after, .. } => {
                if !self.has(Limit::remembers_refusals) {
                    let peek = Request { cost: 0, ..*request };
                    let left = self.limits.decide(&mut self.words.clone(), at, &peek);
                    let left = left.map(|peeked| peeked.remaining());
                    assert_eq!(left, Ok(remaining), "a refusal consumes nothing");
                }
                assert!(retry_after > Micros::ZERO);
                self.is_retried_to_the_microsecond(at, retry_after, request, &peeks);
            }
        }
    }

    /// Whether each limit that reserves holds units for the request already. A penalty may refuse it nevertheless.
    fn repeats(
        &self,
        before: &[u64],
        at: Timestamp,
        request: &Request,
        peeks: &[Decision],
    ) -> bool {
        let Some(id) = request.lease.filter(|_| request.reserves()) else { return false };
        let mut is_held = false;
        for ((limit, range), peeked) in self.enforced().into_iter().zip(peeks) {
            match limit {
                Limit::Penalty(_) if !peeked.is_allowed() => return false,
                Limit::Holding(_) => {
                    let held = limit.held(&before[range], id);
                    if held.is_none_or(|(_, until)| until <= at) {
                        return false;
                    }
                    is_held = true;
                }
                _ => {}
            }
        }
        is_held
    }

    /// Asserts that the limits that refuse decide as they would without those in shadow, and that a limit in shadow takes the cost
    /// of a request that passes if it grants it, and nothing else.
    fn is_decided_without_shadows(
        &self,
        before: &[u64],
        at: Timestamp,
        request: &Request,
        verdict: &Verdict,
    ) {
        let passes = verdict.decision.is_allowed();
        let each = self.each().into_iter().zip(self.limits.iter()).zip(&verdict.limits);
        for (((limit, range), _), said) in each.filter(|((_, named), _)| named.shadow) {
            let mut words = before[range.clone()].to_vec();
            match limit.peek(&words, at, request) {
                Ok(peeked) if peeked.is_allowed() && passes => {
                    assert_eq!(limit.decide(&mut words, at, request), Ok(*said), "{limit:?}");
                }
                Ok(peeked) => {
                    let refused = limit.refuse(&mut words, at, request, peeked.is_allowed());
                    assert_eq!(refused.map(|(said, _)| said), Ok(*said), "{limit:?}");
                }
                Err(_) => {
                    limit.advance(&mut words, at);
                    assert_eq!(said.retry_after(), Micros::MAX, "{limit:?}");
                }
            }
            assert_eq!(words, self.words[range], "{limit:?}");
        }
    }

    /// Asserts that `retry_after` is exact. A shedder that refuses by chance only gives a hint, and may refuse
    /// again at that time.
    fn is_retried_to_the_microsecond(
        &mut self,
        at: Timestamp,
        retry_after: Micros,
        request: &Request,
        peeks: &[Decision],
    ) {
        let Some(then) = at.0.checked_add(retry_after.0) else { return };
        self.retry_at = then;
        // a repeated reservation is granted by the limits that hold it, and refused once it has ended
        let holds = |(limit, range): (Limit, Range<usize>)| {
            let words = &self.words[range];
            request.lease.is_some_and(|id| limit.held(words, id).is_some())
        };
        if request.reserves() && self.each().into_iter().any(holds) {
            return;
        }
        let is_calendar = |limit: &Limit| limit.calendar().is_some();
        // the last window that is known does not end, and a foreign word may be a time that no span reaches
        if retry_after == Micros::MAX && (self.has(is_calendar) || self.is_foreign) {
            return;
        }
        let allowed = |time| {
            let decided = self.limits.decide(&mut self.words.clone(), Timestamp(time), request);
            decided.map(|decision| decision.is_allowed())
        };
        let mut each = self.enforced().into_iter().zip(peeks);
        if each.any(|((limit, _), peek)| hints(&limit) && !peek.is_allowed()) {
            return;
        }
        assert_eq!(allowed(then - 1), Ok(false), "{retry_after:?} is too long");
        if !self.has(hints) {
            assert_eq!(allowed(then), Ok(true), "{retry_after:?} is too short");
        }
    }

    /// Asserts that lent units are taken from every rate, and are no more than all rates have.
    pub(super) fn lent(
        &mut self,
        before: &[u64],
        at: Timestamp,
        budget: &Budget,
        verdict: &Verdict,
    ) {
        let only_back = Operation::Budget(Budget { wants: 0, ..*budget });
        let mut words = before.to_vec();
        let returned = self.limits.operate(&mut words, at, &only_back).expect("it costs nothing");
        assert_eq!(returned.effect.live(), verdict.effect.live());
        if returned.effect.live() == Some(true) {
            let mut twice = words.clone();
            let again = self.limits.operate(&mut twice, at, &only_back).expect("it costs nothing");
            assert_eq!(
                (again.effect.live(), &twice),
                (Some(false), &words),
                "units come back once"
            );
        }
        let Some(allowance) = verdict.effect.allowance() else {
            assert!(!self.has(|limit| limit.kind() == Kind::Budget));
            return;
        };
        assert!(allowance.left <= budget.wants);
        for (limit, range) in self.each() {
            if let Limit::Budget(config) = limit {
                assert!(allowance.left <= config.most());
            } else if limit.kind() == Kind::Rate {
                let left = |words: &[u64]| {
                    let peeked = limit.peek(&words[range.clone()], at, &Request::of(0));
                    peeked.expect("it costs nothing").remaining()
                };
                let (had, has) = (left(&words), left(&self.words));
                assert!(allowance.left <= had, "lent more than the {had} units left");
                assert!(
                    has <= had - allowance.left,
                    "the lent units were not taken from {limit:?}"
                );
            }
        }
        if allowance.left > 0 {
            assert_eq!(allowance.granted_at, at);
            self.granted_at = at.0;
        }
    }

    /// Asserts that the leases are those of the model, unless foreign words were written.
    pub(super) fn held(
        &mut self,
        newest: Timestamp,
        at: Timestamp,
        operation: &Operation,
        verdict: Option<&Verdict>,
    ) {
        let each = self.each();
        let mut live = None;
        for (place, leases) in &mut self.leases {
            let decision = verdict.map(|verdict| verdict.decision);
            let held = leases.operate(newest, at, operation, decision);
            let both = [live, held].into_iter().flatten();
            live = match operation {
                Operation::Release(_) => both.reduce(|one, other| one | other),
                _ => both.reduce(|one, other| one & other),
            };
            let words = &self.words[each[*place].1.clone()];
            for id in [Id([0; 2]), Id([2, 0])] {
                let looked =
                    leases.limit().peek(words, at, &Request { lease: Some(id), ..Request::of(0) });
                let remaining = looked.map(|looked| looked.remaining());
                assert_eq!(remaining, Ok(leases.remaining(id)), "{:?}", leases.limit());
            }
        }
        let asked = !matches!(operation, Operation::Budget(_));
        if let Some(verdict) = verdict.filter(|_| asked && !self.leases.is_empty()) {
            assert_eq!(verdict.effect.live(), live, "{operation:?}");
        }
    }

    /// Asserts that a utilization shedder moves no faster than it promises.
    pub(super) fn moved_no_faster_than_it_may(&self, before: &[u64], newest: Timestamp) {
        for (limit, range) in self.each() {
            let Limit::Utilization(config) = limit else { continue };
            let amount = |words: &[u64]| {
                let words: [u64; 3] = words[range.clone()].try_into().expect("three words");
                config.amount_ppm(&utilization::State::from(words))
            };
            let elapsed = self.newest().saturating_since(newest);
            if elapsed < config.period() {
                let elapsed = elapsed.min(config.timing().delay).0;
                let most =
                    (u128::from(elapsed) * 1_000_000).div_ceil(config.timing().full.0.into());
                let moved = amount(before).abs_diff(amount(&self.words));
                assert!(u128::from(moved) <= most + 1, "{moved} ppm in {elapsed} µs");
            }
        }
    }
}

/// Whether `retry_after` is a hint.
fn hints(limit: &Limit) -> bool {
    match limit {
        Limit::Utilization(_) | Limit::Suppression(_) => true,
        // a refusal by another limit is counted too, and the reservations that end are not foreseen then
        Limit::Holding(_) => limit.remembers_refusals(),
        _ => false,
    }
}

/// Whether a request must pass a shedder, whatever its draw.
fn never_refused(limit: &Limit, words: &[u64], request: &Request) -> bool {
    match limit {
        Limit::Utilization(config) => request.class.0 >= config.classes(),
        Limit::Fleet(_) => request.class == Class::CRITICAL,
        Limit::Suppression(config) => {
            words[1..].as_chunks().0.iter().all(|&[admitted, suppressed]| {
                assert!(admitted.max(suppressed) <= MAX_QUANTITY);
                let times = |a: u64, b: u64| u128::from(a) * u128::from(b);
                let (units, period) = (config.limit().units(), config.limit().period().0);
                times(admitted + suppressed, period) <= times(units, PART.0)
            })
        }
        _ => false,
    }
}
