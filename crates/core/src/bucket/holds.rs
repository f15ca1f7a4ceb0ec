//! What came after a hold of a bucket, so that its true cost can take the place of its estimate.
//!
//! Let x be what was spent just after a grant. An inflow of i makes it max(x − i, 0), and a further cost of c makes it
//! min(x + c, D), where D is the most that can be spent. All sequences of such steps are functions of one form,
//!
//! x ↦ min(max(x − o, 0) + s, D − u),
//!
//! so three words per hold are enough: o, s and u. All zeros are the identity.

use super::{Config, Level, State};
use crate::hold::list::{Hold, Holds};
use crate::hold::reservable::Reservable;
use crate::limiter::{Limiter, Words, WordsMut};
use crate::never::never;
use crate::quantity::saturating_product;
use crate::time::Timestamp;

/// x ↦ min(max(x − out, 0) + spent, D − under), in scaled units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Since {
    /// o: what was spent before and has come back.
    out: u64,
    /// s: what would be spent if nothing had been spent before; at most D − u.
    spent: u64,
    /// u: by how much the most that can be spent has fallen since the debt reached D.
    under: u64,
}

impl Since {
    #[inline]
    fn of(words: &[u64]) -> Self {
        match *words {
            [out, spent, under] => Self { out, spent, under },
            _ => never(Self { out: 0, spent: u64::MAX, under: 0 }),
        }
    }

    #[inline]
    fn write_to(self, words: &mut [u64]) {
        if let Some(words) = words.first_chunk_mut() {
            *words = [self.out, self.spent, self.under];
        }
    }

    /// Units come back: max(… − i, 0).
    #[inline]
    fn flows_in(&mut self, inflow: u64, deepest: u64) {
        self.out = self.out.saturating_add(inflow.saturating_sub(self.spent));
        self.spent = self.spent.saturating_sub(inflow);
        self.under = self.under.saturating_add(inflow).min(deepest);
    }

    /// Units are taken: min(… + c, D).
    #[inline]
    fn takes(&mut self, cost: u64, deepest: u64) {
        self.under = self.under.saturating_sub(cost);
        self.spent = self.spent.saturating_add(cost).min(deepest.saturating_sub(self.under));
    }

    /// First `self`, then `next`.
    fn then(mut self, next: Self, deepest: u64) -> Self {
        self.flows_in(next.out, deepest);
        self.takes(next.spent, deepest);
        let under = self.under.max(next.under);
        Self { under, spent: self.spent.min(deepest.saturating_sub(under)), ..self }
    }

    /// What is spent after what was spent before.
    fn after(self, spent: u64, deepest: u64) -> u64 {
        let spent = spent.saturating_sub(self.out).saturating_add(self.spent);
        spent.min(deepest.saturating_sub(self.under))
    }
}

impl Config {
    /// Units in the scale of the state.
    #[inline]
    fn scaled(&self, units: u64) -> u64 {
        saturating_product(units, self.scale.value())
    }
}

/// What is spent now is what was spent before the first hold, then each hold's cost and what came after it.
impl Reservable for Config {
    const SINCE: usize = 3;

    #[inline]
    fn pass(&self, state: &mut State<impl WordsMut>, since: &mut [u64], now: Timestamp) {
        let before = state.newest();
        self.advance(state, now);
        let inflow =
            saturating_product(state.newest().saturating_since(before).0, self.inflow.value());
        let mut passed = Since::of(since);
        passed.flows_in(inflow, self.deepest);
        passed.write_to(since);
    }

    #[inline]
    fn took(&self, since: &mut [u64], units: u64) {
        let mut passed = Since::of(since);
        passed.takes(self.scaled(units), self.deepest);
        passed.write_to(since);
    }

    fn gave_back(&self, since: &mut [u64], units: u64) {
        let mut passed = Since::of(since);
        passed.flows_in(self.scaled(units), self.deepest);
        passed.write_to(since);
    }

    fn before(&self, state: &State<impl Words>) -> u64 {
        Level::of(state).spent
    }

    fn settle<H: AsRef<[u64]> + AsMut<[u64]>>(
        &self,
        state: &mut State<impl WordsMut>,
        holds: &mut Holds<H>,
        place: usize,
        actual: u64,
    ) {
        let deepest = self.deepest;
        let spent = (0..holds.len()).fold(holds.before(), |spent, at| {
            let Hold { units, .. } = holds.get(at);
            let cost = self.scaled(if at == place { actual } else { units });
            Since::of(holds.since(at)).after(spent.saturating_add(cost).min(deepest), deepest)
        });
        state.write(Level { spent, ..Level::of(state) }.to_words());

        // the hold and what came after it become a part of what came before
        let passed = Since::of(holds.since(place));
        match place.checked_sub(1) {
            None => {
                let taken = holds.before().saturating_add(self.scaled(actual)).min(deepest);
                holds.set_before(passed.after(taken, deepest));
            }
            Some(previous) => {
                let mut before = Since::of(holds.since(previous));
                before.takes(self.scaled(actual), deepest);
                before.then(passed, deepest).write_to(holds.since_mut(previous));
            }
        }
        holds.remove(place);
    }
}
