//! Storage reads and writes, an object learns what came of it, and both fail.

use tidegate_gate::Timestamp;
use tidegate_tier::authority::Outcome;

use super::super::places::Key;
use super::super::replay::{States, takes_nothing};
use super::super::violation::{Checked, Invariant, Seen, check};
use super::machine::{Row, World};
use super::object::{Batch, Compared, Flight, Part};

impl World {
    pub(super) fn row(&self, slice: usize) -> Option<&[u8]> {
        self.storage.get(&slice).map(|row| row.bytes.as_slice())
    }

    pub(super) fn execute_nth(&mut self, index: usize) -> Checked {
        let Some(index) = index.checked_rem(self.flights.len()) else { return Ok(()) };
        for part in 0..self.flights[index].parts.len() {
            self.execute(index, part)?;
        }
        Ok(())
    }

    /// Storage gets to a part of a swap.
    pub(super) fn execute(&mut self, flight: usize, part: usize) -> Checked {
        let object = self.flights[flight].object;
        if self.flights[flight].parts[part].outcome.is_some() {
            return Ok(());
        }
        let slices = std::mem::take(&mut self.flights[flight].parts[part].slices);
        let read = |slice: &Compared| match slice.is_known {
            true => slice.found.clone(),
            false => self.row(slice.slice).map(<[u8]>::to_vec),
        };
        let found: Vec<Option<Vec<u8>>> = slices.iter().map(read).collect();
        let is_expected = slices.iter().zip(&found).all(|(slice, found)| slice.found == *found);
        let writes = slices.iter().any(|slice| slice.becomes.is_some());
        let outcome = if self.objects[object].refuses && writes {
            self.tally.add("storage refused to write");
            Outcome::Refused(found, "no disk")
        } else if !is_expected {
            Outcome::Found(found)
        } else {
            self.write(object, &slices);
            if slices.iter().all(|slice| slice.is_known) {
                self.written(object, self.flights[flight].parts[part].home, &slices)?;
            }
            Outcome::Swapped
        };
        let part = &mut self.flights[flight].parts[part];
        (part.slices, part.outcome) = (slices, Some(outcome));
        Ok(())
    }

    fn write(&mut self, object: usize, slices: &[Compared]) {
        let now = self.clock(object).0.0;
        for slice in slices {
            let Some(bytes) = &slice.becomes else { continue };
            let before = self.storage.get(&slice.slice).map_or(0, |row| row.expires_at);
            let keep = slice.keep.map_or(0, |keep| now.saturating_add(keep.0));
            let row = Row { bytes: bytes.clone(), expires_at: before.max(keep), object };
            self.storage.insert(slice.slice, row);
        }
    }

    /// The operations of a batch are true now.
    fn written(&mut self, object: usize, home: usize, slices: &[Compared]) -> Checked {
        let batch = self.objects[object].homes[&home].batch.clone();
        for each in &batch {
            self.apply(object, *each)?;
        }
        let is_ahead = self.places.keys[self.key_at(object, batch[0].0)]
            .resolved
            .policy()
            .persist_ahead()
            .is_some();
        for slice in slices.iter().filter(|_| !is_ahead) {
            let (own, becomes) = (self.own.get(slice.slice), slice.becomes.as_deref());
            check(becomes.is_none() || own == becomes, Invariant::Stored, || {
                format!("{slice:?}: expected {own:?} to be written after {batch:?}")
            })?;
        }
        for (op, time) in &batch {
            self.check_stored(self.key_at(object, *op), *time)?;
        }
        Ok(())
    }

    /// The object learns what came of a swap.
    pub(super) fn finish_nth(&mut self, index: usize, fails: bool) -> Checked {
        let Some(index) = index.checked_rem(self.flights.len()) else { return Ok(()) };
        let is_over = self.flights[index].parts.iter().all(|part| part.outcome.is_some());
        if !is_over && !fails {
            return Ok(());
        }
        let Flight { object, swap, mut parts } = self.flights.remove(index);
        let mut told = Vec::new();
        let mut failed = Vec::new();
        for part in &mut parts {
            let outcome = part.outcome.take().unwrap_or(Outcome::Failed("no disk"));
            let was_written = outcome == Outcome::Swapped && !part.reads();
            let outcome = if fails { Outcome::Failed("no disk") } else { outcome };
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
        parts.iter().try_for_each(|part| self.end_answered(object, part.home))?;
        failed.into_iter().try_for_each(|batch| self.apply_answered(object, &batch))
    }

    /// Operations that were done again and answered at once are over.
    fn end_answered(&mut self, object: usize, home: usize) -> Checked {
        let Some(waits) = self.objects[object].homes.get_mut(&home) else { return Ok(()) };
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

    /// What the home knows of an outcome. Returns the operations that fail, unless they were answered.
    fn land(
        &mut self,
        object: usize,
        part: &Part,
        outcome: &Outcome<&'static str>,
    ) -> Result<Option<Batch>, Seen> {
        let Some(waits) = self.objects[object].homes.get_mut(&part.home) else { return Ok(None) };
        waits.is_flying = false;
        let mut batch = std::mem::take(&mut waits.batch);
        match outcome {
            Outcome::Swapped if !part.reads() => Ok(None),
            Outcome::Swapped | Outcome::Found(_) => {
                self.tally.add("an object read what was stored");
                let found = match outcome {
                    Outcome::Found(found) => found.clone(),
                    _ => part.slices.iter().map(|slice| slice.found.clone()).collect(),
                };
                self.load(object, part, &found, &batch)?;
                for each in &mut batch {
                    each.1 = self.time_of(object, each.0);
                }
                let said = self.predict(object, &mut self.remembered(object, part.home), &batch);
                self.accept(&batch, &said);
                self.objects[object].homes.entry(part.home).or_default().batch = batch;
                Ok(None)
            }
            Outcome::Refused(found, _) => {
                let slices = part.slices.iter().map(|slice| slice.slice);
                let read = States::read(slices.zip(found.iter().map(Option::as_deref)));
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
                self.forget(object, part.home, &batch);
                Ok(Some(batch))
            }
            Outcome::Failed(_) => {
                self.tally.add("a swap failed");
                self.forget(object, part.home, &batch);
                Ok(Some(batch))
            }
        }
    }

    /// The memory of a home is gone.
    fn forget(&mut self, object: usize, home: usize, batch: &[(usize, Timestamp)]) {
        batch.iter().for_each(|(op, _)| self.ops[*op].may_fail = true);
        for slice in &self.places.homes[home] {
            self.objects[object].known.remove(slice);
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
        let read = part.slices.iter().zip(found).filter(|(slice, _)| !slice.is_known);
        for (slice, found) in read {
            self.own.put(slice.slice, found.as_deref());
            if !self.setup.is_bounded() {
                // the clock may have gone back over the crash by more than a period
                self.shadow.put(slice.slice, found.as_deref());
            }
        }
        self.objects[object].known.extend(part.slices.iter().map(|slice| slice.slice));
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
                self.check_stored(self.key_at(object, *op), *time)?;
            }
        }
        Ok(())
    }

    /// An object loses its memory.
    pub(super) fn crash(&mut self, object: usize, mut written: u64) -> Checked {
        let mut flight = 0;
        while flight < self.flights.len() {
            if self.flights[flight].object != object {
                flight += 1;
                continue;
            }
            for part in 0..self.flights[flight].parts.len() {
                if written & 1 == 1 {
                    self.execute(flight, part)?;
                }
                written >>= 1;
            }
            let Flight { parts, .. } = self.flights.remove(flight);
            for part in parts {
                let was_written = part.outcome == Some(Outcome::Swapped) && !part.reads();
                self.tally.add(match was_written {
                    true => "an object crashed after its write",
                    false => "an object crashed before its write",
                });
                let batch = self.objects[object].homes.entry(part.home).or_default().batch.clone();
                if !was_written {
                    self.apply_answered(object, &batch)?;
                }
            }
        }
        self.tally.add("an object crashed");
        self.objects[object].restart(&self.setup, self.now);
        Ok(())
    }

    /// An object writes what it has decided, and starts again with the other edition of its policies.
    pub(super) fn edit(&mut self, object: usize) -> Checked {
        self.crash(object, u64::MAX)?;
        self.objects[object].edition ^= 1;
        let edited = |key: &&Key| !key.is_unedited && self.object_of(key) == object;
        let edited = self.places.keys.iter().filter(edited).flat_map(|key| &key.slices);
        for slice in edited.copied().collect::<Vec<_>>() {
            let row = self.storage.get(&slice).map(|row| row.bytes.as_slice());
            self.shadow.put(slice, row);
            self.own.put(slice, row);
        }
        self.tally.add("an object got another edition of its policies");
        Ok(())
    }

    /// Storage deletes a state whose time has come, also long after that.
    pub(super) fn expire(&mut self, slice: usize) {
        let Some(slice) = slice.checked_rem(self.places.slices.len()) else { return };
        let Some(row) = self.storage.get(&slice) else { return };
        let object = row.object;
        let is_over = self.clock(object).0.0 >= row.expires_at;
        let home = self.places.homes.iter().zip(0..).find(|(home, number)| {
            home.contains(&slice) && self.objects[object].homes.contains_key(number)
        });
        // storage has one thread, which need not be modelled twice in one decision
        let is_busy = home.is_some_and(|(_, home)| {
            let mut parts = self.flights.iter().flat_map(|flight| &flight.parts);
            parts.any(|part| part.home == home && part.outcome.is_some())
        });
        // a clock that is wrong may delete what the object still counts on
        let is_known = !self.setup.is_bounded() && self.objects[object].known.contains(&slice);
        if is_over && !is_busy && !is_known {
            self.tally.add("a state had expired");
            self.storage.remove(&slice);
            if !self.setup.is_bounded() {
                self.shadow.forget(slice);
            }
        }
    }
}
