//! Limits that pay: of these, one has to have room for a request, and it alone is charged.
//!
//! They stand in the order of the policy file, for instance a plan, then credits, then overage. The first one that has room for
//! the whole cost pays. A reservation stays with its payer: whoever holds the id answers for it, as long as the id is known.

use tidegate_core::hold::Committed;
use tidegate_core::lease::Id;
use tidegate_core::{Decision, Micros, Timestamp};

use super::limits::{LimitFacts, Limits};
use super::operate::{split, split_mut};
use super::verdict::Verdict;
use crate::limit::{KnownFor, NamedLimit, Request};

impl Limits {
    /// Whether some limits pay: of these, one has to have room for a request, and it alone is charged.
    #[must_use]
    #[inline]
    pub const fn have_payers(&self) -> bool {
        self.payers().bits() != 0
    }

    /// The most that a payer can ever grant; `None` without payers.
    pub(super) fn payers_capacity(&self) -> Option<u64> {
        let payers = self.each().iter().filter(|each| each.pays);
        payers.map(|each| each.limit.capacity()).max()
    }

    /// The limits by whose answers a caller goes, each with its answer: those that are not in shadow, and of the payers one. After a
    /// grant that is the payer with the most left, and after a refusal the one with the shortest wait.
    pub fn counting<'a>(
        &'a self,
        verdict: &'a Verdict,
    ) -> impl Iterator<Item = (&'a NamedLimit, &'a Decision)> {
        let payer = self.payer_that_counts(verdict);
        let all = self.iter().zip(&verdict.limits).zip(0_u8..);
        let counts = move |named: &NamedLimit, place| match named.payer {
            None => !named.shadow,
            Some(_) => payer == Some(place),
        };
        all.filter(move |((named, _), place)| counts(named, *place)).map(|(each, _)| each)
    }

    fn payer_that_counts(&self, verdict: &Verdict) -> Option<u8> {
        let is_refused = !verdict.decision.is_allowed();
        self.payers().in_order().min_by_key(|place| {
            let said = verdict.limits.get(usize::from(*place));
            let wait = said.map_or(Micros::MAX, Decision::retry_after);
            let left = said.map_or(0, Decision::remaining);
            (if is_refused { wait } else { Micros::ZERO }, u64::MAX.saturating_sub(left))
        })
    }

    /// The limit that has paid, or would pay, by this verdict; `None` if no limit did.
    #[must_use]
    pub fn paid_by(&self, verdict: &Verdict) -> Option<&NamedLimit> {
        self.iter().nth(verdict.effect.payer()?)
    }

    /// The payer that knows the id of a reservation, and what it knows.
    pub(super) fn payer_of(&self, words: &[u64], now: Timestamp, id: Id) -> Option<(u8, KnownFor)> {
        let mut each = split(self, words).zip(0_u8..);
        each.find_map(|((LimitFacts { limit, pays, .. }, words), place)| {
            let known = if *pays { limit.knows(words, now, id) } else { None };
            Some((place, known?))
        })
    }

    /// Commits a reservation on the payer that knows its id. If none does, the first payer with room for the true cost pays, or else
    /// the last one.
    pub(super) fn commit_to_payer(
        &self,
        words: &mut [u64],
        now: Timestamp,
        id: Id,
        actual: u64,
    ) -> Option<(u8, Committed)> {
        let owner = self.payer_of(words, now, id).map(|(place, _)| place);
        let mut order = self.payers().in_order();
        let payer = owner
            .or_else(|| order.find(|place| self.has_room(words, now, *place, actual)))
            .or_else(|| self.payers().in_order().next_back())?;
        let (payer_limit, words) = split_mut(self, words).nth(payer.into())?;
        Some((payer, payer_limit.limit.commit(words, now, id, actual)?))
    }

    fn has_room(&self, words: &[u64], now: Timestamp, place: u8, cost: u64) -> bool {
        let grants = |(each, words): (&LimitFacts, &[u64])| {
            each.limit.grants(words, now, &Request::of(cost))
        };
        // a cost that the limit can never grant is an error
        split(self, words).nth(place.into()).map(grants).is_some_and(|said| said == Ok(true))
    }
}
