//! The invariants of a world, and how one was broken.

use std::fmt;

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invariant {
    /// The answers are those of operations that were done one after another, in the order in which the
    /// storage swapped.
    Linearizable,
    /// An answer that needed no write is that of the states at the storage, at a moment between question and
    /// answer.
    Settled,
    /// The storage holds what these operations wrote, for as long as it must.
    Stored,
    /// Whatever the storage forgets when it expires changes no decision.
    Expiry,
    /// Nothing is granted beyond the limits, and the used units are those that were granted and not returned.
    Bound,
    /// A key beside each key never crashes. It grants whatever an object grants, and what is stored leaves no
    /// more than this key has.
    Dominant,
    /// A crash costs no more than the policy says.
    Cost,
    /// After the last time to live nothing is held, and all units are back.
    Ended,
    /// Units that a holder takes in advance are spent once, in time, given back, or lost.
    Conserved,
    /// A refusal that a node repeats is one that it has heard lately, and that the authority would give at this
    /// moment unless units have come back.
    Remembered,
    /// An operation is answered at most once, and only if somebody waits for it.
    Once,
    /// The operations of a partition are decided in the order in which they came. Only callers that are gone are
    /// left out, and only if they asked for something.
    Order,
    /// An operation fails only for the reason that it is given.
    Reason,
    /// The authority remembers no more than it may, and counts what waits.
    Counted,
    /// Every operation is answered soon after the last fault.
    Live,
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// The step, counted from 0.
    pub step: usize,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, step {}: {}", self.invariant, self.step, self.seen)
    }
}

impl std::error::Error for Violation {}

/// The outcome of a step: the invariant that does not hold, and what was seen.
pub(super) type Checked = Result<(), Seen>;

/// A violation whose step is not yet known.
#[derive(Debug)]
pub(super) struct Seen(pub(super) Invariant, pub(super) String);

/// Fails with `seen` unless the invariant holds.
pub(super) fn check(holds: bool, invariant: Invariant, seen: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Seen(invariant, seen())) }
}
