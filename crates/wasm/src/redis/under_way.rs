//! A swap under way: one call, or in a Cluster one for each master, or for each slot where a master does not run scripts over several slots.

use tidegate_tier::Authority;
use tidegate_tier::authority::{Swap, SwapOutcome};

use super::call::{Call, Group, Outcomes, Step, is_of_server};
use super::slot::{Master, Masters};

/// A swap whose calls have not all ended.
#[derive(Debug)]
pub(super) struct UnderWay {
    /// The server whose authority has made it.
    pub(super) server: Master,
    pub(super) swap: Swap,
    /// The outcome of each partition, as far as it is known.
    pub(super) outcomes: Outcomes,
    /// How many calls have not ended.
    open: usize,
    /// Why some call got no outcomes.
    error: Option<String>,
    /// Some call got outcomes.
    has_outcomes: bool,
    /// The partitions that calls over several slots could not do. With an error nobody knows whether they did.
    again: Vec<(usize, Option<String>)>,
}

/// What follows the end of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Other calls are under way.
    Wait,
    /// Some partitions are to be asked again, by slot.
    Again,
    /// All calls have ended; with an error if the server did not answer.
    End(Option<String>),
}

impl UnderWay {
    pub(super) fn new(server: Master, swap: Swap) -> Self {
        let outcomes = vec![SwapOutcome::Failed(String::new()); swap.len()];
        let (open, error, has_outcomes, again) = (0, None, false, Vec::new());
        Self { server, swap, outcomes, open, error, has_outcomes, again }
    }

    /// The calls that begin the swap.
    pub(super) fn begin(
        &mut self,
        to: (&str, bool),
        authority: &mut Authority<usize, String>,
        (masters, runs_across): (&Masters, bool),
    ) -> Vec<Call> {
        let mut groups = Vec::new();
        for partition in 0..self.swap.len() {
            let slot = self.slot(to.0, authority, (masters, partition));
            let master = if runs_across { masters.master(slot) } else { 0 };
            join(&mut groups, partition, (slot, master));
        }
        self.open = groups.len();
        let call = |(_, group)| Call::new(to, (&mut *authority, &self.swap), group);
        groups.into_iter().map(call).collect()
    }

    /// The calls by slot that repeat what calls over several slots could not do. What is done again was not written, and the new
    /// call compares its records anew, so nothing is granted twice.
    pub(super) fn begin_again(
        &mut self,
        to: (&str, bool),
        authority: &mut Authority<usize, String>,
        masters: &Masters,
    ) -> Vec<Call> {
        let (mut refused, mut lost, mut error) = (Vec::new(), Vec::new(), None);
        for (partition, own) in core::mem::take(&mut self.again) {
            let slot = self.slot(to.0, authority, (masters, partition));
            join(if own.is_some() { &mut lost } else { &mut refused }, partition, (slot, 0));
            error = own.or(error);
        }
        self.open = refused.len().saturating_add(lost.len());
        (self.error, self.has_outcomes) = (None, false);
        let mut call = |(_, group)| Call::new(to, (&mut *authority, &self.swap), group);
        let mut calls: Vec<Call> = refused.into_iter().map(&mut call).collect();
        for group in lost {
            let mut reads = call(group);
            reads.read_after(error.clone().unwrap_or_default());
            calls.push(reads);
        }
        calls
    }

    /// The slot of the records of a partition.
    fn slot(
        &self,
        prefix: &str,
        authority: &mut Authority<usize, String>,
        (masters, partition): (&Masters, usize),
    ) -> u16 {
        if !masters.are_cluster() {
            return 0;
        }
        self.name(prefix, authority, partition).map_or(0, |name| masters.slot(name.as_bytes()))
    }

    /// The name of the first record of a partition.
    pub(super) fn name(
        &self,
        prefix: &str,
        authority: &mut Authority<usize, String>,
        partition: usize,
    ) -> Option<String> {
        let mut records = authority.records(&self.swap, partition);
        records.next().map(|record| [prefix, record.name].concat())
    }

    /// Takes the end of a call.
    pub(super) fn end(&mut self, group: &Group, step: Step, is_cluster: bool) -> Then {
        self.open = self.open.saturating_sub(1);
        let outcomes = match step {
            Step::Send => return Then::Wait, // never: the call has ended
            Step::End(Ok(outcomes)) => {
                self.has_outcomes = true;
                outcomes
            }
            Step::End(Err(error)) => {
                self.error.get_or_insert_with(|| error.clone());
                vec![SwapOutcome::Failed(error); group.partitions.len()]
            }
            Step::Lost(error) => {
                let each = group.partitions.iter().map(|own| (*own, Some(error.clone())));
                self.again.extend(each);
                vec![SwapOutcome::Failed(error); group.partitions.len()]
            }
        };
        for (partition, outcome) in group.partitions.iter().zip(outcomes) {
            if group.is_across && is_refused(&outcome) {
                self.again.push((*partition, None));
            }
            if let Some(place) = self.outcomes.get_mut(*partition) {
                *place = outcome;
            }
        }
        if self.open > 0 {
            return Then::Wait;
        }
        if !self.again.is_empty() {
            return Then::Again;
        }
        let error = self.error.take().filter(|_| !self.has_outcomes);
        // a master that says why it did nothing may do the next call
        Then::End(error.filter(|error| !is_cluster || !is_of_server(error)))
    }
}

/// Adds a partition to the group of its slot, or of its master if that is known.
fn join(groups: &mut Vec<(Master, Group)>, partition: usize, (slot, master): (u16, Master)) {
    let fits =
        |(of, group): &&mut (Master, Group)| group.slot == slot || (master != 0 && *of == master);
    match groups.iter_mut().find(fits) {
        Some((_, group)) => {
            group.is_across |= group.slot != slot;
            group.partitions.push(partition);
        }
        None => {
            groups.push((master, Group { slot, is_across: false, partitions: vec![partition] }));
        }
    }
}

/// Whether a server has said that it did not do this.
fn is_refused(outcome: &SwapOutcome<String>) -> bool {
    match outcome {
        SwapOutcome::Failed(error) | SwapOutcome::Refused(_, error) => is_of_server(error),
        SwapOutcome::Unreadable(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Group, join};

    #[test]
    fn partitions_of_one_master_share_a_call_and_those_of_an_unknown_one_only_by_slot() {
        let mut groups = Vec::new();
        let of = [(5, 1), (6, 2), (7, 1), (6, 2), (8, 0), (9, 0), (8, 0)];
        for (partition, slot_and_master) in of.into_iter().enumerate() {
            join(&mut groups, partition, slot_and_master);
        }
        let group = |slot, is_across, partitions: &[usize]| Group {
            slot,
            is_across,
            partitions: partitions.to_vec(),
        };
        let expected = [
            (1, group(5, true, &[0, 2])),
            (2, group(6, false, &[1, 3])),
            (0, group(8, false, &[4, 6])),
            (0, group(9, false, &[5])),
        ];
        assert_eq!(groups, expected);
    }
}
