//! Swaps on their way: what the storage does, what the authority makes of it, and whether that is true.

use tidegate_gate::{Timestamp, TransactionError, Verdict};
use tidegate_tier::authority::{Failure, SwapOutcome as Told};

use super::asking::{Answer, Asking};
use super::machine::World;
use super::node::{Decided, Fault, Outcome, Part, Stage};
use crate::world::known::gives_back;
use crate::world::ledger::Done;
use crate::world::network::nth;
use crate::world::replay::{States, Undone, takes_nothing};
use crate::world::violation::{Checked, Invariant, Seen, check};

impl World {
    /// The parts at this stage: the number of their call, and their place in it.
    pub(super) fn parts_at(&self, stage: Stage) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for (call, sent) in self.calls.iter().enumerate() {
            for (place, part) in sent.parts.iter().enumerate() {
                let is_read = sent.swap.is_some() && self.runs(sent.node);
                if part.stage == stage && (stage == Stage::Sent || is_read) {
                    found.push((call, place));
                }
            }
        }
        found
    }

    pub(super) fn execute_nth(&mut self, index: usize) -> Checked {
        match nth(&self.parts_at(Stage::Sent), index) {
            Some((call, place)) => self.execute(call, place),
            None => Ok(()),
        }
    }

    /// Executes a part again that was executed before. If the clocks and the network are good, the node
    /// gets the first reply if it gets any.
    pub(super) fn repeat_nth(&mut self, index: usize) -> Checked {
        let mut executed = Vec::new();
        for (call, sent) in self.calls.iter().enumerate() {
            let lingers = sent.sent.saturating_add(self.setup.linger) >= self.now;
            let parts = sent.parts.iter().enumerate().filter(|_| lingers);
            executed.extend(
                parts.filter(|(_, part)| part.outcome.is_some()).map(|(place, _)| (call, place)),
            );
        }
        match nth(&executed, index) {
            Some((call, place)) => self.execute(call, place),
            None => Ok(()),
        }
    }

    pub(super) fn reply_nth(&mut self, index: usize) -> Checked {
        match nth(&self.parts_at(Stage::Executed), index) {
            Some((call, place)) => self.reply(call, place),
            None => Ok(()),
        }
    }

    pub(super) fn lose_nth(&mut self, stage: Stage, index: usize) {
        if let Some((call, place)) = nth(&self.parts_at(stage), index) {
            self.calls[call].parts[place].stage = Stage::Lost;
        }
    }

    pub(super) fn deadline_nth(&mut self, index: usize) -> Checked {
        let calls = self.calls.iter().enumerate();
        let open =
            calls.filter(|(_, call)| call.swap.is_some() && self.runs(call.node)).map(|(at, _)| at);
        let open: Vec<usize> = open.collect();
        match nth(&open, index) {
            Some(call) => self.handle(call),
            None => Ok(()),
        }
    }

    /// The storage compares and swaps the records of one partition.
    pub(super) fn execute(&mut self, call: usize, place: usize) -> Checked {
        let part = &self.calls[call].parts[place];
        let now = self.storage_now();
        let bytes_of = |record: usize| self.storage.get(record, now);
        let is_as_expected = |part: &Part| {
            part.records.iter().all(|each| bytes_of(each.record) == each.found.as_deref())
        };
        let partition = &self.places.partitions[part.partition];
        let states = States::read(partition.iter().map(|record| (*record, bytes_of(*record))));
        let writes = part.records.iter().any(|each| each.becomes.is_some());
        let swaps = is_as_expected(part);
        let is_carried = |decided: &Decided| {
            let key = self.operations[decided.operation].key;
            states.is_carried(&self.places.keys[key])
        };
        let seen = [
            ("a state was carried over", swaps && writes && part.batch.iter().any(is_carried)),
            ("a swap came late", self.calls[call].swap.is_none()),
            ("a record had expired", self.storage.has_expired(partition, now)),
            ("a swap decided several operations", swaps && part.batch.len() > 1),
            ("a repeated swap wrote again", swaps && writes && part.outcome.is_some()),
            ("other bytes were found", !swaps),
            ("the storage refused to write", swaps && writes && self.storage.refuses),
        ];
        seen.iter().filter(|(_, is)| *is).for_each(|(situation, _)| self.tally.add(situation));
        let outcome = if swaps && !(writes && self.storage.refuses) {
            let mut after = states.clone();
            let said = part.batch.iter().map(|decided| self.replay(&mut after, decided)).collect();
            for each in &part.records {
                if let Some(bytes) = &each.becomes {
                    self.storage.put(each.record, bytes, now, each.ttl);
                }
            }
            self.check_written(call, place, (&states, &after))?;
            let batch = self.calls[call].parts[place].batch.iter();
            let done: Vec<usize> = batch.map(|decided| decided.operation).collect();
            self.note_relaxed(self.calls[call].parts[place].partition, &done);
            Outcome::Swapped(said)
        } else {
            let found = part.records.iter().map(|each| bytes_of(each.record).map(<[u8]>::to_vec));
            Outcome::Read { found: found.collect(), states, is_refused: swaps }
        };
        if let Outcome::Swapped(said) = &outcome {
            self.count(call, place, said)?;
        }
        let part = &mut self.calls[call].parts[place];
        if part.stage == Stage::Sent {
            part.stage = Stage::Executed;
        }
        let is_seen = part.outcome.is_none() || !self.setup.is_bounded;
        if is_seen && part.stage != Stage::Arrived {
            part.outcome = Some(outcome);
        }
        Ok(())
    }

    /// Notes the records to which units may have come back.
    pub(super) fn note_relaxed(&mut self, partition: usize, done: &[usize]) {
        if done.iter().any(|number| gives_back(&self.operations[*number].operation)) {
            for record in &self.places.partitions[partition] {
                self.relaxed[*record] = Some(self.now);
            }
        }
    }

    pub(super) fn replay(&self, states: &mut States, decided: &Decided) -> Result<Verdict, Undone> {
        let asking = &self.operations[decided.operation];
        states.operate(&self.places.keys[asking.key], decided.time, &asking.operation)
    }

    /// The storage holds what the operations of the batch write when they are done one after another.
    fn check_written(
        &self,
        call: usize,
        place: usize,
        (before, after): (&States, &States),
    ) -> Checked {
        let part = &self.calls[call].parts[place];
        let now = self.storage_now();
        for record in &self.places.partitions[part.partition] {
            let compared = part.records.iter().find(|each| each.record == *record);
            let held = self.storage.get(*record, now);
            let Some((bytes, time_to_live)) = after.written(*record) else {
                let wrote = compared.and_then(|each| each.becomes.as_ref());
                check(wrote.is_none(), Invariant::Stored, || {
                    format!("record {record} was written and no operation changed it")
                })?;
                continue;
            };
            check(held == Some(bytes), Invariant::Stored, || {
                format!(
                    "record {record}: expected {bytes:?} after {:?}, found {held:?}; before: {before:?}",
                    part.batch
                )
            })?;
            // the swap was under way, and the storage's clock may have been set meanwhile
            let late = self.setup.linger + 2 * self.setup.skew;
            let needed = time_to_live.0.saturating_add(self.setup.ttl_margin).saturating_sub(late);
            let keeps = |expiry: u64| expiry >= now.saturating_add(needed);
            let is_written = compared.is_some_and(|each| each.becomes.is_some());
            let is_kept = !self.setup.is_bounded
                || !is_written
                || self.storage.expiry(*record).is_none_or(keeps);
            check(is_kept, Invariant::Stored, || {
                let expiry = self.storage.expiry(*record);
                format!(
                    "record {record} lives for {time_to_live:?} and expires at {expiry:?}, now is {now}; \
                     the swap: {compared:?}"
                )
            })?;
        }
        Ok(())
    }

    /// Counts what a swap has made true.
    fn count(&mut self, call: usize, place: usize, said: &[Result<Verdict, Undone>]) -> Checked {
        if !self.setup.is_bounded {
            return Ok(());
        }
        for (decided, said) in self.calls[call].parts[place].batch.clone().iter().zip(said) {
            let Ok(verdict) = said else { continue };
            let is_again = self.calls[call].parts[place].outcome.is_some();
            self.make_true((decided.operation, decided.time), verdict, is_again)?;
        }
        Ok(())
    }

    /// An operation has become true. A swap has no number, so one that finds the same bytes again returns the same units
    /// again.
    pub(super) fn make_true(
        &mut self,
        (number, time): (usize, Timestamp),
        verdict: &Verdict,
        is_again: bool,
    ) -> Checked {
        let Asking { key, operation, sent, returns, .. } = self.operations[number];
        let lending = &mut self.grants.lending;
        if lending.lend((number, key), &operation, verdict, (sent, self.now))? {
            self.tally.add("a holder got units");
        }
        self.note_done(key, &operation, verdict);
        let key = &self.places.keys[key];
        if !takes_nothing(&operation, verdict) {
            key.records.iter().for_each(|record| self.changed[*record] = Some(self.now));
        }
        if !key.is_unedited {
            return Ok(());
        }
        let kept = self.kept.operate(key, time, &operation);
        check(kept.as_ref() == Ok(verdict), Invariant::Expiry, || {
            format!("number {number}, {operation:?}: {verdict:?}; had nothing expired: {kept:?}")
        })?;
        let returns = returns.map(|of| if is_again { usize::MAX } else { of });
        let done = Done { number, returns, operation: &operation, verdict };
        self.ledger.count(key, &done, &self.kept, &mut self.tally).map_err(|seen| {
            let policy = key.resolved.policy().name();
            Seen(Invariant::Bound, format!("{policy} {}: {seen}", key.resolved.key()))
        })
    }

    /// A reply arrives. Once all replies of a swap are there, the node takes them.
    pub(super) fn reply(&mut self, call: usize, place: usize) -> Checked {
        self.calls[call].parts[place].stage = Stage::Arrived;
        match self.calls[call].parts.iter().all(|part| part.stage == Stage::Arrived) {
            true => self.handle(call),
            false => Ok(()),
        }
    }

    /// The node takes the outcomes that have arrived. The others are failures.
    pub(super) fn handle(&mut self, call: usize) -> Checked {
        let Some(swap) = self.calls[call].swap.take() else { return Ok(()) };
        self.tally_outcomes(call);
        let told = self.calls[call].parts.iter().map(Part::told).collect::<Vec<_>>();
        let node = self.calls[call].node;
        let now = self.told_time(node);
        let at = self.monotonic(node);
        self.nodes[node].authority.handle(swap, told, (now, at));
        let mut answers = self.take_answers(node)?;
        for (_, answer) in &answers {
            self.tally_answer(answer);
        }
        for place in 0..self.calls[call].parts.len() {
            let partition = self.calls[call].parts[place].partition;
            let is_of = |answer: &mut Answer| self.partition_of(answer.0) == partition;
            let own: Vec<Answer> = answers.extract_if(.., is_of).collect();
            let mut waits = std::mem::take(&mut self.nodes[node].partitions[partition]);
            waits.is_swapping = false;
            self.tally_read(call, place, &own);
            self.check_partition(&self.calls[call].parts[place], &mut waits, &own, at.0)?;
            if waits.is_decided() {
                self.nodes[node].ready.push_front(partition);
            } else if waits.has_work() {
                self.nodes[node].ready.push_back(partition);
            } else {
                waits.forget();
            }
            self.nodes[node].partitions[partition] = waits;
        }
        check(answers.is_empty(), Invariant::Order, || {
            format!("answered, and not in the swap: {answers:?}")
        })
    }

    fn tally_read(&mut self, call: usize, place: usize, answers: &[Answer]) {
        let part = &self.calls[call].parts[place];
        let read = part.outcome.as_ref().filter(|_| part.stage == Stage::Arrived);
        if let Some(Outcome::Read { is_refused, .. }) = read
            && answers.iter().any(|(_, answer)| answer.is_ok())
        {
            self.tally.add(match is_refused {
                true => "a refusal was answered in spite of a failure",
                false => "a refusal was answered from what was read",
            });
        }
    }

    fn tally_answer(&mut self, answer: &Result<Verdict, Failure<Fault>>) {
        match answer {
            Err(Failure::Contended) => self.tally.add("a contended operation gave up"),
            Err(Failure::Transaction(TransactionError::Blob { .. })) => {
                self.tally.add("an operation failed on foreign bytes");
            }
            _ => {}
        }
    }

    fn tally_outcomes(&mut self, call: usize) {
        for part in &self.calls[call].parts {
            let was_stored = |outcome: &Outcome| match outcome {
                Outcome::Swapped(said) => {
                    said.iter().flatten().any(|verdict| verdict.decision.is_allowed())
                }
                Outcome::Read { .. } => false,
            };
            if part.stage != Stage::Arrived {
                self.tally.add("a deadline passed");
                if part.outcome.as_ref().is_some_and(was_stored) {
                    self.tally.add("a lost grant was stored");
                }
            }
        }
    }

    fn partition_of(&self, number: usize) -> usize {
        self.places.keys[self.operations[number].key].partition
    }
}

impl Part {
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &Decided> {
        self.batch.iter().filter(|decided| !decided.is_answered)
    }

    /// What the node is told of the part.
    fn told(&self) -> Told<Fault> {
        match self.outcome.as_ref().filter(|_| self.stage == Stage::Arrived) {
            None => Told::Failed(Fault::Deadline),
            Some(Outcome::Swapped(_)) => Told::Swapped,
            Some(Outcome::Read { found, is_refused: false, .. }) => Told::Found(found.clone()),
            Some(Outcome::Read { found, .. }) => Told::Refused(found.clone(), Fault::Refused),
        }
    }

    /// The bytes of a record that were found.
    pub(super) fn found(&self, record: usize) -> Option<&[u8]> {
        let at = self.records.iter().position(|each| each.record == record)?;
        match &self.outcome {
            Some(Outcome::Read { found, .. }) => found.get(at)?.as_deref(),
            _ => None,
        }
    }
}
