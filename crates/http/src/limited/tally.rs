//! Who is limited on several nodes: each node hands over what it has counted, and one of them adds it up.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use tidegate_gate::Timestamp;

use super::{HOUR_US, Limited, List};

/// Of how many nodes the tally remembers what came last, so that nothing counts twice.
const MOST_NODES: usize = 4_096;

/// Adds up what several nodes hand over, each of their lists once.
///
/// ```
/// use tidegate_gate::{Timestamp, top::Top};
/// use tidegate_http::{Hour, List, Tally};
///
/// let now = Timestamp(1_800_000_000_000_000); // a full hour
/// let counted = |key: &str, times: u64| {
///     let mut keys: Box<Top<Box<str>, 32>> = Box::default();
///     (0..times).for_each(|_| keys.count(|own| **own == *key, || key.into()));
///     let hours = vec![Hour { since: now, keys }];
///     vec![List { policy: "login".into(), limit: Some("minute".into()), refusals: times, hours }]
/// };
/// let mut tally = Tally::default();
/// tally.take((1, 1), counted("ann", 3), now); // of node 1
/// tally.take((2, 1), counted("bob", 1), now);
/// tally.take((2, 1), counted("bob", 1), now); // again
/// assert_eq!(tally.lists(now)[0].refusals, 4);
/// ```
#[derive(Debug, Default)]
pub struct Tally {
    all: Limited,
    /// The nodes and the numbers of what they handed over last, the newest at the end.
    taken: Vec<(u64, u64)>,
}

impl Tally {
    /// Adds lists that a node hands over, unless they came before. Each time the node counts its number up.
    pub fn take(&mut self, (node, number): (u64, u64), lists: Vec<List>, now: Timestamp) {
        let known = self.taken.iter().position(|(own, _)| *own == node);
        let last = known.map(|place| self.taken.remove(place).1);
        if last.is_none() && self.taken.len() >= MOST_NODES {
            self.taken.remove(0);
        }
        self.taken.push((node, number.max(last.unwrap_or_default())));
        if last.is_none_or(|last| last < number) {
            self.all.merge(lists, now);
        }
    }

    /// What all nodes have counted, as far as they have handed it over.
    pub fn lists(&mut self, now: Timestamp) -> &[List] {
        self.all.go_on(now);
        &self.all.lists
    }
}

impl Limited {
    /// Hands over what was counted since the last time.
    pub fn take(&mut self) -> Vec<List> {
        core::mem::take(&mut self.lists)
    }

    /// These lists of all nodes, and beside them what this node knows of its store.
    #[must_use]
    pub fn among(&self, lists: Vec<List>, now: Timestamp) -> Self {
        let mut all = Self { failure: self.failure.clone(), ..Self::default() };
        all.merge(lists, now);
        all
    }

    fn merge(&mut self, lists: Vec<List>, now: Timestamp) {
        self.go_on(now);
        if self.lists.len() >= super::MOST_LISTS {
            self.lists.retain(|list| !list.hours.is_empty()); // their policies may be gone
        }
        let this = self.since;
        for List { policy, limit, refusals, hours } in lists {
            let Some(own) = self.list(&policy, limit.as_deref()) else { continue };
            own.refusals = own.refusals.saturating_add(refusals);
            for mut hour in hours {
                hour.since = hour.since.min(this); // the clock of the node may be ahead
                let hour_ago = this.0.abs_diff(hour.since.0);
                match own.hours.iter_mut().find(|own| own.since == hour.since) {
                    Some(own) => own.keys.merge(*hour.keys, |own, other| own == other),
                    None if hour_ago == 0 => own.hours.insert(0, hour),
                    None if hour_ago == HOUR_US => own.hours.push(hour),
                    None => {} // it is over
                }
            }
        }
    }
}
