//! Storage reads and writes, an object learns what came of it, and both fail.

use tidegate_gate::Timestamp;
use tidegate_tier::authority::SwapOutcome;

use super::machine::{Row, World};
use super::object::{Batch, Part, UnderWay};
use crate::world::compared::Compared;
use crate::world::places::Key;
use crate::world::replay::{States, takes_nothing};
use crate::world::violation::{Checked, Invariant, Seen, check};

impl World {
    pub(super) fn row(&self, record: usize) -> Option<&[u8]> {
        self.storage.get(&record).map(|row| row.bytes.as_slice())
    }

    pub(super) fn execute_nth(&mut self, index: usize) -> Checked {
        let Some(index) = index.checked_rem(self.swaps.len()) else { return Ok(()) };
        for part in 0..self.swaps[index].parts.len() {
            self.execute(index, part)?;
        }
        Ok(())
    }

    /// Storage gets to a part of a swap.
    pub(super) fn execute(&mut self, swap: usize, part: usize) -> Checked {
        let object = self.swaps[swap].object;
        if self.swaps[swap].parts[part].outcome.is_some() {
            return Ok(());
        }
        let records = std::mem::take(&mut self.swaps[swap].parts[part].records);
        let read = |record: &Compared| match record.is_known {
            true => record.found.clone(),
            false => self.row(record.record).map(<[u8]>::to_vec),
        };
        let found: Vec<Option<Vec<u8>>> = records.iter().map(read).collect();
        let is_expected = records.iter().zip(&found).all(|(record, found)| record.found == *found);
        let writes = records.iter().any(|record| record.becomes.is_some());
        let outcome = if self.objects[object].refuses && writes {
            self.tally.add("storage refused to write");
            SwapOutcome::Refused(found, "no disk")
        } else if !is_expected {
            SwapOutcome::Found(found)
        } else {
            self.write(object, &records);
            if records.iter().all(|record| record.is_known) {
                self.written(object, self.swaps[swap].parts[part].partition, &records)?;
            }
            SwapOutcome::Swapped
        };
        let part = &mut self.swaps[swap].parts[part];
        (part.records, part.outcome) = (records, Some(outcome));
        Ok(())
    }

    fn write(&mut self, object: usize, records: &[Compared]) {
        let now = self.clock(object).0.0;
        for record in records {
            let Some(bytes) = &record.becomes else { continue };
            let before = self.storage.get(&record.record).map_or(0, |row| row.expires_at);
            let keep = record.ttl.map_or(0, |ttl| now.saturating_add(ttl.0));
            let row = Row { bytes: bytes.clone(), expires_at: before.max(keep), object };
            self.storage.insert(record.record, row);
        }
    }

    /// The operations of a batch are true now.
    fn written(&mut self, object: usize, partition: usize, records: &[Compared]) -> Checked {
        let batch = self.objects[object].partitions[&partition].batch.clone();
        for each in &batch {
            self.apply(object, *each)?;
        }
        let is_ahead = self.places.keys[self.key_at(object, batch[0].0)]
            .resolved
            .policy()
            .persist_ahead()
            .is_some();
        for record in records.iter().filter(|_| !is_ahead) {
            let (own, becomes) = (self.own.get(record.record), record.becomes.as_deref());
            check(becomes.is_none() || own == becomes, Invariant::Stored, || {
                format!("{record:?}: expected {own:?} to be written after {batch:?}")
            })?;
        }
        for (op, _) in &batch {
            self.check_stored(object, *op)?;
        }
        Ok(())
    }

    /// The object learns what came of a swap.
    pub(super) fn finish_nth(&mut self, index: usize, fails: bool) -> Checked {
        let Some(index) = index.checked_rem(self.swaps.len()) else { return Ok(()) };
        let is_over = self.swaps[index].parts.iter().all(|part| part.outcome.is_some());
        if !is_over && !fails {
            return Ok(());
        }
        let UnderWay { object, swap, mut parts } = self.swaps.remove(index);
        let mut told = Vec::new();
        let mut failed = Vec::new();
        for part in &mut parts {
            let outcome = part.outcome.take().unwrap_or(SwapOutcome::Failed("no disk"));
            let was_written = outcome == SwapOutcome::Swapped && !part.reads();
            let outcome = if fails { SwapOutcome::Failed("no disk") } else { outcome };
            if let Some(batch) = self.land(object, part, &outcome)?
                && !was_written
            {
                failed.push(batch);
            }
            told.push(outcome);
        }
        let (now, at) = self.clock(object);
        self.objects[object].authority.handle(swap, told, (Some(now), at));
        self.hear_replies(object)?;
        parts.iter().try_for_each(|part| self.end_answered(object, part.partition))?;
        failed.into_iter().try_for_each(|batch| self.apply_answered(object, &batch))
    }

    /// Operations that were done again and answered at once are over.
    fn end_answered(&mut self, object: usize, partition: usize) -> Checked {
        let Some(waits) = self.objects[object].partitions.get_mut(&partition) else {
            return Ok(());
        };
        // in their order: later ones may be done at later times
        let is_left = |(op, _): &(usize, Timestamp)| self.ops[*op].answer.is_none();
        let mut over = std::mem::take(&mut waits.batch);
        let left = over.split_off(over.iter().position(is_left).unwrap_or(over.len()));
        waits.batch = left;
        for each in over {
            self.apply(object, each)?;
        }
        Ok(())
    }

    /// What the partition knows of an outcome. Returns the operations that fail, unless they were answered.
    fn land(
        &mut self,
        object: usize,
        part: &Part,
        outcome: &SwapOutcome<&'static str>,
    ) -> Result<Option<Batch>, Seen> {
        let Some(waits) = self.objects[object].partitions.get_mut(&part.partition) else {
            return Ok(None);
        };
        waits.is_swapping = false;
        let mut batch = std::mem::take(&mut waits.batch);
        match outcome {
            SwapOutcome::Swapped if !part.reads() => Ok(None),
            SwapOutcome::Swapped | SwapOutcome::Found(_) => {
                self.tally.add("an object read what was stored");
                let found = match outcome {
                    SwapOutcome::Found(found) => found.clone(),
                    _ => part.records.iter().map(|record| record.found.clone()).collect(),
                };
                self.load(object, part, &found, &batch)?;
                for each in &mut batch {
                    each.1 = self.time_of(object, each.0);
                }
                let said =
                    self.predict(object, &mut self.remembered(object, part.partition), &batch);
                self.accept(&batch, &said);
                self.objects[object].partitions.entry(part.partition).or_default().batch = batch;
                Ok(None)
            }
            SwapOutcome::Refused(found, _) => {
                let records = part.records.iter().map(|record| record.record);
                let read = States::read(records.zip(found.iter().map(Option::as_deref)));
                for (op, _) in &batch {
                    let one = [(*op, self.time_of(object, *op))];
                    let said = self.predict(object, &mut read.clone(), &one);
                    if said
                        .iter()
                        .flatten()
                        .any(|said| takes_nothing(&self.ops[*op].operation, said))
                    {
                        self.accept(&one, &said);
                    }
                }
                self.forget(object, part.partition, &batch);
                Ok(Some(batch))
            }
            SwapOutcome::Failed(_) | SwapOutcome::Unreadable(_) => {
                self.tally.add("a swap failed");
                self.forget(object, part.partition, &batch);
                Ok(Some(batch))
            }
        }
    }

    /// The memory of a partition is gone.
    fn forget(&mut self, object: usize, partition: usize, batch: &[(usize, Timestamp)]) {
        batch.iter().for_each(|(op, _)| self.ops[*op].may_fail = true);
        for record in &self.places.partitions[partition] {
            self.objects[object].known.remove(record);
        }
    }

    /// What storage holds takes the place of what was in memory.
    fn load(
        &mut self,
        object: usize,
        part: &Part,
        found: &[Option<Vec<u8>>],
        batch: &[(usize, Timestamp)],
    ) -> Checked {
        let before = self.own.clone();
        let read = part.records.iter().zip(found).filter(|(record, _)| !record.is_known);
        for (record, found) in read {
            self.own.put(record.record, found.as_deref());
            if !self.setup.is_bounded {
                // the clock may have gone back over the crash by more than a period
                self.shadow.put(record.record, found.as_deref());
            }
        }
        self.objects[object].known.extend(part.records.iter().map(|record| record.record));
        let after = self.own.clone();
        let now = self.clock(object).0;
        for (op, _) in batch {
            let key = self.key_at(object, *op);
            if self.places.keys[key].is_unedited {
                self.check_cost(key, now, (&before, &after))?;
            }
        }
        Ok(())
    }

    /// Of the operations that storage did not write, those are true whose answers were sent.
    fn apply_answered(&mut self, object: usize, batch: &[(usize, Timestamp)]) -> Checked {
        for (op, time) in batch {
            if self.grants_units(*op) {
                self.tally.add("a grant was answered before a write that failed");
                self.apply(object, (*op, *time))?;
                self.check_stored(object, *op)?;
            }
        }
        Ok(())
    }

    /// An object loses its memory.
    pub(super) fn crash(&mut self, object: usize, mut written: u64) -> Checked {
        let mut swap = 0;
        while swap < self.swaps.len() {
            if self.swaps[swap].object != object {
                swap += 1;
                continue;
            }
            for part in 0..self.swaps[swap].parts.len() {
                if written & 1 == 1 {
                    self.execute(swap, part)?;
                }
                written >>= 1;
            }
            let UnderWay { parts, .. } = self.swaps.remove(swap);
            for part in parts {
                let was_written = part.outcome == Some(SwapOutcome::Swapped) && !part.reads();
                self.tally.add(match was_written {
                    true => "an object crashed after its write",
                    false => "an object crashed before its write",
                });
                let batch = self.objects[object]
                    .partitions
                    .entry(part.partition)
                    .or_default()
                    .batch
                    .clone();
                if !was_written {
                    self.apply_answered(object, &batch)?;
                }
            }
        }
        self.tally.add("an object crashed");
        self.objects[object].restart(&self.setup, self.now);
        Ok(())
    }

    /// An object writes what it has decided, and starts again with the other revision of its policies.
    pub(super) fn edit(&mut self, object: usize) -> Checked {
        self.crash(object, u64::MAX)?;
        self.objects[object].revision ^= 1;
        let edited = |key: &&Key| !key.is_unedited && self.object_of(key) == object;
        let edited = self.places.keys.iter().filter(edited).flat_map(|key| &key.records);
        for record in edited.copied().collect::<Vec<_>>() {
            let row = self.storage.get(&record).map(|row| row.bytes.as_slice());
            self.shadow.put(record, row);
            self.own.put(record, row);
        }
        self.tally.add("an object got another revision of its policies");
        Ok(())
    }

    /// Storage deletes a state whose time has come, also long after that.
    pub(super) fn expire(&mut self, record: usize) {
        let Some(record) = record.checked_rem(self.places.records.len()) else { return };
        let Some(row) = self.storage.get(&record) else { return };
        let object = row.object;
        let is_over = self.clock(object).0.0 >= row.expires_at;
        let partition = self.places.partitions.iter().zip(0..).find(|(partition, number)| {
            partition.contains(&record) && self.objects[object].partitions.contains_key(number)
        });
        // storage has one thread, which need not be modelled twice in one decision
        let is_busy = partition.is_some_and(|(_, partition)| {
            let mut parts = self.swaps.iter().flat_map(|swap| &swap.parts);
            parts.any(|part| part.partition == partition && part.outcome.is_some())
        });
        // a clock that is wrong may delete what the object still counts on
        let is_known = !self.setup.is_bounded && self.objects[object].known.contains(&record);
        if is_over && !is_busy && !is_known {
            self.tally.add("a state had expired");
            self.storage.remove(&record);
            if !self.setup.is_bounded {
                self.shadow.forget(record);
            }
        }
    }
}
