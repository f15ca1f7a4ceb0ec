//! Whether anything is left of reservations after the last one has ended and is forgotten.

use tidegate_core::hold::{self, Terms};
use tidegate_core::window::calendar::Boundaries;
use tidegate_gate::{Decision, Limit, Limiter, Limits, Micros, Operation, Timestamp, Verdict};

use super::places::Key;
use super::replay::States;
use super::violation::{Checked, Invariant, check};

/// After this span nothing is live, nothing is remembered, and all units are back, also those of a debt.
fn span<B: Boundaries>(limit: &hold::Config<B>) -> Micros {
    let Terms { longest, remember, .. } = limit.terms();
    Micros(longest.0 + remember.0 + 3 * limit.period().0)
}

/// A limit of a key that holds: its place, its [`span`], and the units that it must have in the end, if that is known.
fn holding(key: &Key) -> impl Iterator<Item = (usize, Micros, Option<u64>)> {
    let each = key.resolved.limits().into_iter().flat_map(Limits::iter).enumerate();
    each.filter_map(|(at, named)| match &named.limit {
        Limit::Holding(limit) => {
            let capacity = (!starts_empty(limit)).then(|| limit.capacity());
            Some((at, span(limit), capacity))
        }
        _ => None,
    })
}

/// If nobody has asked, such a bucket does not fill.
const fn starts_empty<B: Boundaries>(limit: &hold::Config<B>) -> bool {
    matches!(limit.counter(), hold::Counter::TokenBucket(bucket) if bucket.starts_empty())
}

/// In the end the stored states of a key hold nothing, and nothing is missing.
pub(super) fn check_states(key: &Key, states: &States) -> Checked {
    for (record, place) in
        key.resolved.limits().into_iter().flat_map(Limits::records).zip(&key.records)
    {
        let Ok((words, _)) = states.words(key, record, *place, Timestamp::EPOCH) else { continue };
        let mut words = words.as_slice();
        for named in record.limits() {
            let (own, rest) = words.split_at(named.limit.words());
            words = rest;
            let Limit::Holding(limit) = &named.limit else { continue };
            if own.iter().all(|word| *word == 0) {
                continue; // a bucket that starts empty does not fill yet
            }
            let mut own = own.to_vec();
            let Ok(mut state) = limit.state(&mut own[..]) else { continue };
            let end = state.newest().saturating_add(span(limit));
            limit.advance(&mut state, end);
            let left = limit.decide(&mut state, end, 0).map(|said| said.remaining());
            let is_empty = limit.has_no_holds(&state) && limit.held(&state) == 0;
            check(is_empty && left == Ok(limit.capacity()), Invariant::Ended, || {
                let policy = key.resolved.policy().name();
                format!(
                    "{policy}: {left:?} units are left at {end:?}: {state:?}; stored: {words:?}"
                )
            })?;
        }
    }
    Ok(())
}

/// The same, asked of what decides on the key.
pub(super) fn check_answers<E: std::fmt::Debug>(
    key: &Key,
    now: Timestamp,
    ask: impl FnOnce(Timestamp, &Operation) -> Result<Verdict, E>,
) -> Checked {
    let Some(longest) = holding(key).map(|(_, span, _)| span).max() else { return Ok(()) };
    let said = ask(now.saturating_add(longest), &Operation::from(0));
    let is_full = said.as_ref().is_ok_and(|said| {
        holding(key).all(|(at, _, capacity)| {
            let remaining = said.limits.get(at).map(Decision::remaining);
            capacity.is_none() || remaining == capacity
        })
    });
    check(is_full, Invariant::Ended, || format!("in the end the key says {said:?}"))
}
