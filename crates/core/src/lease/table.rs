//! The table of the entries of one key, in the caller's words. Entries are found by id and ordered
//! by the time at which they were last touched.
//!
//! | words | content |
//! |---|---|
//! | 3 | newest time; sum of the values; number of entries and places of the oldest and the latest |
//! | slots/4 | slots of 16 bits with open addressing; each holds the place of an entry, or 0 |
//! | entries × width | id (2), touched, value, places of the neighbours in order of touch, extra |
//!
//! Entries lie next to each other, in places 1 to n. When an entry is removed, the last entry moves
//! into its place. So all words behind the entries are zero, a table with few entries is mostly
//! zeros, and the slot of an entry takes 2 bytes, not 40. At most half of the slots are taken, and
//! a removal moves the followers of its slot back, so a search ends at the first empty slot.
//!
//! A touch sets an entry's time to the newest time, which makes the entry the latest. So the list
//! is in order of time without sorting, and expired entries leave at its oldest end. Times of touch
//! are stored modulo 2^64 and read as ages before the newest time. Ages are below the period. So
//! when a clock comes back from a jump ahead to a time near 0, all times of touch move back without
//! loss.

mod change;
#[cfg(test)]
mod tests;

use super::Id;
use crate::decision::InvalidState;
use crate::never::never;
use crate::quantity::{ConfigError, MAX_QUANTITY, in_bounds};
use crate::time::{Micros, Timestamp};

/// The most entries that a state may have room for. With five words each they take 180 KB.
pub const MAX_ENTRIES: u64 = 4_096;

/// The layout of a table in its words, and the life of an entry. An entry has `WIDTH` words: the
/// [`FIELDS`] words that the table needs, and extra words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout<const WIDTH: usize> {
    /// The most entries.
    entries: usize,
    /// The number of words.
    words: usize,
    /// The number of slots, which is a power of two, less 1.
    mask: usize,
    /// The shift that leaves log2(slots) bits of a hash.
    shift: u32,
    /// An entry touched at x is live in [x, x + period).
    period: Micros,
}

impl<const WIDTH: usize> Layout<WIDTH> {
    /// Makes a layout with room for `entries`. Errors name the field `field`.
    pub(crate) fn new(
        field: &'static str,
        entries: u64,
        period: Micros,
    ) -> Result<Self, ConfigError> {
        in_bounds(field, entries, 1, MAX_ENTRIES)?;
        let count = usize::try_from(entries).unwrap_or_else(|_| never(0)); // at most MAX_ENTRIES
        let slots = count.saturating_mul(2).max(SLOTS_PER_WORD).next_power_of_two();
        let layout = Self {
            entries: count,
            words: 0,
            mask: slots.saturating_sub(1),
            shift: u64::BITS.saturating_sub(slots.trailing_zeros()),
            period,
        };
        Ok(Self { words: layout.base(count.saturating_add(1)), ..layout })
    }

    /// The number of words.
    #[inline]
    pub(crate) const fn words(&self) -> usize {
        self.words
    }

    pub(crate) const fn entries(&self) -> usize {
        self.entries
    }

    pub(crate) const fn period(&self) -> Micros {
        self.period
    }

    /// The index of the first word of the entry in `place`. Places count from 1.
    #[inline]
    const fn base(&self, place: usize) -> usize {
        let index = self.mask.saturating_add(1) >> LOG2_SLOTS_PER_WORD;
        HEAD.saturating_add(index).saturating_add(place.saturating_sub(1).saturating_mul(WIDTH))
    }
}

/// A limiter that keeps one table per key.
pub trait Tabled<const WIDTH: usize> {
    /// The layout of the limiter's tables.
    fn layout(&self) -> Layout<WIDTH>;

    /// Whether operations of this limiter can produce the entry in this place.
    fn made<W: AsRef<[u64]>>(&self, table: &Table<W, WIDTH>, place: usize) -> bool {
        table.value(place) > 0
    }
}

/// Implements [`Limiter`](crate::Limiter) for a [`Tabled`] limiter.
macro_rules! limiter_with_table {
    ($config:ty) => {
        impl $crate::limiter::sealed::Sealed for $config {}

        impl $crate::limiter::Limiter for $config {
            #[inline]
            fn words(&self) -> usize {
                self.layout().words()
            }

            /// The life of an entry that is not renewed.
            #[inline]
            fn period(&self) -> $crate::Micros {
                self.layout().period()
            }

            /// Removes the entries that have expired.
            #[inline]
            fn advance(
                &self,
                state: &mut State<impl $crate::limiter::WordsMut>,
                now: $crate::Timestamp,
            ) {
                $crate::lease::table::Table::new(self.layout(), state.words_mut()).advance(now);
            }

            fn reset_after(&self, state: &State<impl $crate::limiter::Words>) -> $crate::Micros {
                let table = $crate::lease::table::Table::new(self.layout(), state.words());
                table.until_empty(table.live(table.newest()))
            }

            fn accepts(
                &self,
                state: &State<impl $crate::limiter::Words>,
            ) -> Result<(), $crate::InvalidState> {
                $crate::lease::table::Table::new(self.layout(), state.words()).accepted_by(self)
            }
        }
    };
}

pub(crate) use limiter_with_table;

/// A table in its words.
pub struct Table<W, const WIDTH: usize> {
    layout: Layout<WIDTH>,
    words: W,
}

/// The end of a search.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    /// The slot of the entry, or the empty slot where the entry can be put.
    slot: usize,
    /// The place of the entry, or 0 if no entry was found.
    pub(crate) place: usize,
}

/// The number of entries, and the places of both ends of the list. A place is 0 in an empty list.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ends {
    count: usize,
    oldest: usize,
    latest: usize,
}

/// The places of an entry's neighbours in the list, or 0 at an end of the list.
#[derive(Clone, Copy)]
struct Links {
    older: usize,
    later: usize,
}

/// The entries that are live at a time at or after the newest time.
#[derive(Clone, Copy)]
pub(crate) struct Live {
    /// The span from the newest time to that time.
    ahead: u64,
    oldest: usize,
    pub(crate) count: usize,
    /// The sum of the values of these entries.
    pub(crate) sum: u64,
}

impl Live {
    /// The entries as if one with this value were added.
    pub(crate) const fn with(self, value: u64) -> Self {
        let count = self.count.saturating_add(1);
        Self { count, sum: self.sum.saturating_add(value), ..self }
    }
}

impl<W: AsRef<[u64]>, const WIDTH: usize> Table<W, WIDTH> {
    pub(crate) const fn new(layout: Layout<WIDTH>, words: W) -> Self {
        Self { layout, words }
    }

    #[inline]
    pub(crate) fn newest(&self) -> Timestamp {
        Timestamp(self.word(NEWEST))
    }

    /// The sum of all values.
    pub(crate) fn sum(&self) -> u64 {
        self.word(SUM)
    }

    pub(crate) fn count(&self) -> usize {
        self.ends().count
    }

    /// The place of the entry with this id.
    #[inline]
    pub(crate) fn find(&self, id: Id) -> Option<usize> {
        match self.search(id) {
            Found { place: 0, .. } => None,
            Found { place, .. } => Some(place),
        }
    }

    /// Searches for the entry with this id, or for the slot where it can be put.
    #[inline]
    pub(crate) fn search(&self, id: Id) -> Found {
        let mut slot = self.home(id);
        for _ in 0..self.layout.mask {
            let place = self.slot(slot);
            if place == 0 || self.id(place) == id {
                return Found { slot, place };
            }
            slot = self.after(slot);
        }
        Found { slot, place: 0 } // only foreign words lead here: half of the slots are empty
    }

    #[inline]
    pub(crate) fn value(&self, place: usize) -> u64 {
        self.field(place, VALUE)
    }

    /// An entry's k-th extra word.
    pub(crate) fn extra(&self, place: usize, k: usize) -> u64 {
        self.field(place, FIELDS.saturating_add(k))
    }

    /// The span from the entry's touch to the newest time.
    #[inline]
    pub(crate) fn age(&self, place: usize) -> Micros {
        Micros(self.newest().0.wrapping_sub(self.field(place, TOUCHED)))
    }

    /// All entries. After the table has advanced, they are live at its newest time.
    #[inline]
    pub(crate) fn all(&self) -> Live {
        let Ends { count, oldest, .. } = self.ends();
        Live { ahead: 0, oldest, count, sum: self.sum() }
    }

    /// The entries that are live at the time at which a decision at `now` is taken.
    #[inline]
    pub(crate) fn live(&self, now: Timestamp) -> Live {
        let newest = self.newest();
        let taken = now.taken_after(newest, self.layout.period);
        // if the time is earlier than the newest, the clock is believed and all ages stay
        let ahead = taken.saturating_since(newest).0;
        let mut live = Live { ahead, ..self.all() };
        while live.count > 0 && self.until(live, live.oldest) == Micros::ZERO {
            live.sum = live.sum.saturating_sub(self.value(live.oldest));
            live.count = live.count.saturating_sub(1);
            live.oldest = self.links(live.oldest).later;
        }
        live
    }

    /// Whether the entry in `place` is live at the time of `live`.
    pub(crate) fn is_live(&self, live: Live, place: usize) -> bool {
        self.until(live, place) > Micros::ZERO
    }

    /// The span until at least one entry, and entries with at least this total value, have expired.
    pub(crate) fn until_freed(&self, live: Live, value: u64) -> Micros {
        let (mut place, mut freed) = (live.oldest, 0_u64);
        for _ in 0..live.count {
            freed = freed.saturating_add(self.value(place));
            if freed >= value {
                break;
            }
            place = self.links(place).later;
        }
        self.until(live, place)
    }

    /// The span until the last entry has expired.
    #[inline]
    pub(crate) fn until_empty(&self, live: Live) -> Micros {
        if live.count == 0 { Micros::ZERO } else { self.until(live, self.ends().latest) }
    }

    /// # Errors
    /// Returns [`InvalidState`] if no operations of this limiter can produce the words.
    pub(crate) fn accepted_by(&self, limiter: &impl Tabled<WIDTH>) -> Result<(), InvalidState> {
        self.check()?;
        let made = (1..=self.count()).all(|place| limiter.made(self, place));
        if made && self.sum() <= MAX_QUANTITY { Ok(()) } else { Err(InvalidState) }
    }

    /// # Errors
    /// Returns [`InvalidState`] if no operations on a table can produce the words.
    fn check(&self) -> Result<(), InvalidState> {
        let ends = self.ends();
        let behind = self.layout.base(ends.count.saturating_add(1));
        let unused = self.words.as_ref().get(behind..).ok_or(InvalidState)?;
        if self.words.as_ref().len() != self.layout.words()
            || self.word(ENDS) != pack([ends.count, ends.oldest, ends.latest])
            || unused.iter().any(|&word| word != 0)
            || (0..=self.layout.mask).filter(|&slot| self.slot(slot) != 0).count() != ends.count
        {
            return Err(InvalidState);
        }
        // each entry points back at the one before it, so no entry is reached twice
        let (mut place, mut older) = (ends.oldest, 0);
        let (mut sum, mut age) = (0_u64, self.layout.period.0.saturating_sub(1));
        for _ in 0..ends.count {
            let links = self.links(place);
            let aged = self.age(place).0;
            if place > ends.count
                || links.older != older
                || self.field(place, LINKS) != pack([links.older, links.later, 0])
                || aged > age
                || self.find(self.id(place)) != Some(place)
            {
                return Err(InvalidState);
            }
            sum = sum.checked_add(self.value(place)).ok_or(InvalidState)?;
            (older, place, age) = (place, links.later, aged);
        }
        if place != 0 || older != ends.latest || sum != self.sum() {
            return Err(InvalidState);
        }
        Ok(())
    }

    /// The span until an entry expires. Zero if the entry has expired.
    #[inline]
    fn until(&self, live: Live, place: usize) -> Micros {
        let age = self.age(place).0.saturating_add(live.ahead);
        Micros(self.layout.period.0.saturating_sub(age))
    }

    #[inline]
    fn word(&self, at: usize) -> u64 {
        self.words.as_ref().get(at).copied().unwrap_or(0)
    }

    /// A word of an entry. Place 0 is no entry, and its words read as 0.
    #[inline]
    fn field(&self, place: usize, field: usize) -> u64 {
        if place == 0 { 0 } else { self.word(self.layout.base(place).saturating_add(field)) }
    }

    #[inline]
    fn id(&self, place: usize) -> Id {
        Id([self.field(place, 0), self.field(place, 1)])
    }

    #[inline]
    fn ends(&self) -> Ends {
        let word = self.word(ENDS);
        let count = lane(word, 0).min(self.layout.entries); // a foreign word may hold any number
        Ends { count, oldest: lane(word, 1), latest: lane(word, 2) }
    }

    #[inline]
    fn links(&self, place: usize) -> Links {
        let word = self.field(place, LINKS);
        Links { older: lane(word, 0), later: lane(word, 1) }
    }

    /// The place that a slot holds.
    #[inline]
    fn slot(&self, slot: usize) -> usize {
        let word = self.word(HEAD.saturating_add(slot >> LOG2_SLOTS_PER_WORD));
        lane(word, slot & (SLOTS_PER_WORD - 1))
    }

    /// The slot in which the search for an id begins.
    #[inline]
    fn home(&self, id: Id) -> usize {
        let Id([first, second]) = id;
        let mixed = first ^ second.wrapping_mul(MIX).rotate_left(32);
        let hash = (mixed ^ (mixed >> 32)).wrapping_mul(MIX);
        let first = usize::try_from(hash >> self.layout.shift); // at most 13 bits are left
        first.unwrap_or_else(|_| never(0)) & self.layout.mask
    }

    #[inline]
    const fn after(&self, slot: usize) -> usize {
        slot.wrapping_add(1) & self.layout.mask
    }
}

/// The k-th 16 bits of a word.
#[inline]
fn lane(word: u64, k: usize) -> usize {
    let shift = u32::try_from(k << 4).unwrap_or_else(|_| never(0));
    usize::try_from(word.wrapping_shr(shift) & LANE).unwrap_or_else(|_| never(usize::MAX))
}

/// Packs three numbers of at most 16 bits into one word.
#[inline]
fn pack([first, second, third]: [usize; 3]) -> u64 {
    let wide = |lanes: usize| u64::try_from(lanes).unwrap_or_else(|_| never(u64::MAX));
    wide(first | second << 16) | wide(third).wrapping_shl(32)
}

const HEAD: usize = 3;
const NEWEST: usize = 0;
const SUM: usize = 1;
const ENDS: usize = 2;

const TOUCHED: usize = 2;
const VALUE: usize = 3;
const LINKS: usize = 4;
/// The number of words that every entry has. Extra words follow them.
pub const FIELDS: usize = 5;

const SLOTS_PER_WORD: usize = 4;
const LOG2_SLOTS_PER_WORD: u32 = 2;
const LANE: u64 = 0xFFFF;

/// 2^64 divided by the golden ratio, made odd. It spreads consecutive ids over the slots (Knuth,
/// "The Art of Computer Programming", volume 3, section 6.4).
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
