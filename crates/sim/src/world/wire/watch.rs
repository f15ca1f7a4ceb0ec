//! What the nodes see of a world, and what must hold of it.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_gate::{Limits, Operation, Verdict};
use tidegate_tier::wire::{Delivered, Failure, Ignored, Question};

use super::held::Held;
use crate::world::front::Run;
use crate::world::message::Message;
use crate::world::objects::wiretap;
use crate::world::setup::Setup;
use crate::world::tally::Tally;
use crate::world::violation::{Checked, Invariant, Seen, check};

#[derive(Debug, Default)]
pub(super) struct Watch {
    pub(super) tally: Tally,
    pub(super) held: Held,
    /// The authority has started again, and forgotten all questions.
    pub(super) is_more_than_one_life: bool,
    operations: Vec<Asking>,
    questions: BTreeSet<(Run, u64)>,
    /// What each grant says that was taken of the key.
    serials: BTreeSet<(usize, u64)>,
    /// The last of them that a node has heard, and the number of its operation.
    last: BTreeMap<(Run, usize), (usize, u64)>,
    /// Operations on a key that were perhaps taken without a grant.
    unknown: BTreeMap<usize, u64>,
}

#[derive(Debug)]
struct Asking {
    run: Run,
    key: usize,
    operation: Operation,
    /// A node had heard of a commit of the same reservation before.
    was_over: bool,
    asked_at: u64,
    /// It has no answer, and its node has not started again.
    waits: bool,
}

impl Watch {
    /// A caller asks. Returns the number of the operation.
    pub(super) fn asks(
        &mut self,
        run: Run,
        (key, operation, was_over): (usize, Operation, bool),
        asked_at: u64,
    ) -> usize {
        self.operations.push(Asking { run, key, operation, was_over, asked_at, waits: true });
        self.operations.len() - 1
    }

    pub(super) fn sends(&mut self, run: Run, question: &Question, setup: &Setup) -> Checked {
        let count = wiretap::question(&question.bytes).map_or(0, |(_, (_, asked))| asked.len());
        let is_small = question.bytes.len() <= setup.most_bytes || count == 1;
        let is_new = self.questions.insert((run, question.number));
        if count > 1 {
            self.tally.add("operations shared a question");
        }
        let is_right = is_new && is_small && count > 0 && count <= setup.most_operations;
        check(is_right, Invariant::Counted, || format!("{run:?} asks {question:?}"))
    }

    pub(super) fn hears_reply(
        &mut self,
        message: &Message,
        handled: &Result<(), Ignored>,
    ) -> Checked {
        let is_right = match handled {
            Ok(()) => wiretap::reply(&message.bytes).is_some() && !message.is_corrupt,
            Err(Ignored::Late(_)) => {
                self.tally.add("a reply came too late or again");
                !message.is_corrupt
            }
            Err(Ignored::Unreadable(_)) => {
                self.tally.add("a message was corrupt");
                message.is_corrupt
            }
            Err(_) => false,
        };
        check(is_right, Invariant::Reason, || format!("{message:?}: {handled:?}"))
    }

    /// A node will not hear of its operations.
    pub(super) fn restarts(&mut self, run: Run) {
        for asking in self.operations.iter_mut().filter(|asking| asking.run == run && asking.waits)
        {
            asking.waits = false;
            *self.unknown.entry(asking.key).or_default() += 1;
        }
    }

    pub(super) fn hears(
        &mut self,
        run: Run,
        answer: &Delivered<Option<usize>>,
        (now, setup): (u64, &Setup),
    ) -> Checked {
        let found =
            answer.asked.token.and_then(|number| self.operations.get_mut(number).zip(Some(number)));
        let Some((asking, number)) = found else {
            return Err(Seen(Invariant::Once, format!("nobody asked for {answer:?}")));
        };
        let is_first = std::mem::take(&mut asking.waits) && asking.run == run;
        check(is_first, Invariant::Once, || format!("{asking:?} is answered again: {answer:?}"))?;
        let is_in_time = now - asking.asked_at <= 2 * setup.deadline;
        check(is_in_time, Invariant::Live, || format!("{asking:?} is answered at {now}"))?;
        let (key, operation, was_over) = (asking.key, asking.operation, asking.was_over);
        match &answer.result {
            Ok(said) if operation != Operation::from(1) => {
                self.held.hears((key, &operation), was_over, said, &mut self.tally)
            }
            Ok(said) if said.decision.is_allowed() => self.grant((run, key), number, said),
            Ok(_) => {
                self.tally.add("a request was refused");
                Ok(())
            }
            Err(failure) => self.fail(key, failure, setup),
        }
    }

    /// No unit is granted twice, and a node hears of its grants in the order of its questions.
    fn grant(&mut self, (run, key): (Run, usize), number: usize, said: &Verdict) -> Checked {
        self.tally.add("a request was granted");
        let serial = units(said);
        let is_new = self.serials.insert((key, serial));
        check(is_new, Invariant::Once, || format!("unit {serial} of key {key} is granted twice"))?;
        let before = self.last.insert((run, key), (number, serial));
        let is_ordered = before.is_none_or(|(of, last)| (of < number) == (last < serial));
        check(is_ordered || self.is_more_than_one_life, Invariant::Order, || {
            format!("number {number} has unit {serial} of key {key}, after {before:?}")
        })
    }

    fn fail(&mut self, key: usize, failure: &Failure, setup: &Setup) -> Checked {
        let (seen, is_unknown) = match failure {
            Failure::Unknown => ("no reply came", true),
            Failure::Store(_) => ("the store failed", true),
            // if the question comes again, there may be room
            Failure::Overloaded { most } if usize::try_from(*most) == Ok(setup.bytes) => {
                ("a question found no room", true)
            }
            Failure::Overloaded { .. } => ("an operation was one too many", false),
            Failure::TooLate => ("a question was overtaken", false),
            _ => return check(false, Invariant::Reason, || format!("{failure:?}")),
        };
        self.tally.add(seen);
        *self.unknown.entry(key).or_default() += u64::from(is_unknown);
        Ok(())
    }

    /// Each unit that was taken of a key belongs to an operation.
    pub(super) fn check_taken(&self, key: usize, taken: u64) -> Checked {
        let granted = self.serials.range((key, 0)..=(key, u64::MAX)).count();
        let granted = u64::try_from(granted).unwrap_or(u64::MAX);
        let most = granted + self.unknown.get(&key).copied().unwrap_or(0);
        let is_right = granted <= taken && (taken <= most || self.is_more_than_one_life);
        check(is_right, Invariant::Conserved, || {
            format!("key {key}: {taken} units are taken, {granted} to {most} are granted")
        })
    }
}

impl Watch {
    /// The units that are taken of a key are those of its reservations. A debt does not show.
    pub(super) fn check_held(
        &mut self,
        key: usize,
        taken: u64,
        limits: Option<&Limits>,
    ) -> Checked {
        self.tally.add("nothing was held in the end");
        let own = limits.and_then(|limits| limits.iter().last());
        let most = own.map_or(u64::MAX, |own| own.limit.capacity());
        let may_be = self.held.taken(key);
        let is_right = taken >= most.min(*may_be.start()) && taken <= *may_be.end();
        check(is_right, Invariant::Conserved, || {
            format!("key {key}: {taken} units are taken, expected {may_be:?}: {:?}", self.held)
        })
    }
}

/// The units of the key that are taken after a verdict. The limit of the whole key comes last.
pub(super) fn units(said: &Verdict) -> u64 {
    said.limits.last().map_or(0, |own| own.limit() - own.remaining())
}
