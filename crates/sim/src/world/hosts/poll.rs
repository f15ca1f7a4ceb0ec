//! What a node decides and sends, and whether it is what its driver can expect.

use std::cell::RefCell;

use tidegate_gate::{Limits, Micros, Operation, Timestamp, TransactionError, Verdict};
use tidegate_tier::authority::Failure;

use super::asking::{Progress, same};
use super::machine::World;
use super::node::{Call, Decided, Fault, Node, Part, Stage};
use crate::world::compared::{Compared, compared};
use crate::world::replay::{States, Undone};
use crate::world::violation::{Checked, Invariant, Seen, check};

impl World {
    /// Lets a node decide and send a swap. Returns whether it sent one.
    pub(super) fn poll(&mut self, node: usize) -> Result<bool, Seen> {
        let node = node % self.nodes.len();
        let now = self.told_time(node);
        let looked = RefCell::new(Vec::new());
        let operations = &self.operations;
        let is_gone = |number: &usize| {
            looked.borrow_mut().push(*number);
            operations.get(*number).is_some_and(|asking| asking.is_gone)
        };
        let at = self.monotonic(node);
        let swap = self.nodes[node].authority.poll_swap((now, at), is_gone);
        for number in looked.into_inner() {
            self.looked_at(node, number)?;
        }
        for (number, answer) in self.take_answers(node)? {
            self.check_not_begun(number, &answer)?;
            let partition = self.places.keys[self.operations[number].key].partition;
            self.nodes[node].partitions[partition].waiting.retain(|waits| *waits != number);
        }
        let mut parts = Vec::new();
        for place in 0..swap.as_ref().map_or(0, |swap| swap.len()) {
            let records = match &swap {
                Some(swap) => {
                    compared(&mut self.nodes[node].authority, (swap, place), &self.places)?
                }
                None => Vec::new(),
            };
            let partition = self.next_ready(node, &records)?;
            self.nodes[node].ready.pop_front();
            self.decide(node, partition, now)?;
            let waits = &mut self.nodes[node].partitions[partition];
            waits.is_swapping = true;
            let batch = waits.batch.clone();
            parts.push(Part { partition, records, batch, stage: Stage::Sent, outcome: None });
        }
        let sends = swap.is_some();
        let records: usize = parts.iter().map(|part: &Part| part.records.len()).sum();
        if !sends || records < self.setup.most_records {
            self.drop_idle(node); // there was room for every partition
            let ready = &self.nodes[node].ready;
            check(ready.is_empty(), Invariant::Live, || format!("not sent: partitions {ready:?}"))?;
        } else if !self.nodes[node].ready.is_empty() {
            self.tally.add("a partition found no room in a swap");
        }
        if sends {
            self.calls.push(Call { node, sent: self.now, swap, parts });
        }
        Ok(sends)
    }

    /// All operations of a node fail that wait and are not under way.
    pub(super) fn give_up(&mut self, node: usize) -> Checked {
        let node = node % self.nodes.len();
        self.nodes[node].authority.fail_waiting(&Fault::Deadline, None);
        let answers = self.take_answers(node)?;
        let waits = &mut self.nodes[node];
        let mut expected = Vec::new();
        for partition in std::mem::take(&mut waits.ready) {
            let partition = &mut waits.partitions[partition];
            let decided = partition.batch.iter().filter(|decided| !decided.is_answered);
            expected.extend(
                decided.map(|decided| decided.operation).chain(partition.waiting.drain(..)),
            );
            partition.forget();
        }
        let failed =
            expected.into_iter().map(|number| (number, Err(Failure::Store(Fault::Deadline))));
        same(&answers, &failed.collect::<Vec<_>>(), Invariant::Reason)
    }

    /// The authority has asked whether the caller of an operation is gone.
    fn looked_at(&mut self, node: usize, number: usize) -> Checked {
        let Some(asking) = self.operations.get_mut(number) else { return Ok(()) };
        let waits =
            asking.authority == node && asking.state == Progress::Waiting && !asking.is_seen;
        check(waits, Invariant::Once, || format!("number {number} is decided again: {asking:?}"))?;
        asking.is_seen = true;
        if asking.is_gone {
            self.tally.add("an operation was left out");
            asking.state = Progress::Dropped;
            let partition = self.places.keys[asking.key].partition;
            let waits = &mut self.nodes[node];
            waits.waiting -= 1;
            waits.partitions[partition].waiting.retain(|waits| *waits != number);
            let asks = matches!(asking.operation, Operation::Decide(_) | Operation::Peek(_));
            return check(asks, Invariant::Order, || format!("left out: {:?}", asking.operation));
        }
        Ok(())
    }

    /// The partitions of a swap are in the order in which they became ready, first those whose operations are done
    /// again. Partitions without work are left out.
    fn next_ready(&mut self, node: usize, records: &[Compared]) -> Result<usize, Seen> {
        self.drop_idle(node);
        let ready = &self.nodes[node].ready;
        let next = ready.front().filter(|partition| {
            let own = &self.places.partitions[**partition];
            records.iter().all(|compared| own.contains(&compared.record))
        });
        next.copied().ok_or_else(|| {
            let seen = format!("the swap has {records:?}; the partitions in order are {ready:?}");
            Seen(Invariant::Order, seen)
        })
    }

    fn drop_idle(&mut self, node: usize) {
        let Node { ready, partitions, .. } = &mut self.nodes[node];
        while ready.front().is_some_and(|partition| !partitions[*partition].has_work()) {
            if let Some(partition) = ready.pop_front() {
                partitions[partition].forget();
            }
        }
    }

    /// All that waits for a partition joins its batch.
    fn decide(&mut self, node: usize, partition: usize, now: Option<Timestamp>) -> Checked {
        while let Some(number) = self.nodes[node].partitions[partition].waiting.pop_front() {
            let asking = &self.operations[number];
            let asks = matches!(asking.operation, Operation::Decide(_) | Operation::Peek(_));
            check(!asks || asking.is_seen, Invariant::Order, || {
                format!("number {number} was decided and nobody asked whether its caller is gone")
            })?;
            check(!self.is_too_late(number), Invariant::Reason, || {
                format!("number {number} was decided too late")
            })?;
            let time = self.decided_at(number, now);
            let decided = Decided { operation: number, time, is_answered: false };
            self.nodes[node].partitions[partition].batch.push(decided);
        }
        Ok(())
    }

    fn is_too_late(&self, number: usize) -> bool {
        let asking = &self.operations[number];
        let waited = self.monotonic(asking.authority).0.saturating_sub(asking.at.0);
        waited > self.setup.most_wait
    }

    /// An operation that is not begun waited for too long, or cannot be done.
    fn check_not_begun(
        &mut self,
        number: usize,
        answer: &Result<Verdict, Failure<Fault>>,
    ) -> Checked {
        if *answer != Err(Failure::TooLate) {
            return self.check_error(number, answer);
        }
        self.tally.add("an operation waited too long");
        check(self.is_too_late(number), Invariant::Reason, || {
            format!("number {number}: {answer:?}")
        })
    }

    /// The time at which an operation is decided: its own, unless it has waited for half a period.
    pub(super) fn decided_at(&self, number: usize, now: Option<Timestamp>) -> Timestamp {
        let asking = &self.operations[number];
        let now = now.unwrap_or(asking.time);
        let limits = self.places.keys[asking.key].resolved.limits();
        let most = limits.map_or(Micros::ZERO, Limits::period).0 / 2;
        if now.saturating_since(asking.time).0 > most { now } else { asking.time }
    }

    /// An operation that is answered without a swap can only be one that cannot be done.
    pub(super) fn check_error(
        &self,
        number: usize,
        answer: &Result<Verdict, Failure<Fault>>,
    ) -> Checked {
        let asking = &self.operations[number];
        let key = &self.places.keys[asking.key];
        let is_true = match answer {
            Err(Failure::Transaction(TransactionError::Operation(error))) => {
                let alone = States::default().operate(key, asking.time, &asking.operation);
                alone == Err(Undone::Operation(*error))
            }
            Err(Failure::Transaction(TransactionError::Blob { .. })) => {
                key.records.iter().any(|record| {
                    self.foreign_until[*record].is_some_and(|until| until >= asking.asked_in)
                })
            }
            _ => false,
        };
        check(is_true, Invariant::Reason, || format!("number {number}, {asking:?}: {answer:?}"))
    }
}
