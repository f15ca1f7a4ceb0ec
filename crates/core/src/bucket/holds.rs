//! What came after a hold of a bucket, so that its true cost can take the place of its estimate.
//!
//! Let x be what was spent just after a grant. An inflow of i makes it max(x − i, 0), and a further cost of c makes it
//! min(x + c, D), where D is the most that can be spent. All sequences of such steps are functions of one form,
//!
//! x ↦ min(max(x − o, 0) + s, D − u),
//!
//! so three words per hold are enough: o, s and u. All zeros are the identity.

use super::{Config, Level, State};
use crate::hold::list::Holds;
use crate::hold::reservable::Reservable;
use crate::limiter::{Limiter, RateLimiter, Words, WordsMut};
use crate::never::never;
use crate::quantity::saturating_product;
use crate::time::Timestamp;
use crate::window::Refund;

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

    /// What is spent now if the hold at each place has cost this many units.
    fn spent_if<W: AsRef<[u64]>>(&self, holds: &Holds<W>, cost_of: impl Fn(usize) -> u64) -> u64 {
        let deepest = self.deepest;
        (0..holds.len()).fold(holds.before(), |spent, at| {
            let taken = spent.saturating_add(self.scaled(cost_of(at))).min(deepest);
            Since::of(holds.since(at)).after(taken, deepest)
        })
    }
}

/// Goes on with holds of another bucket.
impl Config {
    /// Takes over what was spent under `old` before, between and after its holds, which `holds` has taken over without it. Everything
    /// is rounded so that no more is left than before. `false` if the debt of this bucket has no room for what was spent at the grant
    /// of a hold; the words and holds are of no use then.
    pub(crate) fn take_over<V: AsRef<[u64]>>(
        &self,
        words: &mut [u64],
        holds: &mut Holds<&mut [u64]>,
        old: &Self,
        (old_words, held): (&[u64], &Holds<V>),
    ) -> bool {
        let Level { newest, .. } = Level::of(&State::over(old_words));
        let up = |spent: u64| self.rescaled(old, spent, true);
        let mut level = up(held.before());
        holds.set_before(level);
        let mut has_room = level <= self.deepest;
        for place in 0..held.len() {
            let Since { out, spent, under } = Since::of(held.since(place));
            let most = up(old.deepest.saturating_sub(under)).min(self.deepest);
            let passed = Since {
                out: self.rescaled(old, out, false),
                spent: up(spent).min(most),
                under: self.deepest.saturating_sub(most),
            };
            passed.write_to(holds.since_mut(place));
            let taken = level.saturating_add(self.scaled(holds.get(place).units));
            let left = taken.saturating_sub(passed.out).saturating_add(up(spent));
            has_room &= taken <= self.deepest && left <= self.deepest;
            level = passed.after(taken.min(self.deepest), self.deepest);
        }
        State::over(words).write(Level { spent: level, newest }.to_words());
        has_room
    }

    /// Scaled units of another bucket in the scale of this one.
    fn rescaled(&self, old: &Self, spent: u64, up: bool) -> u64 {
        let scaled = u128::from(spent).saturating_mul(self.scale.value().into());
        let scale = u128::from(old.scale.value()).max(1);
        let rescaled =
            if up { scaled.div_ceil(scale) } else { scaled.checked_div(scale).unwrap_or(0) };
        u64::try_from(rescaled).unwrap_or(u64::MAX)
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

    /// At most what would be spent if the holds had cost nothing. So as much comes back whatever they turn out to cost.
    fn give_back<H: AsRef<[u64]> + AsMut<[u64]>>(
        &self,
        state: &mut State<impl WordsMut>,
        holds: &mut Holds<H>,
        refund: Refund,
    ) {
        let Some(last) = holds.len().checked_sub(1) else { return self.refund(state, refund) };
        let given_back = self.scaled(refund.cost).min(self.spent_if(holds, |_| 0));
        let Level { spent, newest } = Level::of(state);
        state.write(Level { spent: spent.saturating_sub(given_back), newest }.to_words());
        let since = holds.since_mut(last);
        let mut passed = Since::of(since);
        passed.flows_in(given_back, self.deepest);
        passed.write_to(since);
    }

    /// What came after each hold says how far its units have come back.
    fn counts(&self, _: &State<impl Words>, _granted_at: Timestamp, _units: u64) -> bool {
        true
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
        let cost_of = |at| if at == place { actual } else { holds.get(at).units };
        let spent = self.spent_if(holds, cost_of);
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

#[cfg(test)]
mod tests;
