//! The operations of a node that go in one question: those on a partition, or on all partitions of an object.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::mem;

use compact_str::CompactString;
use tidegate_gate::{Policy, Resolved};

use super::super::message::{self, Name, QuestionWriter};
use super::{NodeOptions, Outgoing, Question};

/// A [group](Resolved::group) under all revisions of a policy: they have one authority, and order per key is kept among
/// them.
#[derive(Clone, Debug)]
pub(super) struct Group {
    policy: Arc<Policy>,
    name: CompactString,
}

impl Group {
    pub(super) fn of(resolved: &Resolved) -> Self {
        let name = CompactString::new(resolved.group());
        Self { policy: Arc::clone(resolved.policy()), name }
    }

    pub(super) fn shares_calls(&self) -> bool {
        self.policy.shares_calls()
    }

    fn parts(&self) -> (&str, bool, &str) {
        (self.policy.name(), self.shares_calls(), &self.name)
    }
}

impl Ord for Group {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for Group {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Group {}

/// The operations on a group.
#[derive(Debug)]
pub(super) struct Queue<T> {
    /// The operations that are in no question yet.
    pub(super) waiting: VecDeque<Outgoing<T>>,
    /// The number of operations without an answer.
    pub(super) operations: usize,
    /// The number of questions under way.
    pub(super) questions: usize,
    /// Whether the group is in the queue of those that may send.
    pub(super) is_ready: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), operations: 0, questions: 0, is_ready: false }
    }
}

impl<T> Queue<T> {
    /// Whether the group becomes ready. A group that is ready already does not become it again.
    pub(super) fn may_send(&mut self, most_under_way: usize) -> bool {
        let may = !self.waiting.is_empty() && self.questions < most_under_way.max(1);
        may && !mem::replace(&mut self.is_ready, true)
    }

    /// Puts as many of the waiting operations into a question as may be in one. The first always may.
    pub(super) fn question(
        &mut self,
        options: &NodeOptions,
        number: u64,
    ) -> Option<(Question, Vec<Outgoing<T>>)> {
        let to = self.waiting.front()?.resolved.clone();
        let name = Name { node: options.node, number };
        let mut question = QuestionWriter::new(name, to.policy().name());
        let mut count = 0_usize;
        for asked in self.waiting.iter().take(options.most_operations.max(1)) {
            let most = if count == 0 { usize::MAX } else { options.most_bytes };
            let Outgoing { now, operation, .. } = *asked;
            // another revision of the policy may find another rule for the canonical key
            let key = asked.resolved.written_key();
            let idempotency = asked.resolved.idempotency();
            if !question.add(&message::Item { key, now, operation, idempotency }, most) {
                break;
            }
            count = count.saturating_add(1);
        }
        let bytes = question.finish();
        let operations = self.waiting.drain(..count).collect();
        Some((Question { number, to, bytes }, operations))
    }
}
