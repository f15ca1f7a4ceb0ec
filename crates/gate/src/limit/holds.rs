//! How the limiters that hold places answer. A request takes one place, whatever it costs.

use tidegate_core::lease::{Held, Id, budget, concurrency, connections};
use tidegate_core::shed::fleet;
use tidegate_core::shed::fleet::Priority;
use tidegate_core::shed::utilization::Class;
use tidegate_core::{Decision, InvalidState, Micros, Timestamp};

use super::limiter::{Answer, Limiter, with_borrowed_words};
use crate::request::{Operation, OperationError, Request};

impl Limiter for concurrency::Config {
    with_borrowed_words!();

    fn decide(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Answer> {
        let mut state = self.state(words).ok()?;
        Some(held(request).and_then(|id| Ok(self.acquire(&mut state, now, id, request.places())?)))
    }
    fn peek(&self, words: &[u64], now: Timestamp, request: &Request) -> Option<Answer> {
        let state = self.state(words).ok()?;
        if request.cost > 0 && request.lease.is_some_and(|id| self.holds(&state, now, id)) {
            let looked = self.peek(&state, now, 0).map_err(Into::into);
            return Some(looked.map(|looked| renewed(looked, self.period())));
        }
        Some(self.peek(&state, now, request.places()).map_err(Into::into))
    }
    fn hold(&self, words: &mut [u64], now: Timestamp, operation: &Operation) -> Option<Held> {
        let mut state = self.state(words).ok()?;
        match *operation {
            Operation::Heartbeat(id) => Some(self.heartbeat(&mut state, now, id)),
            Operation::Release(id) => Some(self.release(&mut state, now, id)),
            _ => None,
        }
    }
}

impl Limiter for connections::Config {
    with_borrowed_words!();

    fn decide(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Answer> {
        let mut state = self.state(words).ok()?;
        Some(
            held(request)
                .and_then(|owner| Ok(self.open(&mut state, now, owner, request.places())?)),
        )
    }
    fn peek(&self, words: &[u64], now: Timestamp, request: &Request) -> Option<Answer> {
        let state = self.state(words).ok()?;
        let owner = request.lease.unwrap_or_default(); // without one, an owner that is not there yet
        Some(self.peek(&state, now, owner, request.places()).map_err(Into::into))
    }
    fn hold(&self, words: &mut [u64], now: Timestamp, operation: &Operation) -> Option<Held> {
        let mut state = self.state(words).ok()?;
        match *operation {
            Operation::Heartbeat(owner) => Some(self.refresh(&mut state, now, owner)),
            Operation::Release(owner) => Some(self.close(&mut state, now, owner, 1)),
            Operation::Count(owner, count) => {
                let recorded = self.report(&mut state, now, owner, count);
                Some(recorded.map_or(Held::Unknown, |_| Held::Live { cost: count }))
            }
            _ => None,
        }
    }
}

/// It refuses nobody: units are taken out of the rates when they are granted.
impl Limiter for budget::Config {
    with_borrowed_words!();

    fn decide(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Answer> {
        if request.cost > 0 {
            self.advance(&mut self.state(&mut *words).ok()?, now);
        }
        Limiter::peek(self, words, now, request)
    }
    fn peek(&self, words: &[u64], now: Timestamp, _: &Request) -> Option<Answer> {
        let state = self.state(words).ok()?;
        let taken = now.taken_after(state.newest(), self.period());
        let passed = taken.saturating_since(state.newest()).0;
        let reset_after = Micros(self.reset_after(&state).0.saturating_sub(passed));
        let (limit, remaining) = (self.most(), self.most());
        Some(Ok(Decision::Allow { limit, remaining, reset_after }))
    }
}

impl Limiter for fleet::Config {
    with_borrowed_words!();

    fn decide(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Answer> {
        let (mut state, priority) = (self.state(words).ok()?, priority(request.class));
        Some(counted(request).and_then(|id| {
            if request.cost > 0 {
                self.advance(&mut state, now); // which high priority by itself does not
            }
            Ok(self.acquire(&mut state, now, priority, id, request.places())?)
        }))
    }
    fn peek(&self, words: &[u64], now: Timestamp, request: &Request) -> Option<Answer> {
        let (state, priority) = (self.state(words).ok()?, priority(request.class));
        let known = request.lease.is_some_and(|id| self.holds(&state, now, id));
        if request.cost > 0 && priority == Priority::Low && known {
            let looked = self.peek(&state, now, priority, 0).map_err(Into::into);
            return Some(looked.map(|looked| renewed(looked, self.period())));
        }
        Some(self.peek(&state, now, priority, request.places()).map_err(Into::into))
    }
    fn hold(&self, words: &mut [u64], now: Timestamp, operation: &Operation) -> Option<Held> {
        let mut state = self.state(words).ok()?;
        match *operation {
            Operation::Heartbeat(id) => Some(self.heartbeat(&mut state, now, id)),
            Operation::Release(id) => Some(self.release(&mut state, now, id)),
            _ => None,
        }
    }
}

/// The lease that a request takes a place under. A peek takes none and needs none.
fn held(request: &Request) -> Result<Id, OperationError> {
    match request.lease {
        Some(id) => Ok(id),
        None if request.cost == 0 => Ok(Id::default()),
        None => Err(OperationError::NeedsLease),
    }
}

/// The same of a fleet, which does not count requests of high priority.
fn counted(request: &Request) -> Result<Id, OperationError> {
    match priority(request.class) {
        Priority::Low => held(request),
        Priority::High => Ok(Id::default()),
    }
}

/// Who is of the most important class is never refused.
const fn priority(class: Class) -> Priority {
    if class.0 == Class::CRITICAL.0 { Priority::High } else { Priority::Low }
}

/// To acquire a live lease again is a heartbeat.
fn renewed(looked: Decision, period: Micros) -> Decision {
    let (limit, remaining) = (looked.limit(), looked.remaining());
    Decision::Allow { limit, remaining, reset_after: period }
}
