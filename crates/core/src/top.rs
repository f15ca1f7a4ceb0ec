//! Top: the items of a stream that come most often, in constant memory.
//!
//! Space-Saving, from A. Metwally, D. Agrawal, A. El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data
//! Streams", ICDT 2005, §3.1. Each of K places counts one item. An item without a place takes the one with the smallest count,
//! and goes on from that count, which is then the error of its own.
//!
//! | symbol | meaning |
//! |---|---|
//! | N | number of items that came, [`Top::total`] |
//! | K | number of places |
//! | f | how often an item really came |
//! | `count`, `error` | what its place says, [`Counted`] |
//!
//! **Guarantee:** `count` − `error` ≤ f ≤ `count`, and `error` ≤ N / K. Every item with f > N / K has a place. The counts of all
//! places add up to N.
//!
//! One item takes a scan over K places, whatever N is. No count wraps: at [`u64::MAX`] the counts stop.
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
        let count_of = |place: &Option<Counted<T>>| place.as_ref().map_or(0, |own| own.count);
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
