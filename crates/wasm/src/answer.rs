//! The answer to an operation in numbers, which JavaScript reads from WebAssembly's memory.

use tidegate_gate::{Decision, Probability, Verdict};

use crate::number::from_quantity;

/// The most limits of a rule.
const MOST_LIMITS: usize = 16;
/// The numbers before those of each limit.
const HEAD: usize = 13;
/// The numbers of a limit: whether it allows the request, and the four of a decision.
const EACH: usize = 5;
/// In place of a number that an answer does not have.
const NONE: f64 = -1.0;

/// `limit`, `remaining`, `retryAfterUs`, `resetAfterUs`; the time, the factor in units of 2^-32; the kind and the three numbers
/// of the [effect](tidegate_gate::Effect::to_numbers); the number of the rule, whether there is the name of a lease, and how
/// many limits follow.
pub(crate) type Numbers = [f64; HEAD + MOST_LIMITS * EACH];

pub(crate) const NO_NUMBERS: Numbers = [0.0; HEAD + MOST_LIMITS * EACH];

/// What an answer has beside its verdict.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extras {
    /// The number of the rule; `None` for a listed key.
    pub(crate) rule: Option<usize>,
    pub(crate) has_lease: bool,
}

#[inline]
const fn of_decision(decision: &Decision) -> [f64; 4] {
    [
        from_quantity(decision.limit()),
        from_quantity(decision.remaining()),
        from_quantity(decision.retry_after().0),
        from_quantity(decision.reset_after().0),
    ]
}

/// Writes the decision, and the number of its rule if it is a refusal: JavaScript tells a denied key by it.
#[inline]
pub(crate) fn write_decision(numbers: &mut Numbers, decision: &Decision, rule: Option<usize>) {
    let [limit, remaining, retry_after, reset_after, _, _, _, _, _, _, own, ..] = numbers;
    [*limit, *remaining, *retry_after, *reset_after] = of_decision(decision);
    *own = number_of(rule);
}

/// The number of a rule; below 0 for a listed key.
fn number_of(rule: Option<usize>) -> f64 {
    rule.and_then(|rule| u64::try_from(rule).ok()).map_or(NONE, from_quantity)
}

pub(crate) fn write(numbers: &mut Numbers, verdict: &Verdict, extras: Extras) {
    let [limit, remaining, retry_after, reset_after] = of_decision(&verdict.decision);
    let units = |units: Option<u64>| units.map_or(NONE, from_quantity);
    let (kind, [first, second, third]) = verdict.effect.to_numbers();
    let factor = verdict.factor.map(Probability::units);
    let limits = verdict.limits.iter().take(MOST_LIMITS);
    let head: [f64; HEAD] = [
        limit,
        remaining,
        retry_after,
        reset_after,
        from_quantity(verdict.at.0),
        units(factor),
        kind.into(),
        from_quantity(first),
        from_quantity(second),
        from_quantity(third),
        number_of(extras.rule),
        from_quantity(extras.has_lease.into()),
        from_quantity(u64::try_from(limits.len()).unwrap_or_default()),
    ];
    let (first, rest) = numbers.split_at_mut(HEAD);
    first.copy_from_slice(&head);
    for (place, said) in rest.chunks_exact_mut(EACH).zip(limits) {
        let [limit, remaining, retry_after, reset_after] = of_decision(said);
        let allowed = from_quantity(said.is_allowed().into());
        place.copy_from_slice(&[allowed, limit, remaining, retry_after, reset_after]);
    }
}
