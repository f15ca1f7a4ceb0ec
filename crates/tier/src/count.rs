//! Counts of what waits and of the bytes that are remembered.

use tidegate_gate::never;

/// A count without some that it contains. If it does not contain them, it stays: nothing is freed that was not counted.
pub(crate) const fn less(count: usize, some: usize) -> usize {
    match count.checked_sub(some) {
        Some(left) => left,
        None => never(count),
    }
}
