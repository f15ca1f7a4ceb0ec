//! A node: what it answers by itself, its outbox, and what it decides while an authority cannot be asked.

use alloc::vec::Vec;

use tidegate_gate::{Micros, Timestamp, Verdict};

use crate::cache::{LocalVerdict, NodeCache, NodeStep, Options, Transmit};
use crate::outage::{Shares, Standing};
use crate::wire::{Delivered, Failure, NodeOptions, Outbox, Outgoing};

/// A node whose authorities are one remote call away. [`wire`](crate::wire) says how to drive it.
///
/// The token of an operation is `None` if no caller waits for its answer, as of what the node itself asks.
#[derive(Debug)]
pub struct Node<T> {
    cache: NodeCache,
    outbox: Outbox<Option<T>>,
    shares: Shares,
    standing: Standing,
}

impl<T> Node<T> {
    /// A node that remembers nothing yet. `store` is the number of its authorities among the stores of the process.
    #[must_use]
    pub fn new(cache: Options, outbox: NodeOptions, (store, shares): (u64, Shares)) -> Self {
        Self {
            cache: NodeCache::new(cache),
            outbox: Outbox::new(outbox),
            shares,
            standing: Standing { store, ..Standing::default() },
        }
    }

    /// Takes an operation. `now` is the time of the node's wall clock. Without an answer, the outbox asks the authority, and
    /// [`poll_answer`](Self::poll_answer) has what comes of it. An operation with a time of its own is always asked.
    #[inline]
    pub fn ask(&mut self, asked: Outgoing<Option<T>>, now: Timestamp) -> Option<LocalVerdict> {
        let Outgoing { resolved, operation, at, .. } = &asked;
        let step = match asked.now {
            None => self.cache.ask(resolved, operation, now, *at),
            Some(_) => NodeStep { answer: None, own: Vec::new() },
        };
        let at = *at;
        if step.answer.is_none() {
            self.outbox.ask(asked);
        }
        step.own.into_iter().for_each(|own| self.ask_for(own, at));
        step.answer
    }

    /// Asks for what is due, at the time of [`NodeCache::poll_timeout`] or later.
    pub fn report(&mut self, now: Timestamp, at: Micros) {
        while let Some(due) = self.cache.poll_transmit(now, at) {
            self.ask_for(due, at);
        }
    }

    fn ask_for(&mut self, Transmit { resolved, operation }: Transmit, at: Micros) {
        self.outbox.ask(Outgoing { resolved, operation, now: None, at, token: None });
    }

    /// The next answer that has come, of which the node has learnt.
    pub fn poll_answer(&mut self) -> Option<Delivered<Option<T>>> {
        let answer = self.outbox.poll_answer()?;
        if let Some(heard) = answer.verdict_of() {
            self.cache.handle_verdict(&heard);
        }
        self.standing.has_answered |= answer.result.is_ok();
        Some(answer)
    }

    /// The verdict of the node's share at `now` on an operation that its authority has not decided: see [`outage`](crate::outage). `None` if the
    /// node cannot decide it. The node does not know how many nodes there are, so the policy must say it.
    pub fn share(&mut self, failed: &Delivered<Option<T>>, now: Timestamp) -> Option<Verdict> {
        let Outgoing { resolved, operation, .. } = &failed.asked;
        match failed.result {
            Err(Failure::Unknown | Failure::Store(_)) => {
                self.shares.decide(self.standing, resolved, now, operation, None)?.ok()
            }
            _ => None,
        }
    }

    /// What the node answers by itself.
    #[must_use]
    pub const fn cache(&self) -> &NodeCache {
        &self.cache
    }

    /// The questions to send, and their replies.
    #[must_use]
    pub const fn outbox(&mut self) -> &mut Outbox<Option<T>> {
        &mut self.outbox
    }
}
