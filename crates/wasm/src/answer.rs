//! The answer to an operation in numbers, which JavaScript reads from WebAssembly's memory.

use tidegate_gate::{Asked, Decision, Probability, Softness, Verdict};

use crate::number::from_quantity;

/// The most limits of a rule.
const MOST_LIMITS: usize = 16;
/// The numbers before those of each limit.
const HEAD: usize = 13;
/// The numbers of a limit: its flags, and the four of a decision.
const EACH: usize = 5;
/// The [flag](flags) of a key on the list `deny`.
pub(crate) const DENIED: u8 = 16;
/// In place of a number that an answer does not have.
const NONE: f64 = -1.0;

/// `limit`, `remaining`, `retryAfterUs`, `resetAfterUs`; the time, the factor in units of 2^-32; the kind and the three numbers
/// of the [effect](tidegate_gate::Effect::to_numbers); the number of the rule, the [flags](flags), and how many limits follow.
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
pub(crate) const fn of_decision(decision: &Decision) -> [f64; 4] {
    [
        from_quantity(decision.limit()),
        from_quantity(decision.remaining()),
        from_quantity(decision.retry_after().0),
        from_quantity(decision.reset_after().0),
    ]
}

/// What an answer says beside its decision: 1 for the name of a lease, 2 for a warning, 4 for a limit in shadow, 8 if such a
/// limit would refuse, and [`DENIED`].
pub(crate) fn flags(soft: Softness, decision: &Decision, extras: Extras) -> u8 {
    let has_shadow = soft.would_allow(true).is_some();
    let [lease, warns, shadow, refuses] =
        [extras.has_lease, soft.warns(), has_shadow, soft.would_refuse()].map(u8::from);
    let denied = if decision.is_listed() { DENIED } else { 0 };
    lease | warns << 1 | shadow << 2 | refuses << 3 | denied
}

/// The number of a rule; below 0 for a listed key.
fn number_of(rule: Option<usize>) -> f64 {
    rule.and_then(|rule| u64::try_from(rule).ok()).map_or(NONE, from_quantity)
}

/// Why a request passes or not: the name of the limit that decides, its rate or gap, and a sentence, each with a zero after it. The
/// text begins with a plus if the request would pass, otherwise with a space. `None` unless the caller asked why.
pub(crate) fn in_words(asked: &Asked, verdict: &Verdict) -> Option<String> {
    let why = asked.explain(verdict)?;
    let sign = if verdict.decision.is_allowed() { "+" } else { " " };
    let limit = why.limit.as_deref().unwrap_or_default();
    Some([sign, limit, "\0", &why.bound, "\0", &why.text, "\0"].concat())
}

pub(crate) fn write(numbers: &mut Numbers, verdict: &Verdict, extras: Extras, soft: Softness) {
    let [limit, remaining, retry_after, reset_after] = of_decision(&verdict.decision);
    let units = |units: Option<u64>| units.map_or(NONE, from_quantity);
    let (kind, [first, second, third]) = verdict.effect.to_numbers();
    let factor = verdict.factor.map(Probability::units);
    let said = verdict.limits.iter().take(MOST_LIMITS);
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
        flags(soft, &verdict.decision, extras).into(),
        from_quantity(u64::try_from(said.len()).unwrap_or_default()),
    ];
    let (first, rest) = numbers.split_at_mut(HEAD);
    first.copy_from_slice(&head);
    for ((place, said), (shadow, warns)) in rest.chunks_exact_mut(EACH).zip(said).zip(soft.each()) {
        let [limit, remaining, retry_after, reset_after] = of_decision(said);
        // 1 if the limit allows the request, 2 if it warns, 4 if it is in shadow
        let [allows, warns, shadow] = [said.is_allowed(), warns, shadow].map(u8::from);
        let flags = (allows | warns << 1 | shadow << 2).into();
        place.copy_from_slice(&[flags, limit, remaining, retry_after, reset_after]);
    }
}
