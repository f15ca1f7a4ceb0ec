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
//! 1. It calls [`Node::ask`](crate::Node::ask), which answers what the policy lets a node answer, and gives the rest to the
//!    outbox.
//! 2. It sends each question of [`Outbox::poll_transmit`] to the authority of its keys.
//! 3. It calls [`Outbox::handle_reply`] with the bytes of each reply, [`Outbox::handle_lost`] if it learns that none
//!    will come, and [`Outbox::handle_timeout`] at the time of [`Outbox::poll_timeout`].
//! 4. It takes each answer of [`Node::poll_answer`](crate::Node::poll_answer). Then it goes on with step 2, because a question
//!    that ends makes room for the next one.
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
//! use tidegate_tier::authority::{self, Authority, SwapOutcome, SwapEntry};
//! use tidegate_tier::{Node, Outage, cache};
//! use tidegate_tier::outage::Shares;
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
//!                     outcomes.push(SwapOutcome::Found(records.iter().map(found).collect()));
//!                     continue;
//!                 }
//!                 for record in records {
//!                     store.extend(record.becomes.map(|bytes| (record.name.into(), bytes.into())));
//!                 }
//!                 outcomes.push(SwapOutcome::Swapped);
//!             }
//!             authority.handle(swap, outcomes, (Some(now), at));
//!         }
//!         let ((), reply) = inbox.poll_reply(at, authority).expect("the question has its answers");
//!         Ok(reply)
//!     }
//! }
//!
//! /// Sends what waits, and says which callers passed.
//! fn send(node: &mut Node<u32>, object: &mut Object, at: Micros) -> Vec<(u32, bool)> {
//!     let mut answers = Vec::new();
//!     while let Some(question) = node.outbox().poll_transmit(at) {
//!         match object.call(&question.bytes, at) {
//!             Ok(reply) => node.outbox().handle_reply(&reply, at).unwrap(),
//!             Err(_) => node.outbox().handle_lost(question.number, &Failure::Unknown, at),
//!         }
//!         while let Some(answer) = node.poll_answer() {
//!             let passes = answer.result.is_ok_and(|verdict| verdict.decision.is_allowed());
//!             answers.extend(answer.asked.token.map(|caller| (caller, passes)));
//!         }
//!     }
//!     answers
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
//! let cache = cache::Options { node: id, ..cache::Options::default() };
//! let outbox = NodeOptions { node: id, ..NodeOptions::default() };
//! let mut node = Node::new(cache, outbox, (0, Shares::Own(Outage::new(1 << 20))));
//! let ask = |node: &mut Node<u32>, token, at| {
//!     let (resolved, operation) = (user.clone(), Operation::from(1));
//!     let asked = Outgoing { resolved, operation, now: None, at, token: Some(token) };
//!     node.ask(asked, Timestamp(1_700_000_000_000_000 + at.0))
//! };
//!
//! let unknown = (0..3).filter(|caller| ask(&mut node, *caller, Micros(0)).is_none()).count();
//! assert_eq!(unknown, 3);
//! let answers = send(&mut node, &mut object, Micros(0));
//! assert_eq!(answers, [(0, true), (1, true), (2, false)]);
//! let again = ask(&mut node, 3, Micros(1_000_000)).expect("the node repeats the refusal");
//! assert!(!again.decision().is_allowed());
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
