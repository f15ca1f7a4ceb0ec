//! Whether the answers that a node gives after a swap are true.

use tidegate_gate::{Timestamp, TransactionError};
use tidegate_tier::authority::Failure;

use super::asking::{Answer, same};
use super::machine::World;
use super::node::{Decided, Fault, Outcome, Part, Partition, Stage};
use crate::world::compared::Compared;
use crate::world::replay::{States, Undone, takes_nothing};
use crate::world::violation::{Checked, Invariant, check};

impl World {
    /// The answers after the outcome of a partition are those that it allows.
    pub(super) fn check_partition(
        &self,
        part: &Part,
        waits: &mut Partition,
        answers: &[Answer],
        at: u64,
    ) -> Checked {
        let outcome = part.outcome.as_ref().filter(|_| part.stage == Stage::Arrived);
        match outcome {
            None => {
                let expected = part
                    .unanswered()
                    .map(|decided| (decided.operation, Err(Failure::Store(Fault::Deadline))));
                same(answers, &expected.collect::<Vec<_>>(), Invariant::Reason)?;
                waits.forget();
            }
            Some(Outcome::Swapped(said)) => {
                let mut expected = Vec::new();
                for (decided, said) in part.batch.iter().zip(said) {
                    if !decided.is_answered {
                        let said = said.clone().map_err(|error| self.told_error(error));
                        expected.push((decided.operation, said));
                    }
                }
                same(answers, &expected, Invariant::Linearizable)?;
                waits.forget();
            }
            Some(Outcome::Read { states, is_refused: true, .. }) => {
                self.check_given_up(part, (states, Failure::Store(Fault::Refused)), answers)?;
                waits.forget();
            }
            Some(Outcome::Read { states, .. }) => {
                let since = *waits.lost_since.get_or_insert(at);
                if at.saturating_sub(since) > self.setup.patience {
                    self.check_given_up(part, (states, Failure::Contended), answers)?;
                    waits.forget();
                } else {
                    self.check_settled(part, waits, (states, answers))?;
                }
            }
        }
        Ok(())
    }

    fn told_error(&self, error: Undone) -> Failure<Fault> {
        Failure::Transaction(match error {
            Undone::Operation(error) => TransactionError::Operation(error),
            Undone::Blob(record, error) => {
                let name = self.places.records[record].clone();
                TransactionError::Blob { name, error }
            }
        })
    }

    /// Each operation that takes nothing when it is done alone has this answer. The others have the failure.
    fn check_given_up(
        &self,
        part: &Part,
        (states, failure): (&States, Failure<Fault>),
        answers: &[Answer],
    ) -> Checked {
        let now = self.told_time_of(part);
        let mut expected = Vec::new();
        for decided in part.unanswered() {
            let number = decided.operation;
            let decided = Decided { time: self.decided_at(number, now), ..*decided };
            let answer = match self.replay(&mut states.clone(), &decided) {
                Ok(verdict) if takes_nothing(&self.operations[number].operation, &verdict) => {
                    Ok(verdict)
                }
                _ => Err(failure.clone()),
            };
            expected.push((number, answer));
        }
        same(answers, &expected, Invariant::Settled)
    }

    /// The node does the operations again on the states that it read. An answer takes nothing, and follows from
    /// these states and from earlier refusals. The other operations wait for the next swap.
    fn check_settled(
        &self,
        part: &Part,
        waits: &mut Partition,
        (states, answers): (&States, &[Answer]),
    ) -> Checked {
        let now = self.told_time_of(part);
        let mut answers = answers.iter().peekable();
        let mut states = states.clone();
        waits.batch.clear();
        for decided in part.unanswered() {
            let number = decided.operation;
            let operation = &self.operations[number].operation;
            let time = self.decided_at(number, now);
            let mut again = Decided { operation: number, time, is_answered: false };
            let key = &self.places.keys[self.operations[number].key];
            let before = states.clone();
            let mut after = states.clone();
            let said = self.replay(&mut after, &again);
            let answer = answers.next_if(|(answered, _)| *answered == number);
            let is_nothing = after.have_nothing(key); // such as after a reset of a key that was not there
            if said.as_ref().is_ok_and(|verdict| takes_nothing(operation, verdict)) {
                states = after; // a refusal only moves the newest time
            }
            match answer {
                None => {}
                Some((_, Ok(verdict))) => {
                    let is_true = Ok(verdict) == said.as_ref()
                        && (is_nothing || takes_nothing(operation, verdict))
                        && (is_nothing || operation.is_peek() || !before.remembers(&states, key));
                    check(is_true, Invariant::Settled, || {
                        format!("number {number}, {operation:?}: {verdict:?}; read: {said:?}")
                    })?;
                    again.is_answered = true;
                }
                Some((_, error)) => {
                    self.check_error(number, error)?;
                    continue;
                }
            }
            waits.batch.push(again);
        }
        let rest: Vec<_> = answers.collect();
        check(rest.is_empty(), Invariant::Order, || {
            format!("answered out of order, or not in the swap: {rest:?}")
        })?;
        let is_stale = |each: &Compared| {
            let now = part.found(each.record);
            let written = states.written(each.record);
            written.is_some_and(|(bytes, _)| Some(bytes) != now)
        };
        waits.needs_write = part.records.iter().any(is_stale);
        Ok(())
    }

    fn told_time_of(&self, part: &Part) -> Option<Timestamp> {
        let first = part.batch.first()?;
        self.told_time(self.operations[first.operation].authority)
    }
}
