//! The answer to a plain check: a decision without what each limit says.

use tidegate_gate::Decision;

use crate::answer::{Numbers, number_of, of_decision};

/// A decision without what each limit says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    pub(super) decision: Decision,
    /// The number of the rule if it is a refusal: JavaScript tells a denied key by it.
    pub(super) rule: Option<usize>,
    pub(super) flags: u8,
}

/// Writes a decision.
#[inline]
pub(super) fn write_decision(numbers: &mut Numbers, decided: &Decided) {
    let [limit, remaining, retry_after, reset_after, _, _, _, _, _, _, own, flags, ..] = numbers;
    [*limit, *remaining, *retry_after, *reset_after] = of_decision(&decided.decision);
    (*own, *flags) = (number_of(decided.rule), decided.flags.into());
}
