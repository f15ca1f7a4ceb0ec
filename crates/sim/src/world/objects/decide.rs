//! An object decides.

use std::collections::BTreeSet;

use tidegate_gate::{Limits, Micros, Timestamp};

use super::machine::World;
use super::object::{Batch, Part, UnderWay};
use crate::world::compared::{Compared, compared};
use crate::world::replay::{States, Undone, takes_nothing};
use crate::world::violation::{Checked, Invariant, Seen, check};

impl World {
    pub(super) fn clock(&self, object: usize) -> (Timestamp, Micros) {
        self.objects[object].times(self.setup.start, self.now)
    }

    /// The time at which an operation is decided: that of its arrival, unless half a period has passed since.
    pub(super) fn time_of(&self, object: usize, op: usize) -> Timestamp {
        let (now, arrived) = (self.clock(object).0, self.ops[op].arrived);
        let limits = self.places.keys[self.key_at(object, op)].resolved.limits();
        let period = limits.map_or(0, |limits: &Limits| limits.period().0);
        if now.0.saturating_sub(arrived.0) > period / 2 { now } else { arrived }
    }

    /// An object decides all that waits, and sends what it must write.
    pub(super) fn poll(&mut self, object: usize) -> Checked {
        let (now, at) = self.clock(object);
        let before = self.swaps.len();
        while let Some(swap) = self.objects[object].authority.poll_swap((Some(now), at), |_| false)
        {
            let mut parts = Vec::new();
            for place in 0..swap.len() {
                let authority = &mut self.objects[object].authority;
                let records = compared(authority, (&swap, place), &self.places)?;
                let partition = self.partition_with(object, &records)?;
                parts.push(Part { partition, records, outcome: None });
            }
            self.swaps.push(UnderWay { object, swap, parts });
        }
        let (mut swapped, mut settled) = (Vec::new(), Vec::new());
        for swap in before..self.swaps.len() {
            for part in 0..self.swaps[swap].parts.len() {
                swapped.push(self.swaps[swap].parts[part].partition);
                settled.push(self.swap_sent(object, swap, part)?);
            }
        }
        self.settle(object, &swapped, settled)
    }

    fn partition_with(&self, object: usize, records: &[Compared]) -> Result<usize, Seen> {
        let of_revision = self.places.of_revision;
        let first = of_revision * self.objects[object].revision;
        let mut keys = self.places.keys[first..first + of_revision].iter();
        let record = records.first().map(|record| record.record);
        let key = keys.find(|key| record.is_some_and(|record| key.records.contains(&record)));
        key.map(|key| key.partition)
            .ok_or_else(|| Seen(Invariant::Reason, format!("a swap of no partition: {records:?}")))
    }

    /// The first operations that wait on a partition are begun: those that are meant. Those that came too long ago are
    /// not.
    fn begin_waiting(
        &mut self,
        (object, partition): (usize, usize),
        is_meant: impl Fn(&[usize]) -> bool,
    ) -> Batch {
        let at = self.clock(object).1;
        let mut waiting = std::mem::take(
            &mut self.objects[object].partitions.entry(partition).or_default().waiting,
        );
        let mut batch = Batch::new();
        while let Some(op) = waiting.pop_front() {
            if self.ops[op].at.0 < at.0.saturating_sub(self.setup.most_wait) {
                self.ops[op].is_late = true;
                self.tally.add("an operation waited too long");
            } else if is_meant(&self.places.keys[self.key_at(object, op)].records) {
                batch.push((op, self.time_of(object, op)));
            } else {
                waiting.push_front(op);
                break;
            }
        }
        self.objects[object].partitions.entry(partition).or_default().waiting = waiting;
        batch
    }

    /// A swap was sent. Operations whose answers need no write may be answered now. Returns those before the first
    /// one that needs to read: they have their answers.
    fn swap_sent(&mut self, object: usize, swap: usize, part: usize) -> Result<Batch, Seen> {
        let part = &self.swaps[swap].parts[part];
        let (partition, reads) = (part.partition, part.reads());
        let listed: BTreeSet<usize> = part
            .records
            .iter()
            .filter(|record| !reads || !record.is_known)
            .map(|record| record.record)
            .collect();
        let mut settled = Batch::new();
        // what is done again goes alone
        if self.objects[object].partitions.entry(partition).or_default().batch.is_empty() {
            let batch = if reads {
                self.forget_unknown(object, partition, &listed);
                let knows =
                    |records: &[usize]| !records.iter().any(|record| listed.contains(record));
                settled = self.begin_waiting((object, partition), knows);
                self.begin_waiting((object, partition), |_| true)
            } else {
                let is_listed =
                    |records: &[usize]| records.iter().all(|record| listed.contains(record));
                self.begin_waiting((object, partition), is_listed)
            };
            self.objects[object].partitions.entry(partition).or_default().batch = batch;
        }
        let waits = self.objects[object].partitions.entry(partition).or_default();
        check(!waits.batch.is_empty() && !waits.is_swapping, Invariant::Reason, || {
            format!(
                "a swap of partition {partition}, on which nothing waits or another swap is under way"
            )
        })?;
        waits.is_swapping = true;
        let batch = waits.batch.clone();
        if batch.len() > 1 {
            self.tally.add("a swap decided several operations");
        }
        let begun = if reads { &settled } else { &batch };
        let said = self.predict(object, &mut self.remembered(object, partition), begun);
        self.accept(begun, &said);
        Ok(settled)
    }

    /// The object asks for records that it knew: it has forgotten the partition.
    fn forget_unknown(&mut self, object: usize, partition: usize, unknown: &BTreeSet<usize>) {
        let known = &mut self.objects[object].known;
        if unknown.iter().any(|record| known.contains(record)) {
            self.tally.add("an object had forgotten a partition");
            known.retain(|record| !self.places.partitions[partition].contains(record));
        }
    }

    pub(super) fn accept(
        &mut self,
        batch: &[(usize, Timestamp)],
        said: &[Result<tidegate_gate::Verdict, Undone>],
    ) {
        for ((op, _), said) in batch.iter().zip(said) {
            self.ops[*op].accepts.push(said.clone());
        }
    }

    /// The states that the object must have in memory; those of records that it has not loaded are fresh.
    pub(super) fn remembered(&self, object: usize, partition: usize) -> States {
        let known = &self.objects[object].known;
        let records = self.places.partitions[partition].iter().copied();
        self.own.part(&records.filter(|record| known.contains(record)).collect::<Vec<_>>())
    }

    /// The partitions that need no swap have answered everything, out of memory.
    fn settle(&mut self, object: usize, swapped: &[usize], mut batches: Vec<Batch>) -> Checked {
        let partitions: Vec<usize> = self.objects[object].partitions.keys().copied().collect();
        for partition in partitions {
            if swapped.contains(&partition)
                || self.objects[object].partitions[&partition].is_swapping
            {
                continue;
            }
            let batch = self.begin_waiting((object, partition), |_| true);
            let said = self.predict(object, &mut self.remembered(object, partition), &batch);
            self.accept(&batch, &said);
            batches.push(batch);
        }
        self.hear_replies(object)?;
        for batch in batches {
            for (op, time) in &batch {
                let key = self.key_at(object, *op);
                let is_known = |record: &usize| self.objects[object].known.contains(record);
                // an operation that fails needs no state
                let is_done = matches!(self.ops[*op].answer, Some(Ok(_)));
                let records = &self.places.keys[key].records;
                check(!is_done || records.iter().all(is_known), Invariant::Stored, || {
                    format!("number {op} was answered on the guess that nothing is stored")
                })?;
                check(self.ops[*op].answer.is_some(), Invariant::Reason, || {
                    format!("number {op} was decided, and has no answer and no swap")
                })?;
                if is_done {
                    self.tally.add("an object answered without a write");
                    if self.grants_units(*op) {
                        self.tally.add("units that were stored ahead were granted");
                    }
                    self.apply(object, (*op, *time))?;
                    self.check_stored(object, *op)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn grants_units(&self, op: usize) -> bool {
        let op = &self.ops[op];
        op.answer.as_ref().is_some_and(|answer| {
            answer.as_ref().is_ok_and(|said| !takes_nothing(&op.operation, said))
        })
    }
}
