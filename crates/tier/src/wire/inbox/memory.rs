//! The questions that an authority has seen, within a bound of memory.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_gate::{Id, Micros, Verdict};

use super::Failure;
use super::Name;
use crate::count::less;
use crate::tree::Tree;

/// The memory that a node or a question takes beside its own size: its place in a tree and in a queue.
const PLACE_BYTES: usize = 96;

/// A question that has come.
#[derive(Debug)]
pub(super) struct Known<T> {
    /// Tells the question from another one to which its node has given the same number by mistake.
    pub(super) hash: u64,
    /// A hash of the group; `None` if nothing of the question was begun.
    pub(super) group: Option<u64>,
    pub(super) state: State<T>,
}

#[derive(Debug)]
pub(super) enum State<T> {
    UnderWay {
        /// The answers so far.
        answers: Vec<Option<Result<Verdict, Failure>>>,
        /// The number of operations without an answer.
        left: usize,
        /// The copies of the question that wait for the reply.
        to: Vec<T>,
    },
    Replied(Arc<[u8]>),
}

impl<T> Known<T> {
    pub(super) fn bytes(&self) -> usize {
        let own = match &self.state {
            State::UnderWay { answers, to, .. } => size_of::<Option<Result<Verdict, Failure>>>()
                .saturating_mul(answers.len())
                .saturating_add(to.len().saturating_mul(size_of::<T>())),
            State::Replied(reply) => reply.len(),
        };
        own.saturating_add(size_of::<Self>()).saturating_add(PLACE_BYTES)
    }
}

#[derive(Debug)]
struct Node<T> {
    /// A question with a lower number is not taken, unless it is remembered.
    low: u64,
    /// When a question of the node last came.
    newest: Micros,
    questions: Tree<u64, Known<T>>,
}

impl<T> Node<T> {
    const BYTES: usize = size_of::<Self>().saturating_add(PLACE_BYTES);
}

/// What is known of a question that comes.
pub(super) enum Found {
    Known,
    /// It may have come before.
    Forgotten,
    New,
}

/// All questions that are remembered, and of each node the number up to which they may be forgotten.
#[derive(Debug)]
pub(super) struct Memory<T> {
    nodes: Tree<Id, Node<T>>,
    /// The questions with a reply, in the order and with the times of their replies.
    replied: VecDeque<(Micros, Name)>,
    /// The nodes, with the times at which they were last found in use.
    in_use: VecDeque<(Micros, Id)>,
    bytes: usize,
}

impl<T> Memory<T> {
    pub(super) const fn new() -> Self {
        Self { nodes: Tree::new(), replied: VecDeque::new(), in_use: VecDeque::new(), bytes: 0 }
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Looks for a question that comes at this time.
    pub(super) fn find(&mut self, name: Name, at: Micros) -> Found {
        let Some(node) = self.nodes.get_mut(&name.node) else { return Found::New };
        node.newest = at;
        match node.questions.contains_key(&name.number) {
            true => Found::Known,
            false if name.number < node.low => Found::Forgotten,
            false => Found::New,
        }
    }

    /// Whether the node has sent a later question about this group, and that came first.
    pub(super) fn is_overtaken(&self, name: Name, group: u64) -> bool {
        let Some(node) = self.nodes.get(&name.node) else { return false };
        let mut later = node.questions.range(name.number..);
        later.any(|(_, known)| known.group == Some(group))
    }

    /// Adds a question, or returns it if there is no room.
    pub(super) fn add(
        &mut self,
        (name, known): (Name, Known<T>),
        at: Micros,
        (most, time): (usize, Micros),
    ) -> Result<(), Known<T>> {
        let of_node = if self.nodes.contains_key(&name.node) { 0 } else { Node::<T>::BYTES };
        let needed = known.bytes().saturating_add(of_node);
        self.forget(at, (most.saturating_sub(needed), time));
        if self.bytes.saturating_add(needed) > most {
            return Err(known);
        }
        let is_replied = matches!(known.state, State::Replied(_));
        let node = self.nodes.entry(name.node).or_insert_with(|| {
            self.in_use.push_back((at, name.node));
            Box::new(Node { low: 0, newest: at, questions: Tree::new() })
        });
        node.questions.insert(name.number, Box::new(known));
        self.bytes = self.bytes.saturating_add(needed);
        if is_replied {
            self.replied.push_back((at, name));
        }
        Ok(())
    }

    /// Changes a question. It is remembered from now on if it gets its reply.
    pub(super) fn change<R>(
        &mut self,
        name: Name,
        at: Micros,
        change: impl FnOnce(&mut Known<T>) -> R,
    ) -> Option<R> {
        let known = self.nodes.get_mut(&name.node)?.questions.get_mut(&name.number)?;
        let (bytes, was_replied) = (known.bytes(), matches!(known.state, State::Replied(_)));
        let result = change(known);
        self.bytes = less(self.bytes, bytes).saturating_add(known.bytes());
        if !was_replied && matches!(known.state, State::Replied(_)) {
            self.replied.push_back((at, name));
        }
        Some(result)
    }

    /// Forgets the oldest replies while they are older than `time`, or while all take more than `most` bytes. What is
    /// forgotten is closed: its number is below the node's lowest. Then forgets the nodes that have been silent for
    /// `time`.
    pub(super) fn forget(&mut self, at: Micros, (most, time): (usize, Micros)) {
        let is_old = |since: Micros| at.0.saturating_sub(since.0) >= time.0;
        while let Some((since, _)) = self.replied.front()
            && (is_old(*since) || self.bytes > most)
            && let Some((_, name)) = self.replied.pop_front()
        {
            let Some(node) = self.nodes.get_mut(&name.node) else { continue };
            node.low = node.low.max(name.number.saturating_add(1));
            let gone = node.questions.remove(&name.number).map_or(0, |known| known.bytes());
            self.bytes = less(self.bytes, gone);
        }
        let old = self.in_use.iter().take_while(|(since, _)| is_old(*since)).count();
        for _ in 0..old {
            let Some((_, id)) = self.in_use.pop_front() else { break };
            let is_silent = |node: &Node<T>| node.questions.is_empty() && is_old(node.newest);
            if self.nodes.get(&id).is_some_and(|node| is_silent(node)) {
                self.nodes.remove(&id);
                self.bytes = less(self.bytes, Node::<T>::BYTES);
            } else {
                self.in_use.push_back((at, id));
            }
        }
    }
}
