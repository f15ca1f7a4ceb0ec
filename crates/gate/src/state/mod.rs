//! The state of one key: in words, in stored bytes, over an edit of the limits, and through the operations of an adapter.
//!
//! `gathered` puts the words of a key's slices together and takes them apart, `block` adds the block of a key, `blob` is the
//! stored form, `carry` takes a state over an edit, and [`Session`] does operations on what a store holds.

pub mod blob;
mod block;
mod carry;
mod gathered;
mod session;

pub(crate) use carry::{before_edit, carry};
pub(crate) use gathered::{Gathered, Stored};
pub use session::{Answered, Due, Seat, Session, SessionError, Used, Write};
