//! The reservations that nodes ask for by wire. Each has a number, by which its units are known, so that it is counted
//! once whatever the network does, also over the lives of an authority.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use tidegate_gate::{Effect, Id, Operation, Resolved, Verdict};

use crate::world::act::Act;
use crate::world::callers::operation_of;
use crate::world::tally::Tally;
use crate::world::violation::{Checked, Invariant, check};

/// How many numbers reservations have: fewer than a key has places, so that no commit is forgotten.
const NUMBERS: u64 = 120;

/// For longer than a history lasts, in µs.
const LONG: u64 = 3_600_000_000;

/// What was asked for by number, and what nodes have heard.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The number of the last reservation.
    last: u64,
    each: BTreeMap<(usize, Id), Reservation>,
}

#[derive(Debug, Default)]
struct Reservation {
    /// The estimate, if anybody asked for the reservation.
    estimate: Option<u64>,
    /// What commits have said that the reservation cost.
    actual: Vec<u64>,
    /// The effect of the reservation, and that of a commit, once a node has heard them.
    reserved: Option<Effect>,
    committed: Option<Effect>,
}

impl Held {
    /// The operation of an act on a key with reservations, and whether it is asked after a commit was heard.
    pub(super) fn asks(
        &mut self,
        (key, resolved): (usize, &Resolved),
        act: Act,
    ) -> (Operation, bool) {
        let act = match act {
            Act::Reserve { id, .. } => {
                self.last = id % NUMBERS;
                Act::Reserve { id: self.last, units: units(self.last), span: LONG }
            }
            Act::Finish(index, actual) => {
                let before = u64::try_from(index).unwrap_or(0);
                Act::Commit((self.last + NUMBERS - before) % NUMBERS, actual)
            }
            Act::Commit(id, actual) => Act::Commit(id % NUMBERS, actual),
            _ => Act::Reserve { id: self.last, units: units(self.last), span: LONG },
        };
        let operation = operation_of(act, resolved, tidegate_gate::Timestamp::EPOCH);
        let mut is_over = false;
        if let Some(own) = self.of(key, &operation) {
            is_over = own.committed.is_some();
            match operation {
                Operation::Commit(_, actual) => own.actual.push(actual),
                Operation::Decide(request) => own.estimate = Some(request.cost),
                _ => {}
            }
        }
        (operation, is_over)
    }

    fn of(&mut self, key: usize, operation: &Operation) -> Option<&mut Reservation> {
        let id = match operation {
            Operation::Decide(request) => request.lease?,
            Operation::Commit(id, _) => *id,
            _ => return None,
        };
        Some(self.each.entry((key, id)).or_default())
    }

    /// A node hears an answer. Whoever asks twice gets the same one.
    pub(super) fn hears(
        &mut self,
        (key, operation): (usize, &Operation),
        was_over: bool,
        said: &Verdict,
        tally: &mut Tally,
    ) -> Checked {
        let Some(own) = self.of(key, operation) else { return Ok(()) };
        let (heard, seen) = match operation {
            Operation::Commit(..) => {
                let is_asked = match said.effect {
                    Effect::Committed { charged, .. } => own.actual.contains(&charged),
                    _ => false,
                };
                check(is_asked, Invariant::Conserved, || {
                    format!("{operation:?}: {said:?}: {own:?}")
                })?;
                (&mut own.committed, ["a reservation was committed", "a commit came again"])
            }
            _ if !said.decision.is_allowed() => {
                tally.add("a reservation was refused");
                return Ok(());
            }
            _ => {
                check(!was_over, Invariant::Once, || {
                    format!("{operation:?} was granted after its commit: {own:?}")
                })?;
                (&mut own.reserved, ["units were reserved", "a reservation came again"])
            }
        };
        tally.add(seen[usize::from(heard.is_some())]);
        let first = *heard.get_or_insert(said.effect);
        check(first == said.effect, Invariant::Once, || {
            format!("{operation:?}: {:?}, after {first:?}", said.effect)
        })
    }

    /// The units of a key that are taken in the end: those that were committed, and those of reservations that were
    /// granted. An operation without an answer may have been taken.
    pub(super) fn taken(&self, key: usize) -> RangeInclusive<u64> {
        let own = self.each.range((key, Id([0; 2]))..=(key, Id([u64::MAX; 2])));
        let (mut least, mut most) = (0, 0);
        for (_, own) in own {
            if let Some(Effect::Committed { charged, .. }) = own.committed {
                (least, most) = (least + charged, most + charged);
                continue;
            }
            // a commit without an answer may have charged any of these
            let estimate = own.estimate.unwrap_or(0);
            let actual = own.actual.iter().copied();
            let surely = if own.reserved.is_some() { estimate } else { 0 };
            least += actual.clone().min().unwrap_or(surely).min(surely);
            most += actual.max().unwrap_or(0).max(estimate);
        }
        least..=most
    }
}

fn units(id: u64) -> u64 {
    1 + id % 4
}
