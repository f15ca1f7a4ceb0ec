//! What a node and a far authority say to each other: questions and replies, in bytes.
//!
//! [`Outbox`] is the node's side. It puts operations into questions, and answers each of them once. [`Inbox`] is the
//! authority's side. It gives the operations of a question to an [`Authority`](crate::Authority) once, even if the
//! question comes more than once, and returns the reply. Neither does I/O. `message.rs` describes
//! the bytes.
//!
//! **The driver of a node** takes these steps, at any time. All times called `at` are those of one clock that never
//! goes back:
//!
//! 1. It calls [`NodeCache::ask`](crate::NodeCache::ask). At [`Next::Forward`](crate::cache::Next::Forward) it calls
//!    [`Outbox::ask`] with the same `at`; if there is a budget, once more for that. Then it does so for each operation
//!    of [`NodeCache::poll_transmit`](crate::NodeCache::poll_transmit).
//! 2. It sends each question of [`Outbox::poll_transmit`] to the authority of its keys.
//! 3. It calls [`Outbox::handle_reply`] with the bytes of each reply, [`Outbox::handle_lost`] if it learns that none
//!    will come, and [`Outbox::handle_timeout`] at the time of [`Outbox::poll_timeout`].
//! 4. It takes each answer of [`Outbox::poll_answer`] and tells [`NodeCache::handle_verdict`](crate::NodeCache::handle_verdict) what
//!    [`Delivered::verdict_of`] says. Then it goes on with step 2, because a question that ends makes room for the next one.
//!
//! **The driver of an authority** takes these steps:
//!
//! 1. It calls [`Inbox::handle_question`] with the bytes of each question.
//! 2. It drives the [`Authority`](crate::authority), of which no caller is ever gone. Let
//!    [`most_wait`](crate::authority::Options::most_wait) be shorter than the deadline of the nodes, because nobody
//!    hears of an operation that is begun later.
//! 3. It sends each reply of [`Inbox::poll_reply`].
//!
//! # What is guaranteed
//!
//! - Each operation gets one answer, at the latest two [deadlines](NodeOptions::deadline) after it was asked. It is in
//!   one question at most, and a question is returned for sending once: a node never asks twice for a grant.
//!   Replies that are late, repeated, foreign or corrupt change nothing.
//! - All copies of a question get the same reply, and its operations are taken once, under two assumptions: the
//!   [`Inbox`] live all the while, and the copies come within [`AuthorityOptions::time`] of the first reply. An
//!   authority that starts again has forgotten all questions.
//! - Under the same assumptions, the operations of a node on one key are decided in the order in which they were asked.
//!   A question that a later one on its group of keys has overtaken is not begun.
//! - A reply that is forgotten sooner, for want of memory, closes its number: of each node, `Inbox` keep the lowest
//!   number that may still be taken. A question below it gets [`Failure::Unknown`], also if it never came before. A
//!   node whose numbers find no room gets [`Failure::Overloaded`]. Only such a question may be taken if it comes again;
//!   its node has then had the failure as the answer, and the units of a grant are lost.
//! - A corrupt message is noticed by its checksum, with certainty if only one byte has changed.
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::Arc;
//! use tidegate_gate::{Id, Micros, Operation, Policies, Resolved, Timestamp};
//! use tidegate_tier::authority::{self, Authority, Outcome, SwapEntry};
//! use tidegate_tier::cache::{self, NodeCache, Next, Transmit};
//! use tidegate_tier::wire::{
//!     Outgoing, AuthorityOptions, Failure, Outbox, NodeOptions, Place, Inbox, WireError,
//! };
//!
//! /// An authority with a store of its own.
//! struct Object {
//!     policies: Policies,
//!     inbox: Inbox<()>,
//!     authority: Authority<Place, &'static str>,
//!     store: HashMap<String, Vec<u8>>,
//! }
//!
//! impl Object {
//!     /// A remote call.
//!     fn call(&mut self, question: &[u8], at: Micros) -> Result<Arc<[u8]>, WireError> {
//!         let Self { policies, inbox, authority, store } = self;
//!         let now = Timestamp(1_700_000_000_000_000 + at.0);
//!         let taken = inbox.handle_question(((), question), policies, (now, at), authority);
//!         taken.map_err(|((), error)| error)?;
//!         while let Some(swap) = authority.poll_swap((Some(now), at), |_| false) {
//!             let mut outcomes = Vec::new();
//!             for partition in 0..swap.len() {
//!                 let records: Vec<_> = authority.records(&swap, partition).collect();
//!                 let found = |record: &SwapEntry<'_>| store.get(record.name).cloned();
//!                 if records.iter().any(|record| found(record).as_deref() != record.found) {
//!                     outcomes.push(Outcome::Found(records.iter().map(found).collect()));
//!                     continue;
//!                 }
//!                 for record in records {
//!                     store.extend(record.becomes.map(|bytes| (record.name.into(), bytes.into())));
//!                 }
//!                 outcomes.push(Outcome::Swapped);
//!             }
//!             authority.handle(swap, outcomes, (Some(now), at));
//!         }
//!         let ((), reply) = inbox.poll_reply(at, authority).expect("the question has its answers");
//!         Ok(reply)
//!     }
//! }
//!
//! /// A node. Its own operations, such as a budget, have no caller who waits for them.
//! struct Node {
//!     local: NodeCache,
//!     outbox: Outbox<Option<u32>>,
//!     answers: Vec<(u32, bool)>,
//! }
//!
//! impl Node {
//!     fn ask(&mut self, resolved: &Resolved, caller: u32, at: Micros) {
//!         let Self { local, outbox, answers } = self;
//!         let now = Timestamp(1_700_000_000_000_000 + at.0);
//!         let mut forward = |resolved: &Resolved, operation, token| {
//!             outbox.ask(Outgoing { resolved: resolved.clone(), operation, now: None, at, token });
//!         };
//!         let operation = Operation::from(1);
//!         match local.ask(resolved, &operation, now, at) {
//!             Next::Answer(answer) => answers.push((caller, answer.decision().is_allowed())),
//!             Next::Forward { budget } => {
//!                 forward(resolved, operation, Some(caller));
//!                 budget.into_iter().for_each(|budget| forward(resolved, budget, None));
//!             }
//!         }
//!         while let Some(Transmit { resolved, operation }) = local.poll_transmit(now, at) {
//!             forward(&resolved, operation, None);
//!         }
//!     }
//!
//!     /// Sends what waits.
//!     fn send(&mut self, object: &mut Object, at: Micros) -> usize {
//!         let mut calls = 0;
//!         while let Some(question) = self.outbox.poll_transmit(at) {
//!             calls += 1;
//!             match object.call(&question.bytes, at) {
//!                 Ok(reply) => self.outbox.handle_reply(&reply, at).unwrap(),
//!                 Err(_) => self.outbox.handle_lost(question.number, &Failure::Unknown, at),
//!             }
//!             while let Some(answer) = self.outbox.poll_answer() {
//!                 if let Some(heard) = answer.verdict_of() {
//!                     self.local.handle_verdict(&heard);
//!                 }
//!                 let passes = answer.result.is_ok_and(|verdict| verdict.decision.is_allowed());
//!                 self.answers.extend(answer.asked.token.map(|caller| (caller, passes)));
//!             }
//!         }
//!         calls
//!     }
//! }
//!
//! let policies = "[policies.login]
//! remember = '10s'
//! limits = [{ algorithm = 'fixed_window', limit = 2, period = '1m' }]";
//! let policies = Policies::parse(policies).unwrap();
//! let user = Resolved::new(policies.get("login").unwrap(), "user:42").unwrap();
//! let mut object = Object {
//!     policies,
//!     inbox: Inbox::new(AuthorityOptions::default()),
//!     authority: Authority::new(authority::Options::default()),
//!     store: HashMap::new(),
//! };
//! let id = Id([7, 42]); // drawn when the node starts
//! let mut node = Node {
//!     local: NodeCache::new(cache::Options { node: id, ..cache::Options::default() }),
//!     outbox: Outbox::new(NodeOptions { node: id, ..NodeOptions::default() }),
//!     answers: Vec::new(),
//! };
//!
//! (0..3).for_each(|caller| node.ask(&user, caller, Micros(0)));
//! assert_eq!(node.send(&mut object, Micros(0)), 1, "the three operations were in one question");
//! node.ask(&user, 3, Micros(1_000_000));
//! assert_eq!(node.send(&mut object, Micros(1_000_000)), 0, "the node repeats the refusal");
//! assert_eq!(node.answers, [(0, true), (1, true), (2, false), (3, false)]);
//! ```

mod bytes;
mod inbox;
mod message;
mod outbox;
#[cfg(test)]
mod tests;

use alloc::string::String;
use core::fmt;

pub use bytes::WireError;
pub use inbox::{Addressed, AuthorityOptions, Inbox, Place};
pub use outbox::{Delivered, Ignored, NodeOptions, Outbox, Outgoing, Question};

/// Why a node has no verdict on an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The states or the limits do not allow the operation. Nothing has changed.
    Transaction(String),
    /// The authority refused the whole question. Nothing has changed.
    Refused(String),
    /// Too much waits on the node or at the authority, so the operation was not begun.
    Overloaded {
        /// The most operations that may wait, or the most bytes of questions that the authority may remember.
        most: u64,
    },
    /// The operation waited too long, or a later question on its group of keys came first, so it was not begun.
    TooLate,
    /// Other writers came first for longer than the authority's patience. Nothing was granted.
    Contended,
    /// The store failed. A grant may have been written nevertheless.
    Store(String),
    /// No reply came in time, or the authority has forgotten it. A grant may have been taken.
    Unknown,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transaction(error) => f.write_str(error),
            Self::Refused(reason) => write!(f, "authority: {reason}"),
            Self::Overloaded { most } => write!(f, "too much waits: expected at most {most}"),
            Self::TooLate => f.write_str("the operation came too late and was not begun"),
            Self::Contended => f.write_str("other writers came first for too long"),
            Self::Store(error) => write!(f, "store: {error}"),
            Self::Unknown => f.write_str("no reply came, so the outcome is unknown"),
        }
    }
}

impl core::error::Error for Failure {}
