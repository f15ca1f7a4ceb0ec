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
use crate::limit::{Kind, Limit, NamedLimit};
use crate::policy::Policy;
use tidegate_core::Timestamp;

/// A limit and its words.
type LimitWords<'a> = (&'a NamedLimit, &'a [u64]);

/// Carries words that `old` wrote over to the limits of `record`. `now` is the time of the edit, or of the first operation after it.
///
/// Also returns whether these limits cannot hold all that the words count as used. A refusal then leaves the state as `old` wrote it,
/// because a policy that counts all of it may decide next.
pub(crate) fn carry(
    record: &Record,
    old: &Record,
    words: &[u64],
    (rule, now): (OnChange, Timestamp),
) -> (Vec<u64>, bool) {
    let newest = old.split(words).map(|(limit, words)| limit.newest(words)).max();
    let newest = newest.unwrap_or_default();
    let (now, mut moved_to, mut forgets) = (newest.max(now), newest, false);
    let olds = old.limits().iter().zip(old.split(words)).map(|(named, (_, words))| (named, words));
    let sources = record.limits().iter().zip(sources(record, olds.collect()));
    let each = sources.map(|(named, source)| {
        let (limit, mut own) = (&named.limit, vec![0; named.limit.words()]);
        match source {
            Some((old, words)) if old.limit == *limit => own.copy_from_slice(words),
            Some((old, words)) if old.limit.is_bucket() && limit.is_bucket() => {
                let mut refilled = Vec::from(words);
                old.limit.advance(&mut refilled, now);
                forgets |= forgets_used(limit, (&old.limit, &refilled), rule);
                adopt(limit, &mut own, (&old.limit, &refilled), now, rule);
                moved_to = now;
            }
            Some((old, words)) => {
                forgets |= forgets_used(limit, (&old.limit, words), rule);
                adopt(limit, &mut own, (&old.limit, words), newest, rule);
            }
            None => limit.advance(&mut own, newest),
        }
        (limit, own)
    });
    let each: Vec<_> = each.collect();
    let advanced = each.into_iter().flat_map(|(limit, mut own)| {
        limit.advance(&mut own, moved_to); // all limits keep one clock
        own
    });
    (advanced.collect(), forgets)
}

/// Whether the limit cannot hold all that the words count as used. A share of a capacity always fits.
fn forgets_used(limit: &Limit, (old, words): (&Limit, &[u64]), rule: OnChange) -> bool {
    let kind = limit.kind();
    let scales = rule == OnChange::Proportional && kind == Kind::Rate;
    let is_more = || old.remembered(words).is_some_and(|used| used > limit.most_counted());
    kind == old.kind() && !scales && is_more()
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
