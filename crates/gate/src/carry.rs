//! Carrying a state over an edit of its limits.
//!
//! The policy's `on_change` chooses what is kept: nothing (`reset`, which does not use this module), the used
//! units (`keep`), or the used share of the capacity (`proportional`). `docs/policies.md`, "Editing a file
//! that is in use", makes the promise: a limit continues as if all units that it counts as used had been
//! used at the newest time, under the new numbers.

#[cfg(test)]
mod tests;

use alloc::vec;
use alloc::vec::Vec;

use tidegate_core::Timestamp;

use crate::limit::Limit;
use crate::limits::{NamedLimit, Slice};
use crate::policy::{OnChange, Policy};

/// Carries words that `old` wrote over to the limits of `slice`.
pub(crate) fn carry(slice: &Slice, old: &Slice, words: &[u64], rule: OnChange) -> Vec<u64> {
    let newest = old.split(words).map(|(limit, words)| limit.newest(words)).max();
    let newest = newest.unwrap_or_default();
    let olds = old.limits().iter().zip(old.split(words)).map(|(named, (_, words))| (named, words));
    let mut carried = Vec::with_capacity(slice.words());
    let sources = sources(slice.limits().iter().collect(), olds.collect());
    for (named, source) in slice.limits().iter().zip(sources) {
        let mut own = vec![0; named.limit.words()];
        match source {
            Some((old, words)) if old.limit == named.limit => own.copy_from_slice(words),
            Some((old, words)) => adopt(&named.limit, &mut own, (&old.limit, words), newest, rule),
            None => {}
        }
        named.limit.advance(&mut own, newest);
        carried.extend(own);
    }
    carried
}

/// The slices of `from` whose states an edit of the policy keeps, each with the slice of `to` that takes them over.
pub(crate) fn edited<'a>(from: &'a Policy, to: &'a Policy) -> Vec<(&'a Slice, &'a Slice)> {
    let both = [from, to];
    if !both.iter().all(|policy| policy.limits().count_apart()) {
        let old = |new: &Slice| from.slice(new.identity());
        return to.slices().filter_map(|new| Some((old(new)?, new))).collect();
    }
    if !both.iter().all(|policy| policy.on_change().keeps_states()) {
        let old = |new: &Slice| from.slices().find(|old| old.fingerprint() == new.fingerprint());
        return to.slices().filter_map(|new| Some((old(new)?, new))).collect();
    }
    let blocks = from.slices().chain(to.slices()).filter(|slice| slice.limits().is_empty());
    let mut pairs: Vec<_> = blocks.take(1).map(|blocks| (blocks, blocks)).collect();
    let mut news: Vec<&Slice> = to.slices().filter(|new| !new.limits().is_empty()).collect();
    while let Some(&first) = news.first() {
        let (group, rest) = news.into_iter().partition(|new| new.is_edit_of(first));
        news = rest;
        let olds = from.slices().filter(|old| old.is_edit_of(first));
        let olds = olds.flat_map(|old| old.limits().iter().map(move |named| (named, old)));
        let limits = group.iter().flat_map(|new: &&Slice| new.limits());
        let sources = sources(limits.collect(), olds.collect()).into_iter();
        pairs.extend(sources.zip(&group).filter_map(|(old, new)| Some((old?.1, *new))));
    }
    pairs
}

/// Finds the earlier form of each of the `limits`: the limit of the same name, otherwise a limit of the same
/// numbers, which was renamed, otherwise the first limit that is left, if the file names neither.
fn sources<'a, T: Copy>(
    limits: Vec<&NamedLimit>,
    mut olds: Vec<(&'a NamedLimit, T)>,
) -> Vec<Option<(&'a NamedLimit, T)>> {
    let rules: [fn(&NamedLimit, &NamedLimit) -> bool; 3] = [
        |new, old| new.tag != 0 && new.tag == old.tag,
        |new, old| new.limit == old.limit,
        |new, old| new.tag == 0 && old.tag == 0,
    ];
    let mut sources = vec![None; limits.len()];
    for same in rules {
        for (new, source) in limits.iter().zip(&mut sources) {
            if source.is_none()
                && let Some(place) = olds.iter().position(|(old, _)| same(new, old))
            {
                *source = Some(olds.remove(place));
            }
        }
    }
    sources
}

fn adopt(
    limit: &Limit,
    own: &mut [u64],
    (old, words): (&Limit, &[u64]),
    newest: Timestamp,
    rule: OnChange,
) {
    let ratio = match rule {
        OnChange::Proportional => limit.ratio(old),
        OnChange::Keep | OnChange::Reset => (1, 1),
    };
    if limit.adopts(own, old, words, ratio) {
        return;
    }
    limit.advance(own, newest);
    // only units over time carry over to units over time; anything else starts afresh
    let (Some(used), Some(counted)) = (old.used(words), limit.used(own)) else { return };
    let mut carried = scaled(used, ratio);
    if counted > 0 {
        // a new key has used units already, so that it gets no burst; an edit must not give one either, so
        // the remaining units stay as they were
        let more = limit.capacity().saturating_sub(old.capacity());
        carried = carried.max(used.saturating_add(more));
    }
    limit.set_used(own, newest, carried);
}

/// Scales used units, rounded up: a started unit is used.
pub(crate) fn scaled(used: u64, (to, from): (u64, u64)) -> u64 {
    let product = u128::from(used).saturating_mul(to.into());
    u64::try_from(product.div_ceil(u128::from(from).max(1))).unwrap_or(u64::MAX)
}
