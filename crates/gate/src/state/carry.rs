//! Carrying a state over an edit of its limits.
//!
//! The policy's `on_change` chooses what is kept: nothing (`reset`, which does not use this module), the used
//! units (`keep`), or the used share of the capacity (`proportional`). `docs/policies.md`, "Editing a file
//! that is in use", makes the promise: a limit continues as if all units that it counts as used had been
//! used at the newest time, under the new numbers. Between two buckets the units that came back since then came back at
//! the old rate, because the new one did not hold yet.

#[cfg(test)]
mod tests;

use alloc::vec;
use alloc::vec::Vec;

use crate::decide::{OnChange, Record};
use crate::limit::{Limit, NamedLimit};
use crate::policy::Policy;
use tidegate_core::Timestamp;

/// A limit and its words.
type LimitWords<'a> = (&'a NamedLimit, &'a [u64]);

/// Carries words that `old` wrote over to the limits of `record`. `now` is the time of the edit, or of the first operation after it.
pub(crate) fn carry(
    record: &Record,
    old: &Record,
    words: &[u64],
    (rule, now): (OnChange, Timestamp),
) -> Vec<u64> {
    let newest = old.split(words).map(|(limit, words)| limit.newest(words)).max();
    let newest = newest.unwrap_or_default();
    let (now, mut moved_to) = (newest.max(now), newest);
    let olds = old.limits().iter().zip(old.split(words)).map(|(named, (_, words))| (named, words));
    let sources = record.limits().iter().zip(sources(record, olds.collect()));
    let each = sources.map(|(named, source)| {
        let (limit, mut own) = (&named.limit, vec![0; named.limit.words()]);
        match source {
            Some((old, words)) if old.limit == *limit => own.copy_from_slice(words),
            Some((old, words)) if old.limit.is_bucket() && limit.is_bucket() => {
                let mut refilled = Vec::from(words);
                old.limit.advance(&mut refilled, now);
                adopt(limit, &mut own, (&old.limit, &refilled), now, rule);
                moved_to = now;
            }
            Some((old, words)) => adopt(limit, &mut own, (&old.limit, words), newest, rule),
            None => limit.advance(&mut own, newest),
        }
        (limit, own)
    });
    let each: Vec<_> = each.collect();
    let advanced = each.into_iter().flat_map(|(limit, mut own)| {
        limit.advance(&mut own, moved_to); // all limits keep one clock
        own
    });
    advanced.collect()
}

/// Whether a window or a log that goes on under a smaller one of its kind forgets units that the earlier one counts, for at least as
/// long. A refusal then leaves the state with the earlier limit, which another node may still go by. A bucket is none of them: its
/// state refills by the limit that wrote it.
pub(crate) fn forgets_units(record: &Record, old: &Record, words: &[u64]) -> bool {
    let ([named], [before]) = (record.limits(), old.limits()) else { return false };
    let (limit, before) = (&named.limit, &before.limit);
    let are_alike = limit.algorithm() == before.algorithm() && !limit.is_bucket();
    let lasts = before.period() >= limit.period() && !limit.remembers_refusals();
    are_alike && lasts && before.used(words).is_some_and(|used| used > limit.most_counted())
}

/// The record of `from` whose states go on under a record of `to` after an edit of the policy.
pub(crate) fn before_edit<'a>(new: &Record, from: &'a Policy, to: &Policy) -> Option<&'a Record> {
    let keeps = from.on_change().keeps_states() && to.on_change().keeps_states();
    // a block ends with the states
    let goes_on = |old: &Record| to.records().any(|new| new.fingerprint() == old.fingerprint());
    if new.limits().is_empty() && !keeps && !from.records().all(goes_on) {
        return None;
    }
    if !new.counts_apart() {
        return from.record(new.identity());
    }
    let by_name = from.record(new.identity()).filter(|_| keeps);
    let has_same_numbers = |old: &&Record| old.fingerprint() == new.fingerprint();
    let is_left = |old: &&Record| !keeps || to.record(old.identity()).is_none();
    by_name.or_else(|| from.records().filter(is_left).find(has_same_numbers)) // it was renamed
}

/// Finds the earlier form of each limit of `record`: the limit of the same name, otherwise a limit of the same
/// numbers, which was renamed, otherwise the first limit that is left, if the file names neither.
fn sources<'a>(record: &Record, mut olds: Vec<LimitWords<'a>>) -> Vec<Option<LimitWords<'a>>> {
    let rules: [fn(&NamedLimit, &NamedLimit) -> bool; 3] = [
        |new, old| new.tag != 0 && new.tag == old.tag,
        |new, old| new.limit == old.limit,
        |new, old| new.tag == 0 && old.tag == 0,
    ];
    let mut sources = vec![None; record.limits().len()];
    for same in rules {
        for (new, source) in record.limits().iter().zip(&mut sources) {
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
    limit.continue_used(own, newest, (old, words), ratio);
}
