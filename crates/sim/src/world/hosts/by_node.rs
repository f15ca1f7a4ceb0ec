//! Answers that nodes give by themselves.

use tidegate_gate::{Micros, Operation, Timestamp, Verdict};

use super::asking::{Asking, Progress};
use super::machine::World;
use crate::world::clock::ticks_late;
use crate::world::front::ByNode;
use crate::world::replay::States;
use crate::world::violation::{Checked, Invariant, check};

impl World {
    /// A node has answered by itself.
    pub(super) fn answered_by_node(&mut self, number: usize, said: &Verdict) -> Checked {
        self.operations[number].state = Progress::Answered;
        let Asking { node, key, time, ref operation, .. } = self.operations[number];
        let (front, of) = (&self.nodes[node].front, (key, &self.places.keys[key]));
        let lending = self.setup.is_bounded.then_some(&mut self.grants.lending);
        match front.check_answer(lending, of, operation, (said, time), self.now)? {
            ByNode::Listed => {}
            ByNode::Factor => self.check_factor(number, said)?,
            ByNode::Repeated(sent_at) => {
                self.tally.add("a node repeated a refusal");
                self.check_still_refused(number, sent_at, said)?;
            }
            ByNode::Spent => self.tally.add("a node spent units"),
        }
        Ok(())
    }

    /// The authority would refuse the request at this moment, unless units have come back since the node
    /// asked. Clocks that differ by some span make a node repeat a refusal for so much longer.
    fn check_still_refused(&mut self, number: usize, sent_at: u64, said: &Verdict) -> Checked {
        let asking = &self.operations[number];
        let key = &self.places.keys[asking.key];
        let is_foreign = |record: &usize| self.foreign_until[*record].is_some();
        let is_relaxed = |record: &usize| self.relaxed[*record].is_some_and(|at| at >= sent_at);
        if !self.setup.is_bounded
            || !key.is_unedited
            || key.records.iter().any(|record| is_foreign(record) || is_relaxed(record))
        {
            return Ok(());
        }
        let late = match self.setup.ticks_ppm.iter().all(|ppm| *ppm == 0) {
            true => 2 * self.setup.skew,
            false => 2 * self.setup.skew + ticks_late(self.now - sent_at),
        };
        let now = self.storage_now();
        let partition = self.places.partitions[key.partition].iter();
        let mut states = match self.is_table() {
            true => self.kept.part(&self.places.partitions[key.partition]),
            false => {
                States::read(partition.map(|record| (*record, self.storage.get(*record, now))))
            }
        };
        let time = Timestamp(asking.time.0 - late);
        let (Operation::Decide(request) | Operation::Peek(request)) = asking.operation else {
            return Ok(());
        };
        let truth = states.operate(key, time, &Operation::Decide(request));
        let is_later = truth.as_ref().is_ok_and(|verdict| verdict.at > time);
        if is_later {
            return Ok(()); // another clock has moved the key's
        }
        self.tally.add("a repeated refusal was that of the authority");
        let is_unchanged =
            key.records.iter().all(|record| self.changed[*record].is_none_or(|at| at < sent_at));
        // a request for another lease may have to wait for a place too
        let is_exact = late == 0 && is_unchanged && request.cost == 1 && !key.kinds.leases;
        // the refusal was heard while holds were live, which have ended since: then all units are back earlier
        let has_held = key.resolved.policy().reservations().is_some();
        let is_true = truth.as_ref().is_ok_and(|truth| {
            let [waits, should] = [said, truth].map(|each| each.decision.retry_after());
            let is_no_longer =
                waits > Micros::ZERO && waits <= should && ends(said).0 <= ends(truth).0;
            !truth.decision.is_allowed()
                && (late > 0 || is_no_longer)
                && (!is_exact
                    || ends(said) == ends(truth)
                    || (has_held && ends(said).0 == ends(truth).0))
        });
        if is_exact {
            self.tally.add("a repeated refusal was true to the microsecond");
        }
        check(is_true, Invariant::Remembered, || {
            format!("number {number}, {asking:?}: a node said {said:?}, the authority {truth:?}")
        })
    }

    /// A node has decided by the factor that it heard last.
    fn check_factor(&mut self, number: usize, said: &Verdict) -> Checked {
        let Asking { node, key, run, ref operation, .. } = self.operations[number];
        let (of, now) = (&self.places.keys[key].resolved, self.storage_now());
        self.tally.add(match said.decision.is_allowed() {
            true => "a node decided by the factor",
            false => "a node suppressed a request",
        });
        if self.offered.is_full((key, of), now) {
            self.tally.add("callers asked for the limit of a part");
        }
        // a node whose clock is wrong takes the authority's, which it heard one question and one reply ago
        let most = if self.setup.ahead.get(node).is_none_or(|ahead| *ahead == 0) { 0 } else { 2 };
        let ahead = said.at.0.abs_diff(now);
        check(ahead <= most * self.setup.linger, Invariant::Reason, || {
            format!("number {number}: a node decided at {:?}, now is {now}", said.at)
        })?;
        self.offered.check_within(said)?;
        self.offered.decide((run, key), (of, operation), said)
    }
}

/// When a request may pass, and when all units are back; `None` if a bucket that started empty cannot know.
fn ends(said: &Verdict) -> (Timestamp, Option<Timestamp>) {
    let resets = match said.decision.reset_after() {
        Micros::MAX => None,
        span => Some(said.at.saturating_add(span)),
    };
    (said.at.saturating_add(said.decision.retry_after()), resets)
}
