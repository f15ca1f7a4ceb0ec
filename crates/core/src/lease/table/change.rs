//! The operations that change a table.

use super::{
    ENDS, Ends, FIELDS, Found, HEAD, LANE, LINKS, LOG2_SLOTS_PER_WORD, Links, NEWEST,
    SLOTS_PER_WORD, SUM, TOUCHED, Table, VALUE, pack,
};
use crate::lease::Id;
use crate::never::never;
use crate::time::{Micros, Timestamp};

impl<W: AsRef<[u64]> + AsMut<[u64]>, const WIDTH: usize> Table<W, WIDTH> {
    /// Moves to `now` and removes the entries that have expired by then. Every operation begins
    /// with this.
    #[inline]
    pub(crate) fn advance(&mut self, now: Timestamp) {
        let newest = self.newest();
        let taken = now.taken_after(newest, self.layout.period);
        if taken < newest {
            self.rebase(newest.saturating_since(taken));
        }
        let expired = self.count().saturating_sub(self.live(taken).count);
        for _ in 0..expired {
            let place = self.ends().oldest;
            self.remove(Found { slot: self.slot_of(place), place });
        }
        self.set_word(NEWEST, taken.0);
    }

    /// Adds an entry in the slot where the search for its id ended, and touches it. `None` if the
    /// table has no room.
    #[inline]
    pub(crate) fn insert(&mut self, found: Found, id: Id, value: u64) -> Option<usize> {
        let ends = self.ends();
        if ends.count >= self.layout.entries {
            return None;
        }
        let place = ends.count.saturating_add(1);
        self.set_ends(Ends { count: place, ..ends });
        let Id([first, second]) = id;
        self.set_field(place, 0, first);
        self.set_field(place, 1, second);
        self.set_value(place, value);
        self.append(place);
        self.set_slot(found.slot, place);
        Some(place)
    }

    /// Takes over the live entries of another table, the oldest first, as if they were touched at
    /// its newest time.
    pub(crate) fn adopt<V: AsRef<[u64]>>(&mut self, other: &Table<V, WIDTH>) {
        self.advance(other.newest());
        let live = other.live(other.newest());
        let mut place = live.oldest;
        for _ in 0..live.count {
            let (id, value) = (other.id(place), other.value(place));
            let found = self.search(id);
            if found.place == 0 && self.insert(found, id, value).is_none() {
                return;
            }
            place = other.links(place).later;
        }
    }

    /// Touches the entry, which makes it the latest.
    #[inline]
    pub(crate) fn touch(&mut self, place: usize) {
        self.unlink(place);
        self.append(place);
    }

    #[inline]
    pub(crate) fn set_value(&mut self, place: usize, value: u64) {
        let others = self.sum().saturating_sub(self.value(place));
        self.set_word(SUM, others.saturating_add(value));
        self.set_field(place, VALUE, value);
    }

    /// Sets an entry's k-th extra word.
    pub(crate) fn set_extra(&mut self, place: usize, k: usize, word: u64) {
        self.set_field(place, FIELDS.saturating_add(k), word);
    }

    /// Removes the entry that was found. The last entry takes its place.
    #[inline]
    pub(crate) fn remove(&mut self, found: Found) {
        let Found { slot, place } = found;
        self.set_value(place, 0);
        self.unlink(place);
        self.clear_slot(slot);
        let last = self.count();
        if place != last {
            self.relocate(last, place);
        }
        for field in 0..WIDTH {
            self.set_field(last, field, 0);
        }
        let count = last.saturating_sub(1);
        self.set_ends(Ends { count, ..self.ends() });
    }

    /// Moves the newest time and all times of touch back.
    #[cold]
    fn rebase(&mut self, by: Micros) {
        for place in 1..=self.count() {
            let touched = self.field(place, TOUCHED).wrapping_sub(by.0);
            self.set_field(place, TOUCHED, touched);
        }
        let newest = self.newest().0.saturating_sub(by.0);
        self.set_word(NEWEST, newest);
    }

    /// Moves an entry to another place, and updates its slot, its neighbours and the ends.
    #[inline]
    fn relocate(&mut self, from: usize, to: usize) {
        self.set_slot(self.slot_of(from), to);
        for field in 0..WIDTH {
            self.set_field(to, field, self.field(from, field));
        }
        let Links { older, later } = self.links(to);
        self.set_later(older, to);
        self.set_older(later, to);
    }

    /// Takes an entry out of the list.
    #[inline]
    fn unlink(&mut self, place: usize) {
        let Links { older, later } = self.links(place);
        self.set_later(older, later);
        self.set_older(later, older);
    }

    /// Puts an entry at the late end of the list, touched at the newest time.
    #[inline]
    fn append(&mut self, place: usize) {
        let older = self.ends().latest;
        self.set_field(place, TOUCHED, self.newest().0);
        self.set_field(place, LINKS, pack([older, 0, 0]));
        self.set_later(older, place);
        self.set_older(0, place);
    }

    /// Sets the entry that follows `place` in the list. If `place` is 0, sets the oldest entry.
    #[inline]
    fn set_later(&mut self, place: usize, later: usize) {
        if place == 0 {
            self.set_ends(Ends { oldest: later, ..self.ends() });
        } else {
            self.set_field(place, LINKS, pack([self.links(place).older, later, 0]));
        }
    }

    /// Sets the entry that precedes `place` in the list. If `place` is 0, sets the latest entry.
    #[inline]
    fn set_older(&mut self, place: usize, older: usize) {
        if place == 0 {
            self.set_ends(Ends { latest: older, ..self.ends() });
        } else {
            self.set_field(place, LINKS, pack([older, self.links(place).later, 0]));
        }
    }

    /// The slot that holds a place.
    #[inline]
    pub(super) fn slot_of(&self, place: usize) -> usize {
        let mut slot = self.home(self.id(place));
        for _ in 0..self.layout.mask {
            if self.slot(slot) == place {
                break; // every table of this limiter ends here; foreign words may not
            }
            slot = self.after(slot);
        }
        slot
    }

    /// Empties a slot. Each follower that may lie in the gap moves back into it, and leaves a new
    /// gap behind. So no search meets a gap before it reaches its entry.
    #[inline]
    fn clear_slot(&mut self, slot: usize) {
        let (mut gap, mut next) = (slot, self.after(slot));
        for _ in 0..self.layout.mask {
            let place = self.slot(next);
            if place == 0 {
                break;
            }
            let from_home = next.wrapping_sub(self.home(self.id(place))) & self.layout.mask;
            let from_gap = next.wrapping_sub(gap) & self.layout.mask;
            if from_home >= from_gap {
                self.set_slot(gap, place);
                gap = next;
            }
            next = self.after(next);
        }
        self.set_slot(gap, 0);
    }

    #[inline]
    fn set_word(&mut self, at: usize, word: u64) {
        if let Some(found) = self.words.as_mut().get_mut(at) {
            *found = word;
        }
    }

    #[inline]
    pub(super) fn set_field(&mut self, place: usize, field: usize, word: u64) {
        if place != 0 {
            self.set_word(self.layout.base(place).saturating_add(field), word);
        }
    }

    #[inline]
    pub(super) fn set_ends(&mut self, Ends { count, oldest, latest }: Ends) {
        self.set_word(ENDS, pack([count, oldest, latest]));
    }

    #[inline]
    pub(super) fn set_slot(&mut self, slot: usize, place: usize) {
        let at = HEAD.saturating_add(slot >> LOG2_SLOTS_PER_WORD);
        let lane = slot & (SLOTS_PER_WORD - 1);
        let shift = u32::try_from(lane << 4).unwrap_or_else(|_| never(0));
        let cleared = self.word(at) & !LANE.wrapping_shl(shift);
        let place = u64::try_from(place).unwrap_or_else(|_| never(LANE));
        self.set_word(at, cleared | place.wrapping_shl(shift));
    }
}
