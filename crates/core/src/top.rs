//! Top: the items of a stream that come most often, in constant memory.
//!
//! Space-Saving, from A. Metwally, D. Agrawal, A. El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data
//! Streams", ICDT 2005, §3.1. Each of K places counts one item. An item without a place takes the one with the smallest count,
//! and goes on from that count, which is then the error of its own.
//!
//! The lists of several streams are merged after P. Agarwal, G. Cormode, Z. Huang, J. Phillips, Z. Wei, K. Yi, "Mergeable Summaries",
//! PODS 2012. An item without a place in one of the lists came there at most as often as the smallest count of that list says,
//! so this count is added to its count and to its error. The K items with the largest counts keep places.
//!
//! | symbol | meaning |
//! |---|---|
//! | N | number of items that came, [`Top::total`] |
//! | K | number of places |
//! | f | how often an item really came |
//! | `count`, `error` | what its place says, [`Counted`] |
//!
//! **Guarantee:** `count` − `error` ≤ f ≤ `count`, and `error` ≤ N / K. Every item with f > N / K has a place. The counts of all
//! places add up to N, and after a merge to at most N. The guarantee also holds for streams that were
//! counted apart and merged in any order, and for what is counted after a merge.
//!
//! One item takes a scan over K places, whatever N is, and a merge takes K scans. No count wraps: at [`u64::MAX`] the counts stop.
//!
//! ```
//! use tidegate_core::top::Top;
//!
//! let mut top = Top::<&str, 2>::new();
//! for key in ["ann", "bob", "ann", "eve", "ann"] {
//!     top.count(|own| *own == key, || key);
//! }
//! let ann = top.iter().find(|counted| counted.item == "ann").unwrap();
//! assert_eq!((ann.count, ann.error), (3, 0)); // more than a half of all, so she has a place
//! let eve = top.iter().find(|counted| counted.item == "eve").unwrap();
//! assert_eq!((eve.count, eve.error), (2, 1)); // she came once or twice, in place of bob
//! ```

#[cfg(test)]
mod tests;

/// The items that come most often, each in one of K places.
#[derive(Clone, Debug)]
pub struct Top<T, const K: usize> {
    places: [Option<Counted<T>>; K],
    total: u64,
}

/// An item that has a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted<T> {
    /// The item.
    pub item: T,
    /// The most that it can have come.
    pub count: u64,
    /// How much less than `count` it may have come.
    pub error: u64,
}

impl<T, const K: usize> Default for Top<T, K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const K: usize> Top<T, K> {
    /// Places without items.
    #[must_use]
    pub const fn new() -> Self {
        Self { places: [const { None }; K], total: 0 }
    }

    /// Counts an item that has come. `is` says whether an item is this one, and `item` makes it if it has no place yet.
    pub fn count(&mut self, is: impl Fn(&T) -> bool, item: impl FnOnce() -> T) {
        self.total = self.total.saturating_add(1);
        let mut smallest: Option<&mut Option<Counted<T>>> = None;
        for place in &mut self.places {
            match place {
                Some(own) if is(&own.item) => {
                    own.count = own.count.saturating_add(1);
                    return;
                }
                place
                    if smallest.as_ref().is_none_or(|other| count_of(place) < count_of(other)) =>
                {
                    smallest = Some(place);
                }
                _ => {}
            }
        }
        if let Some(place) = smallest {
            let error = count_of(place);
            *place = Some(Counted { item: item(), count: error.saturating_add(1), error });
        }
    }

    /// Adds what came in another stream. `are_same` says whether two items are the same.
    pub fn merge(&mut self, other: Self, are_same: impl Fn(&T, &T) -> bool) {
        self.total = self.total.saturating_add(other.total);
        let (own_most, other_most) = (self.most_of_others(), other.most_of_others());
        let mut rest = other.places;
        for own in self.places.iter_mut().flatten() {
            let of_same = |place: &&mut Option<Counted<T>>| {
                place.as_ref().is_some_and(|other| are_same(&own.item, &other.item))
            };
            let same = rest.iter_mut().find(of_same).and_then(Option::take);
            let (count, error) =
                same.map_or((other_most, other_most), |same| (same.count, same.error));
            own.add(count, error);
        }
        for mut counted in rest.into_iter().flatten() {
            counted.add(own_most, own_most);
            let smallest = self.places.iter_mut().min_by_key(|place| count_of(place));
            if let Some(place) = smallest.filter(|place| count_of(place) < counted.count) {
                *place = Some(counted);
            }
        }
    }

    /// The most that an item without a place can have come.
    fn most_of_others(&self) -> u64 {
        self.places.iter().map(count_of).min().unwrap_or(self.total)
    }

    /// The places that another process has filled, for [`merge`](Self::merge). Returns `None` if they are more than K, count more than
    /// `total`, have an item twice, or have an item that never came. `are_same` says whether two items are the same.
    pub fn of_places(
        total: u64,
        counted: impl IntoIterator<Item = Counted<T>>,
        are_same: impl Fn(&T, &T) -> bool,
    ) -> Option<Self> {
        let mut top = Self { total, ..Self::new() };
        let mut rest = total;
        for new in counted {
            rest = rest.checked_sub(new.count)?;
            let is_known = top.iter().any(|own| are_same(&own.item, &new.item));
            let is_possible = new.error < new.count && !is_known;
            *top.places.iter_mut().find(|place| place.is_none()).filter(|_| is_possible)? =
                Some(new);
        }
        Some(top)
    }

    /// How many items have come.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The items that have places, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Counted<T>> {
        self.places.iter().flatten()
    }
}

impl<T> Counted<T> {
    const fn add(&mut self, count: u64, error: u64) {
        self.count = self.count.saturating_add(count);
        self.error = self.error.saturating_add(error);
    }
}

/// The count of a place; 0 of one that is free.
fn count_of<T>(place: &Option<Counted<T>>) -> u64 {
    place.as_ref().map_or(0, |own| own.count)
}
