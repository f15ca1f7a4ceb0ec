//! An object decides, its storage writes, and both fail.

use tidegate_gate::{Limits, Micros, Timestamp};
use tidegate_tier::authority::Outcome;

use super::super::places::Key;
use super::super::replay::{States, Undone, takes_nothing};
use super::super::violation::{Checked, Invariant, Seen, check};
use super::machine::{Row, World};
use super::object::{Compared, Flight, Part};

impl World {
    pub(super) fn row(&self, slice: usize) -> Option<&[u8]> {
        self.storage.get(&slice).map(|row| row.bytes.as_slice())
    }

    pub(super) fn clock(&self, object: usize) -> (Timestamp, Micros) {
        self.objects[object].times(self.setup.start, self.now)
    }

    /// The time at which an operation is decided: that of its arrival, unless half a period has passed since.
    fn time_of(&self, object: usize, op: usize) -> Timestamp {
        let (now, arrived) = (self.clock(object).0, self.ops[op].arrived);
        let limits = self.places.keys[self.key_at(object, op)].resolved.limits();
        let period = limits.map_or(0, |limits: &Limits| limits.period().0);
        if now.0.saturating_sub(arrived.0) > period / 2 { now } else { arrived }
    }

    /// An object decides all that waits, and sends what it must write.
    pub(super) fn poll(&mut self, object: usize) -> Checked {
        let (now, at) = self.clock(object);
        let before = self.flights.len();
        while let Some(swap) = self.objects[object].authority.poll_swap((Some(now), at), |_| false)
        {
            let mut parts = Vec::new();
            for place in 0..swap.len() {
                let slices = self.objects[object].authority.slices(&swap, place);
                let slices: Vec<Compared> = slices
                    .map(|slice| Compared {
                        slice: self.places.slice_named(slice.name).unwrap_or(usize::MAX),
                        found: slice.found.map(<[u8]>::to_vec),
                        becomes: slice.becomes.map(<[u8]>::to_vec),
                        keep: slice.keep,
                    })
                    .collect();
                let home = self.home_with(object, &slices)?;
                parts.push(Part { home, slices, outcome: None });
            }
            self.flights.push(Flight { object, swap, parts });
        }
        let mut swapped = Vec::new();
        for flight in before..self.flights.len() {
            for part in 0..self.flights[flight].parts.len() {
                swapped.push(self.flights[flight].parts[part].home);
                self.take_off(object, flight, part)?;
            }
        }
        self.settle(object, &swapped)
    }

    fn home_with(&self, object: usize, slices: &[Compared]) -> Result<usize, Seen> {
        let of_edition = self.places.of_edition;
        let first = of_edition * self.objects[object].edition;
        let mut keys = self.places.keys[first..first + of_edition].iter();
        let slice = slices.first().map(|slice| slice.slice);
        let key = keys.find(|key| slice.is_some_and(|slice| key.slices.contains(&slice)));
        key.map(|key| key.home)
            .ok_or_else(|| Seen(Invariant::Reason, format!("a swap of no home: {slices:?}")))
    }

    /// The operations that wait on a home are decided now. Those that came too long ago are not.
    fn decide(&mut self, object: usize, home: usize) {
        let at = self.clock(object).1;
        let waits = self.objects[object].homes.entry(home).or_default();
        for op in std::mem::take(&mut waits.waiting) {
            if self.ops[op].at.0 < at.0.saturating_sub(self.setup.most_wait) {
                self.ops[op].is_late = true;
                self.tally.add("an operation waited too long");
            } else {
                let time = self.time_of(object, op);
                self.objects[object].homes.entry(home).or_default().batch.push((op, time));
            }
        }
    }

    /// A swap was sent. Operations whose answers need no write may be answered now.
    fn take_off(&mut self, object: usize, flight: usize, part: usize) -> Checked {
        let home = self.flights[flight].parts[part].home;
        // what is done again goes alone
        if self.objects[object].homes.entry(home).or_default().batch.is_empty() {
            self.decide(object, home);
        }
        let waits = self.objects[object].homes.entry(home).or_default();
        check(!waits.batch.is_empty() && !waits.is_flying, Invariant::Reason, || {
            format!("a swap of home {home}, on which nothing waits or another swap is under way")
        })?;
        waits.is_flying = true;
        let batch = waits.batch.clone();
        if batch.len() > 1 {
            self.tally.add("a swap decided several operations");
        }
        let is_forgotten =
            self.flights[flight].parts[part].slices.iter().all(|slice| slice.found.is_none());
        let mut bases = vec![self.remembered(object, home)];
        if is_forgotten {
            bases.push(States::default());
        }
        for mut base in bases {
            let said = self.predict(object, &mut base, &batch);
            self.accept(&batch, &said);
        }
        Ok(())
    }

    fn accept(
        &mut self,
        batch: &[(usize, Timestamp)],
        said: &[Result<tidegate_gate::Verdict, Undone>],
    ) {
        for ((op, _), said) in batch.iter().zip(said) {
            self.ops[*op].accepts.push(said.clone());
        }
    }

    /// The states that the object must have in memory; those of slices that it has not loaded are fresh.
    fn remembered(&self, object: usize, home: usize) -> States {
        let known = &self.objects[object].known;
        let slices = self.places.homes[home].iter().copied();
        self.own.part(&slices.filter(|slice| known.contains(slice)).collect::<Vec<_>>())
    }

    /// The homes that need no swap have answered everything, out of memory.
    fn settle(&mut self, object: usize, swapped: &[usize]) -> Checked {
        let homes: Vec<usize> = self.objects[object].homes.keys().copied().collect();
        let mut batches = Vec::new();
        for home in homes {
            if swapped.contains(&home) || self.objects[object].homes[&home].is_flying {
                continue;
            }
            self.decide(object, home);
            let waits = self.objects[object].homes.entry(home).or_default();
            let batch = std::mem::take(&mut waits.batch);
            waits.was_found = false;
            let said = self.predict(object, &mut self.remembered(object, home), &batch);
            self.accept(&batch, &said);
            batches.push(batch);
        }
        self.hear_replies(object)?;
        for batch in batches {
            for (op, time) in &batch {
                let key = self.key_at(object, *op);
                let is_known = |slice: &usize| self.objects[object].known.contains(slice);
                // an operation that fails needs no state
                let is_done = matches!(self.ops[*op].answer, Some(Ok(_)));
                let slices = &self.places.keys[key].slices;
                check(!is_done || slices.iter().all(is_known), Invariant::Stored, || {
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
                    self.check_stored(key, *time)?;
                }
            }
        }
        Ok(())
    }

    fn grants_units(&self, op: usize) -> bool {
        let op = &self.ops[op];
        op.answer.as_ref().is_some_and(|answer| {
            answer.as_ref().is_ok_and(|said| !takes_nothing(&op.operation, said))
        })
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
        let found: Vec<Option<Vec<u8>>> =
            slices.iter().map(|slice| self.row(slice.slice).map(<[u8]>::to_vec)).collect();
        let is_expected = slices.iter().zip(&found).all(|(slice, found)| slice.found == *found);
        let outcome = if self.objects[object].refuses {
            self.tally.add("storage refused to write");
            Outcome::Refused(found, "no disk")
        } else if !is_expected {
            Outcome::Found(found)
        } else {
            self.write(object, &slices);
            self.written(object, self.flights[flight].parts[part].home, &slices)?;
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
        let mut base = self.remembered(object, home);
        if slices.iter().all(|slice| slice.found.is_none()) {
            // what the object writes shows whether it still had the newest time of a refusal
            let writes = |mut states: States| {
                self.predict(object, &mut states, &batch);
                let is_same = |each: &Compared| {
                    each.becomes
                        .as_deref()
                        .is_none_or(|bytes| states.get(each.slice) == Some(bytes))
                };
                slices.iter().all(is_same)
            };
            if !writes(base.clone()) && writes(States::default()) {
                base = States::default();
            }
        }
        for slice in slices {
            self.own.put(slice.slice, base.get(slice.slice));
        }
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
        self.objects[object].known.extend(slices.iter().map(|slice| slice.slice));
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
            let was_written = outcome == Outcome::Swapped;
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
        waits.was_found &= !left.is_empty();
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
    ) -> Result<Option<Vec<(usize, Timestamp)>>, Seen> {
        let Some(waits) = self.objects[object].homes.get_mut(&part.home) else { return Ok(None) };
        waits.is_flying = false;
        let mut batch = std::mem::take(&mut waits.batch);
        match outcome {
            Outcome::Swapped => {
                waits.was_found = false;
                Ok(None)
            }
            Outcome::Found(found) => {
                waits.was_found = true;
                self.tally.add("an object read what was stored");
                // what was answered already is not done again: the stored bytes cover it
                let is_answered = |(op, _): &(usize, Timestamp)| self.ops[*op].answer.is_some();
                let (answered, left): (Vec<_>, Vec<_>) = batch.into_iter().partition(is_answered);
                self.apply_answered(object, &answered)?;
                batch = left;

                self.load(object, part, found, &batch)?;
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
        self.objects[object].homes.entry(home).or_default().was_found = false;
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
        for (slice, found) in part.slices.iter().zip(found) {
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
                let was_written = part.outcome == Some(Outcome::Swapped);
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
        let is_read = |home| {
            let mut parts = self.flights.iter().flat_map(|flight| &flight.parts);
            parts.any(|part| part.home == home && part.outcome.is_some())
        };
        let is_busy = home
            .is_some_and(|(_, home)| self.objects[object].homes[&home].was_found || is_read(home));
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
