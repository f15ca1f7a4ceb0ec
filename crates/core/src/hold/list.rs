//! The holds of a key, in words.

use super::terms::Terms;
use crate::decision::InvalidState;
use crate::lease::Id;
use crate::never::never;
use crate::quantity::MAX_QUANTITY;
use crate::time::{Micros, Timestamp};

/// The words before the holds: how many are live, how many have ended, the earliest time at which something ends, and what the
/// limiter knew before the first live hold.
pub(super) const HEAD: usize = 4;
const LIVE: usize = 0;
const ENDED: usize = 1;
const NEXT: usize = 2;
const BEFORE: usize = 3;

/// The words of a live hold, before what came after it: id, units, time of the grant, end.
const OWN: usize = 5;
/// The words of a hold that has ended: id, outcome, the time at which it is forgotten.
const PAST: usize = 4;

/// A live hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    pub id: Id,
    /// The units that the limiter has taken.
    pub units: u64,
    pub granted_at: Timestamp,
    pub until: Timestamp,
}

/// How a hold has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The units that count for it.
    pub charged: u64,
    /// Whether it had ended before its first commit.
    pub late: bool,
    /// Whether it was committed. If not, a commit may still come.
    pub is_final: bool,
}

impl Outcome {
    fn to_word(self) -> u64 {
        let charged = self.charged.min(MAX_QUANTITY);
        charged << 2 | u64::from(self.late) << 1 | u64::from(self.is_final)
    }

    const fn of(word: u64) -> Self {
        Self { charged: word >> 2, late: word & 2 != 0, is_final: word & 1 != 0 }
    }
}

/// The list. Live holds stand at the front in the order of their grants, with what came after each of them. Holds that have ended
/// stand at the back, the newest first; they need fewer words, so that there is always room for a hold that ends.
pub struct Holds<W> {
    words: W,
    width: usize,
    /// The most holds that the words have room for.
    room: usize,
}

impl<W> Holds<W> {
    /// The number of words of a live hold.
    pub(super) const fn width(since: usize) -> usize {
        OWN.saturating_add(since)
    }
}

impl<W: AsRef<[u64]>> Holds<W> {
    /// The list in these words. `None` if they count more holds than they have room for, so that a broken list does not read as
    /// one without holds.
    #[inline]
    pub(super) fn over(words: W, width: usize, room: usize) -> Option<Self> {
        let holds = Self { words, width, room };
        let [live, ended, _, _, ..] = *holds.words.as_ref() else { return None };
        let all = usize::try_from(live.checked_add(ended)?).ok()?;
        (all <= room).then_some(holds)
    }

    #[inline]
    fn head(&self, at: usize) -> u64 {
        self.words.as_ref().get(at).copied().unwrap_or_else(|| never(u64::MAX))
    }

    #[inline]
    fn count(&self, of: usize) -> usize {
        usize::try_from(self.head(of)).unwrap_or_else(|_| never(usize::MAX))
    }

    #[inline]
    pub(super) fn are_none(&self) -> bool {
        self.head(LIVE) == 0 && self.head(ENDED) == 0
    }

    /// Whether a hold ends, or is forgotten, at this time at the latest.
    #[inline]
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        !self.are_none() && self.next_end() <= now
    }

    /// A time before which no hold ends and none is forgotten.
    pub(super) fn next_end(&self) -> Timestamp {
        Timestamp(self.head(NEXT))
    }

    /// What the limiter knew before the first live hold.
    pub(crate) fn before(&self) -> u64 {
        self.head(BEFORE)
    }

    /// Every hold that has ended keeps its place until it is forgotten, and every live hold needs one when it ends.
    pub(super) fn has_room(&self) -> bool {
        self.count(LIVE).saturating_add(self.count(ENDED)) < self.room
    }

    fn live(&self) -> impl DoubleEndedIterator<Item = &[u64]> + ExactSizeIterator {
        let holds = self.words.as_ref().get(HEAD..).unwrap_or_default();
        holds.chunks_exact(self.width).take(self.count(LIVE))
    }

    fn past(&self) -> impl Iterator<Item = &[u64]> {
        let holds = self.words.as_ref().get(HEAD..).unwrap_or_default();
        holds.rchunks_exact(PAST).take(self.count(ENDED))
    }

    /// The live holds, in the order of their grants.
    pub(super) fn each(&self) -> impl DoubleEndedIterator<Item = Hold> {
        self.live().map(hold)
    }

    /// The times at which the holds that have ended are forgotten.
    pub(super) fn forgotten_at(&self) -> impl Iterator<Item = Timestamp> {
        self.past().map(forgotten_at)
    }

    /// The holds that have ended: how, and the time at which each is forgotten.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = (Id, Outcome, Timestamp)> {
        self.past().map(|past| match *past {
            [high, low, outcome, until] => {
                (Id([high, low]), Outcome::of(outcome), Timestamp(until))
            }
            _ => never((NONE.id, Outcome::of(0), Timestamp::EPOCH)),
        })
    }

    /// The place of a live hold. The newest are looked at first: a reservation asks for the one that it has just made.
    pub(super) fn find(&self, id: Id) -> Option<usize> {
        self.live().rposition(|hold| is_of(hold, id))
    }

    pub(super) fn ended(&self, id: Id) -> Option<Outcome> {
        let past = self.past().find(|past| is_of(past, id))?;
        past.get(2).map(|word| Outcome::of(*word))
    }

    /// The hold at this place, and what came after it up to the next hold.
    pub(crate) fn get(&self, place: usize) -> Hold {
        self.live().nth(place).map_or_else(|| never(NONE), hold)
    }

    pub(crate) fn since(&self, place: usize) -> &[u64] {
        self.live().nth(place).and_then(|hold| hold.get(OWN..)).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.count(LIVE)
    }

    /// The first hold that has expired at this time, in the order of their ends.
    pub(super) fn expired(&self, now: Timestamp) -> Option<usize> {
        let (place, hold) = self.each().enumerate().min_by_key(|(_, hold)| hold.until)?;
        (hold.until <= now).then_some(place)
    }

    /// Checks that operations on these terms can have led to the list.
    pub(super) fn accepts(&self, newest: Timestamp, terms: &Terms) -> Result<(), InvalidState> {
        let [_, _, next, before, list @ ..] = self.words.as_ref() else {
            return Err(InvalidState);
        };
        let live_words = self.count(LIVE).saturating_mul(self.width);
        let past_words = self.count(ENDED).saturating_mul(PAST);
        let unused =
            list.get(live_words..list.len().saturating_sub(past_words)).ok_or(InvalidState)?;
        // no time lies after the last one
        let is_ahead = |at: Timestamp| newest < at || at.0 == u64::MAX;
        let in_order = self.each().is_sorted_by_key(|hold| hold.granted_at);
        let live = self.each().all(|hold| {
            let ends =
                is_ahead(hold.until) && hold.until <= hold.granted_at.saturating_add(terms.longest);
            hold.granted_at <= newest && ends && *next <= hold.until.0 && hold.units <= MAX_QUANTITY
        });
        let past = self.forgotten_at().all(|at| is_ahead(at) && *next <= at.0);
        let ends = if self.are_none() { *next == 0 } else { is_ahead(Timestamp(*next)) };
        let empty = ends && (*before == 0 || self.count(LIVE) > 0);
        let clear = unused.iter().all(|&word| word == 0);
        if in_order && live && past && empty && clear { Ok(()) } else { Err(InvalidState) }
    }
}

impl<W: AsRef<[u64]> + AsMut<[u64]>> Holds<W> {
    fn set(&mut self, at: usize, word: u64) {
        if let Some(place) = self.words.as_mut().get_mut(at) {
            *place = word;
        }
    }

    fn set_count(&mut self, of: usize, count: usize) {
        self.set(of, u64::try_from(count).unwrap_or_else(|_| never(0)));
    }

    fn list(&mut self) -> &mut [u64] {
        self.words.as_mut().get_mut(HEAD..).unwrap_or_default()
    }

    fn at(&mut self, place: usize) -> &mut [u64] {
        let width = self.width;
        self.list().chunks_exact_mut(width).nth(place).unwrap_or_default()
    }

    /// Does something with what came after the last live hold. `false` if none is live.
    #[inline]
    pub(super) fn with_since(&mut self, change: impl FnOnce(&mut [u64])) -> bool {
        let Some(last) = self.count(LIVE).checked_sub(1) else { return false };
        change(self.since_mut(last));
        true
    }

    pub(crate) fn since_mut(&mut self, place: usize) -> &mut [u64] {
        self.at(place).get_mut(OWN..).unwrap_or_default()
    }

    pub(crate) fn set_before(&mut self, before: u64) {
        self.set(BEFORE, before);
    }

    /// Something ends at this time.
    fn ends(&mut self, at: Timestamp) {
        let next = if self.are_none() { at } else { self.next_end().min(at) };
        self.set(NEXT, next.0);
    }

    /// Adds a hold behind all others. The list must have room.
    pub(super) fn push(&mut self, hold: Hold, before: u64) {
        let place = self.count(LIVE);
        if place == 0 {
            self.set_before(before);
        }
        self.ends(hold.until);
        let Id([high, low]) = hold.id;
        let own = [high, low, hold.units, hold.granted_at.0, hold.until.0];
        if let Some(words) = self.at(place).first_chunk_mut() {
            *words = own;
        }
        self.set_count(LIVE, place.saturating_add(1));
    }

    /// Takes a hold off the list, with what came after it.
    pub(crate) fn remove(&mut self, place: usize) -> Hold {
        let removed = self.get(place);
        let (live, width) = (self.count(LIVE), self.width);
        let at = |place: usize| place.saturating_mul(width);
        if let Some(holds) = self.list().get_mut(at(place)..at(live)) {
            holds.copy_within(width.min(holds.len()).., 0);
            let kept = holds.len().saturating_sub(width);
            holds.get_mut(kept..).unwrap_or_default().fill(0);
        }
        self.set_count(LIVE, live.saturating_sub(1));
        if live <= 1 {
            self.set_before(0);
        }
        removed
    }

    /// Remembers until a time how a hold has ended. If there is no room, the one that is forgotten next makes place. The list must
    /// not know the id.
    pub(super) fn end(&mut self, id: Id, outcome: Outcome, until: Timestamp) {
        if !self.has_room() {
            // of two that are forgotten at the same time, the one with the lower id, whatever their places
            let first = self
                .past()
                .enumerate()
                .min_by_key(|(_, past)| (past.get(3), past.first_chunk::<2>()));
            let first = first.map(|(place, _)| place);
            if let Some(place) = first {
                self.forget_at(place);
            }
        }
        if !self.has_room() {
            return; // all holds are live, and this one never was
        }
        self.ends(until);
        let place = self.count(ENDED);
        let Id([high, low]) = id;
        if let Some(words) = self.list().rchunks_exact_mut(PAST).nth(place) {
            words.copy_from_slice(&[high, low, outcome.to_word(), until.0]);
        }
        self.set_count(ENDED, place.saturating_add(1));
    }

    /// Forgets how the hold of this id ended.
    pub(super) fn forget_id(&mut self, id: Id) {
        let place = self.past().position(|past| is_of(past, id));
        if let Some(place) = place {
            self.forget_at(place);
        }
    }

    /// Forgets the hold that ended at this place. The last one takes its place.
    fn forget_at(&mut self, place: usize) {
        let last = self.count(ENDED).saturating_sub(1);
        let mut past = self.list().rchunks_exact_mut(PAST);
        let freed = past.nth(place);
        let moved = last.checked_sub(place.saturating_add(1)).and_then(|more| past.nth(more));
        match (freed, moved) {
            (Some(freed), Some(moved)) => {
                freed.copy_from_slice(moved);
                moved.fill(0);
            }
            (Some(freed), None) => freed.fill(0),
            _ => {}
        }
        self.set_count(ENDED, last);
    }

    /// Forgets the holds that ended long enough ago, and notes when the next one ends or is forgotten.
    pub(super) fn forget(&mut self, now: Timestamp) {
        let due = |holds: &Self| holds.forgotten_at().position(|at| at <= now);
        while let Some(place) = due(self) {
            self.forget_at(place); // another takes its place
        }
        let next =
            self.each().map(|hold| hold.until).chain(self.forgotten_at()).min().unwrap_or_default();
        self.set(NEXT, next.0);
    }

    /// Moves all times back by `span`.
    pub(super) fn shift(&mut self, span: Micros) {
        if span == Micros::ZERO {
            return;
        }
        let earlier = |time: &mut u64| *time = time.saturating_sub(span.0);
        let (live, ended, width) = (self.count(LIVE), self.count(ENDED), self.width);
        for hold in self.list().chunks_exact_mut(width).take(live) {
            hold.get_mut(3..OWN).unwrap_or_default().iter_mut().for_each(earlier);
        }
        for past in self.list().rchunks_exact_mut(PAST).take(ended) {
            past.last_mut().into_iter().for_each(earlier);
        }
        self.set(NEXT, self.next_end().0.saturating_sub(span.0));
    }
}

/// What stands for a hold at a place that has none.
const NONE: Hold =
    Hold { id: Id([0; 2]), units: 0, granted_at: Timestamp::EPOCH, until: Timestamp::EPOCH };

fn is_of(words: &[u64], Id(id): Id) -> bool {
    words.first_chunk() == Some(&id)
}

fn forgotten_at(past: &[u64]) -> Timestamp {
    Timestamp(past.last().copied().unwrap_or_else(|| never(0)))
}

fn hold(words: &[u64]) -> Hold {
    match *words {
        [high, low, units, granted_at, until, ..] => Hold {
            id: Id([high, low]),
            units,
            granted_at: Timestamp(granted_at),
            until: Timestamp(until),
        },
        _ => never(NONE),
    }
}
