//! The answer to a plain check: a decision without what each limit says.

use tidegate_gate::Decision;

use crate::answer::{Numbers, of_decision};

/// A decision without what each limit says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    pub(super) decision: Decision,
    /// The [flags](crate::answer::flags).
    pub(super) flags: u8,
}

/// Writes a decision.
#[inline]
pub(super) fn write_decision(numbers: &mut Numbers, decided: &Decided) {
    let [limit, remaining, retry_after, reset_after, _, _, _, _, _, _, _, flags, ..] = numbers;
    [*limit, *remaining, *retry_after, *reset_after] = of_decision(&decided.decision);
    *flags = decided.flags.into();
}
