//! Every operation once more, on plain words: on what the object must have in memory, and on a key that never
//! crashes.

use tidegate_core::hold::Counter;
use tidegate_gate::{
    Budget, Kind, Limit, Limits, Micros, Operation, PersistAhead, RateLimiter, Timestamp, Verdict,
};

use super::machine::World;
use crate::world::ledger::Done;
use crate::world::places::Key;
use crate::world::replay::{States, Undone};
use crate::world::violation::{Checked, Invariant, Seen, check};

/// After how many µs, beside the time of the policy, two states are compared.
const LATER: [u64; 5] = [0, 1, 150_000, 1_100_000, 2_900_000];

impl World {
    /// The key of an operation under the revision of the object.
    pub(super) fn key_at(&self, object: usize, op: usize) -> usize {
        let of_revision = self.places.of_revision;
        self.ops[op].key % of_revision + self.objects[object].revision * of_revision
    }

    /// The answers to operations that are done one after another on states.
    pub(super) fn predict(
        &self,
        object: usize,
        states: &mut States,
        batch: &[(usize, Timestamp)],
    ) -> Vec<Result<Verdict, Undone>> {
        let one = |(op, time): &(usize, Timestamp)| {
            let key = &self.places.keys[self.key_at(object, *op)];
            states.operate(key, *time, &self.ops[*op].operation)
        };
        batch.iter().map(one).collect()
    }

    /// An operation has become true.
    pub(super) fn apply(&mut self, object: usize, (op, time): (usize, Timestamp)) -> Checked {
        let key = self.key_at(object, op);
        self.meet(key, time);
        let (key, operation) = (&self.places.keys[key], self.ops[op].operation);
        let Ok(said) = self.own.operate(key, time, &operation) else { return Ok(()) };
        if self.setup.is_bounded && key.is_unedited {
            let done = Done { number: op, returns: None, operation: &operation, verdict: &said };
            let counted = self.ledger.count_reservations(key, &done, &self.own, &mut self.tally);
            counted.map_err(|seen| {
                let policy = key.resolved.policy().name();
                Seen(Invariant::Bound, format!("{policy} {}: {seen}", key.resolved.key()))
            })?;
        }
        let mut tried = self.shadow.part(&key.records);
        let (mut is_dominated, mut stays) = (true, false);
        let by_shadow = match operation {
            Operation::Decide(request) if request.cost > 0 => {
                let by_shadow = tried.operate(key, time, &operation);
                let is_allowed =
                    by_shadow.as_ref().is_ok_and(|verdict| verdict.decision.is_allowed());
                is_dominated = is_allowed || !said.decision.is_allowed();
                // what the object alone refuses is not taken
                stays = is_allowed && !said.decision.is_allowed();
                by_shadow
            }
            Operation::Budget(budget) => {
                let taken =
                    |verdict: &Verdict| verdict.effect.allowance().map_or(0, |own| own.left);
                let own = taken(&said);
                // a holder gets a share of what is left, so the other key may give it more for the same wish
                let wishes = [budget.wants].into_iter().chain(own..budget.wants);
                let same = wishes.map(|wants| {
                    let mut tried = self.shadow.part(&key.records);
                    let asked = Operation::Budget(Budget { wants, ..budget });
                    (tried.operate(key, time, &asked), tried)
                });
                let mut same =
                    same.filter(|(said, _)| said.as_ref().is_ok_and(|said| taken(said) == own));
                match same.next() {
                    Some((said, states)) => {
                        tried = states;
                        said
                    }
                    None => {
                        let most = tried.operate(key, time, &operation);
                        is_dominated = most.as_ref().is_ok_and(|said| taken(said) >= own);
                        tried = self.own.part(&key.records);
                        most
                    }
                }
            }
            Operation::Commit(..) => {
                // no crash loses a reservation, or what was committed
                let by_shadow = tried.operate(key, time, &operation);
                let effect = by_shadow.as_ref().map(|said| said.effect);
                is_dominated = effect == Ok(said.effect);
                by_shadow
            }
            _ => tried.operate(key, time, &operation),
        };
        check(is_dominated, Invariant::Dominant, || {
            format!(
                "number {op}, {operation:?} at {time:?}: the object said {said:?}; a key that never crashes: {by_shadow:?}"
            )
        })?;
        if !stays {
            for record in &key.records {
                self.shadow.put(*record, tried.get(*record));
            }
        }
        // a state forgives debts beyond its limit, and one with a charge ahead does so sooner
        if matches!(operation, Operation::Commit(..))
            && said.limits.iter().any(|each| each.remaining() == 0)
        {
            self.trust(self.key_at(object, op));
        }
        Ok(())
    }

    /// If a clock has gone back since the memory was lost, the two states live at different times. The key that
    /// never crashes then goes on with what was stored.
    fn meet(&mut self, key: usize, time: Timestamp) {
        let at = |states: &mut States, key: &Key| {
            Some(states.operate(key, time, &Operation::from(0)).ok()?.at)
        };
        let own = &self.places.keys[key];
        if at(&mut self.own, own) != at(&mut self.shadow, own) {
            self.tally.add("a clock went back over a crash");
            self.trust(key);
        }
    }

    /// From now on the key that never crashes has the state that the object has.
    fn trust(&mut self, key: usize) {
        for record in &self.places.keys[key].records {
            self.shadow.put(*record, self.own.get(*record));
        }
    }

    /// What is stored leaves no more than a key that never crashes has, at the time at which an object that has read it
    /// would decide this operation, and later. Storage need not keep a state for the time at which the operation was
    /// decided: its write may come long after that.
    pub(super) fn check_stored(&self, object: usize, op: usize) -> Checked {
        let time = self.time_of(object, op);
        let key = &self.places.keys[self.key_at(object, op)];
        let rows = key.records.iter().map(|record| (*record, self.row(*record)));
        let (mut stored, mut shadow) = (States::read(rows), self.shadow.part(&key.records));
        let ahead = key.resolved.policy().persist_ahead();
        for later in LATER.into_iter().chain(ahead.map(|ahead| ahead.time.0)) {
            let time = time.saturating_add(Micros(later));
            let (Some(left), Some(most)) =
                (remaining(&mut stored, key, time), remaining(&mut shadow, key, time))
            else {
                continue;
            };
            // the two do not live at the same time if a clock goes back
            let is_less =
                left.0 != most.0 || left.1.iter().zip(&most.1).all(|(one, other)| one <= other);
            check(is_less, Invariant::Dominant, || {
                format!(
                    "{} of {}: at {time:?} the stored bytes leave {left:?}, and a key that never crashes {most:?}; stored: {stored:?}, never crashed: {shadow:?}",
                    key.resolved.key(),
                    key.resolved.policy().name()
                )
            })?;
        }
        Ok(())
    }

    /// Memory was replaced by what is stored: no more is lost than was charged ahead.
    pub(super) fn check_cost(
        &mut self,
        key: usize,
        time: Timestamp,
        (before, after): (&States, &States),
    ) -> Checked {
        if !self.setup.is_bounded {
            return Ok(()); // a clock may go back over a crash by more than a period
        }
        let key = &self.places.keys[key];
        let (mut before, mut after) = (before.part(&key.records), after.part(&key.records));
        let (Some(was), Some(is)) =
            (remaining(&mut before, key, time), remaining(&mut after, key, time))
        else {
            return Ok(());
        };
        if was.0 != is.0 {
            return Ok(()); // a clock went back over a crash
        }
        let limits = key.resolved.limits().into_iter().flat_map(Limits::iter);
        let limits = limits.filter(|named| named.limit.kind() == Kind::Rate);
        for ((named, was), is) in limits.zip(&was.1).zip(&is.1) {
            let most =
                key.resolved.policy().persist_ahead().map_or(0, |own| cost(&named.limit, own));
            if is < was && most > 0 {
                self.tally.add("a crash cost units");
            }
            check(is <= was && was - is <= most, Invariant::Cost, || {
                format!(
                    "{} of {} at {time:?}: {is} of {was} units are left, expected to lose at most {most}; before: {before:?}; after: {after:?}",
                    key.resolved.key(),
                    key.resolved.policy().name()
                )
            })?;
        }
        Ok(())
    }
}

/// The time at which a key lives, and the units that each limit on units over time leaves.
fn remaining(states: &mut States, key: &Key, time: Timestamp) -> Option<(Timestamp, Vec<u64>)> {
    let said = states.operate(key, time, &Operation::from(0)).ok()?;
    let limits = key.resolved.limits()?.iter().zip(&said.limits);
    let limits = limits.filter(|(named, _)| named.limit.kind() == Kind::Rate);
    Some((said.at, limits.map(|(_, said)| said.remaining()).collect()))
}

/// The units that a crash may cost: those that are charged, and what flows in meanwhile, of which a started unit
/// counts.
fn cost(limit: &Limit, ahead: PersistAhead) -> u64 {
    let bucket = match limit {
        Limit::TokenBucket(bucket) => Some(bucket),
        Limit::Holding(limit) => match limit.counter() {
            Counter::TokenBucket(bucket) => Some(bucket),
            _ => None,
        },
        _ => None,
    };
    let inflow = match bucket {
        Some(bucket) => {
            let (units, period) = bucket.rate();
            let fill = (bucket.capacity() * period.0).div_ceil(units);
            let span = ahead.time.0.min(fill.div_ceil(2));
            (units * span).div_ceil(period.0) + 1
        }
        None => 0,
    };
    ahead.most.min(limit.capacity()) + inflow
}
