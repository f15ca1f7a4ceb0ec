//! A replay of the whole history with the true costs, beside a limiter that holds.

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::super::{Committed, Counter, OnExpiry, Reserved, Terms};
use super::Config;
use super::START;
use crate::hold::reservable::Reservable;
use crate::lease::Id;
use crate::{Decision, Limiter, Micros, State, Timestamp};

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Decide { cost: u64 },
    Charge { cost: u64 },
    Reserve { id: u64, cost: u64, span: u64 },
    Commit { id: u64, actual: u64 },
}

/// What has counted, at the time at which it counts.
#[derive(Clone, Copy, Debug)]
struct Event {
    at: Timestamp,
    units: u64,
}

impl Event {
    const fn new(at: Timestamp, units: u64) -> Self {
        Self { at, units }
    }
}

/// A hold as the replay sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Live { event: usize, until: Timestamp },
    Ended { charged: u64, late: bool, is_final: bool, until: Timestamp },
}

/// The whole history, with the costs that are known by now.
struct Replay<L> {
    limiter: L,
    terms: Terms,
    counts_refused: bool,
    events: Vec<Event>,
    holds: Vec<(u64, Fate)>,
}

impl<L: Reservable + Into<Counter> + Copy + core::fmt::Debug> Replay<L> {
    fn words(&self, now: Timestamp) -> Vec<u64> {
        let mut state = self.limiter.state(vec![0; self.limiter.words()]).unwrap();
        for event in &self.events {
            self.limiter.charge(&mut state, event.at, event.units);
        }
        self.limiter.advance(&mut state, now);
        state.words().to_vec()
    }

    /// The answer to a request of this cost.
    fn answer(&self, now: Timestamp, cost: u64) -> Decision {
        let state: State<L, _> = self.limiter.state(self.words(now)).unwrap();
        self.limiter.peek(&state, now, cost).unwrap()
    }

    /// Decides on a request, and counts it if it is granted or refused ones count.
    fn decide(&mut self, now: Timestamp, cost: u64) -> bool {
        let is_granted = self.answer(now, cost).is_allowed();
        if is_granted || self.counts_refused {
            self.events.push(Event::new(now, cost));
        }
        is_granted
    }

    fn advance(&mut self, now: Timestamp) {
        let (terms, events) = (self.terms, &mut self.events);
        for (_, fate) in &mut self.holds {
            if let Fate::Live { event, until } = *fate
                && until <= now
            {
                if terms.on_expiry == OnExpiry::Release {
                    events[event].units = 0;
                }
                let (charged, until) = (events[event].units, until.saturating_add(terms.remember));
                *fate = Fate::Ended { charged, late: true, is_final: false, until };
            }
        }
        self.holds.retain(|(_, fate)| match *fate {
            Fate::Live { .. } => true,
            Fate::Ended { until, .. } => until > now,
        });
    }

    fn find(&mut self, id: u64) -> Option<usize> {
        self.holds.iter().position(|(held, _)| *held == id)
    }

    fn commit(&mut self, now: Timestamp, id: u64, actual: u64) -> Committed {
        let place = self.find(id);
        let (charged, late) = match place.map(|place| self.holds[place].1) {
            Some(Fate::Live { event, .. }) => {
                self.events[event].units = actual;
                (actual, false)
            }
            Some(Fate::Ended { charged, late, is_final: true, .. }) => {
                return Committed { charged, late };
            }
            Some(Fate::Ended { charged, .. }) => {
                self.events.push(Event::new(now, actual.saturating_sub(charged)));
                (actual.max(charged), true)
            }
            None => {
                self.events.push(Event::new(now, actual));
                (actual, true)
            }
        };
        let until = now.saturating_add(self.terms.remember);
        let ended = Fate::Ended { charged, late, is_final: true, until };
        match place {
            Some(place) => self.holds[place].1 = ended,
            None if self.holds.len() < usize::try_from(self.terms.most).unwrap() => {
                self.holds.push((id, ended))
            }
            None => {
                // the one that is forgotten next makes place, if there is any
                let next =
                    self.holds.iter().enumerate().filter_map(|(place, (id, fate))| match *fate {
                        Fate::Ended { until, .. } => Some((until, *id, place)),
                        Fate::Live { .. } => None,
                    });
                if let Some((_, _, place)) = next.min() {
                    self.holds[place] = (id, ended);
                }
            }
        }
        Committed { charged, late }
    }
}

pub(super) fn equals_the_replay<L: Reservable + Into<Counter> + Copy + core::fmt::Debug>(
    limiter: L,
    terms: Terms,
    steps: &[(u64, Step)],
    counts_refused: bool,
) -> Result<(), TestCaseError> {
    let config = Config::new(limiter, terms).unwrap();
    let mut state = config.state(vec![0; config.words()]).unwrap();
    let limiter = limiter.beside_holds(); // a debt counts in full
    let mut replay =
        Replay { limiter, terms, counts_refused, events: Vec::new(), holds: Vec::new() };
    let mut now = Timestamp(START);
    for &(passed, step) in steps {
        now = now.saturating_add(Micros(passed));
        replay.advance(now);
        replay.events.push(Event::new(now, 0)); // a refusal's time counts as seen
        match step {
            Step::Decide { cost } => {
                let expected = replay.decide(now, cost);
                let decided = config.decide(&mut state, now, cost).unwrap();
                prop_assert_eq!(decided.is_allowed(), expected);
            }
            Step::Charge { cost } => {
                config.charge(&mut state, now, cost);
                replay.events.push(Event::new(now, cost));
            }
            Step::Reserve { id, cost, span } => {
                let said =
                    config.reserve(&mut state, now, Id([0, id]), cost, Micros(span)).unwrap();
                match replay.find(id).map(|place| replay.holds[place].1) {
                    Some(Fate::Live { event, until }) => {
                        let units = replay.events[event].units;
                        prop_assert_eq!(said, Reserved::Again { units, until });
                    }
                    Some(Fate::Ended { .. }) => prop_assert_eq!(said, Reserved::Ended),
                    None if replay.holds.len() == usize::try_from(terms.most).unwrap() => {
                        let is_full = matches!(said, Reserved::Full { until } if until > now);
                        prop_assert!(is_full, "{:?}", said);
                    }
                    None => {
                        let event = replay.events.len();
                        let expected = replay.decide(now, cost);
                        let Reserved::Decided(decision) = said else {
                            return Err(TestCaseError::fail(std::format!("{said:?}")));
                        };
                        prop_assert_eq!(decision.is_allowed(), expected);
                        if expected {
                            let until = now.saturating_add(Micros(span.min(terms.longest.0)));
                            replay.holds.push((id, Fate::Live { event, until }));
                        }
                    }
                }
            }
            Step::Commit { id, actual } => {
                let expected = replay.commit(now, id, actual);
                prop_assert_eq!(config.commit(&mut state, now, Id([0, id]), actual), expected);
                // if all holds are live, this one cannot be remembered
                if replay.find(id).is_some() {
                    let (id, once) = (Id([0, id]), state.clone());
                    prop_assert_eq!(config.commit(&mut state, now, id, actual + 1), expected);
                    prop_assert_eq!(
                        state.words(),
                        once.words(),
                        "a repeated commit changes nothing"
                    );
                }
            }
        }
        config.advance(&mut state, now);
        prop_assert_eq!(config.accepts(&state), Ok(()), "{:?}", state);
        for cost in 0..=limiter.capacity() {
            let (said, expected) =
                (config.peek_counted(&state, now, cost), replay.answer(now, cost));
            prop_assert_eq!(said, Ok(expected), "{} at {:?} after {:?}", cost, now, step);
        }
        let live = replay.holds.iter().filter_map(|(_, fate)| match *fate {
            Fate::Live { event, .. } => Some(replay.events[event].units),
            Fate::Ended { .. } => None,
        });
        prop_assert_eq!(config.held(&state), live.sum::<u64>());
    }
    // nothing is left behind
    let end = config.expires_at(&state);
    config.advance(&mut state, end);
    prop_assert!(
        state.words()[1 + config.counted(&state).len()..].iter().all(|&word| word == 0),
        "{:?}",
        state
    );
    Ok(())
}
