//! How much memory of an isolate the Worker may take. The isolates of Cloudflare have 128 MB, and many objects may live
//! in one of them.

use std::cell::Cell;

/// The memory of an isolate, and what is left of it for the runtime, WebAssembly's code and the bodies of requests.
const ISOLATE: usize = 128_000_000;
const LEFT: usize = 16_000_000;

/// The most keys that a node remembers, and the most bytes of one: see `cache::Options`.
pub(crate) const MOST_KEYS: usize = 1 << 13;
const KEY: usize = 4_096;

/// The most operations that wait for objects, and about the most bytes of one, with its key and its answer.
pub(crate) const MOST_WAITING: usize = 1 << 13;
const WAITING: usize = 2_048;

/// The most bytes of states by which a node decides while objects cannot be asked.
pub(crate) const SHARES: usize = 4_000_000;

/// The memory for states, questions and replies of all objects of an isolate together.
const OBJECTS: usize = 44_000_000;

const _: () =
    assert!(MOST_KEYS * KEY + MOST_WAITING * WAITING + SHARES + OBJECTS + LEFT <= ISOLATE);

thread_local! {
    static USED: Cell<usize> = const { Cell::new(0) };
}

/// What one object takes of the memory that all objects of an isolate share.
#[derive(Debug, Default)]
pub(crate) struct Share(usize);

impl Share {
    /// The most bytes that the object may take now.
    pub(crate) fn most(&self) -> usize {
        let others = USED.get().saturating_sub(self.0);
        OBJECTS.saturating_sub(others)
    }

    /// Takes note of how many bytes the object takes.
    pub(crate) fn set(&mut self, bytes: usize) {
        USED.set(USED.get().saturating_sub(self.0).saturating_add(bytes));
        self.0 = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::{OBJECTS, Share};

    #[test]
    fn all_objects_of_an_isolate_share_one_bound() {
        let (mut one, mut other) = (Share::default(), Share::default());
        assert_eq!(one.most(), OBJECTS);
        one.set(OBJECTS - 10);
        assert_eq!((one.most(), other.most()), (OBJECTS, 10));
        other.set(10);
        assert_eq!((one.most(), other.most()), (OBJECTS - 10, 10));
        one.set(3);
        assert_eq!(other.most(), OBJECTS - 3);
        drop(one);
        assert_eq!(other.most(), OBJECTS);
    }
}
