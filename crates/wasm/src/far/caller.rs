//! An operation whose caller waits, as a store takes it and hands it back.

use tidegate_gate::{Asked, Micros, Operation, Resolved, Verdict};
use tidegate_tier::authority::Failure;

use crate::middleware::Asking;

/// An operation that has waited for this many deadlines is not begun any more.
pub(crate) const MOST_DEADLINES: u64 = 16;

/// What a store answers.
pub(crate) type Answer = Result<Verdict, Failure<String>>;

/// What becomes of an operation that is asked.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nobody keeps it, and a box would be allocated for each answer"
)]
pub(crate) enum Taken {
    /// Its answer will come by this token.
    Waits(usize),
    /// It needs no store.
    Answered(Caller, Answer),
}

/// An operation whose caller waits.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) resolved: Resolved,
    /// What the caller asked; `None` for an operation that a caller cannot write.
    pub(crate) asked: Option<Asked>,
    pub(crate) operation: Operation,
    /// Whether the caller gave the time.
    pub(crate) is_timed: bool,
    /// When it was asked.
    pub(crate) at: Micros,
    /// The request of middleware that asks for it.
    pub(crate) asking: Option<Box<Asking>>,
}
