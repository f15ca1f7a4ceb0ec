//! What is left to chance.

use tidegate_gate::Draw;

/// A random number that nobody can guess: it may become the name of a lease. `None` where the
/// runtime has none to give.
pub(crate) fn number() -> Option<u64> {
    getrandom::u64().ok()
}

/// Without any to be had: the draw that is shed with any probability above 0.
pub(crate) fn draw() -> Draw {
    Draw(getrandom::u32().unwrap_or_default())
}
