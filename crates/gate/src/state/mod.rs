//! The state of one key: in words, in stored bytes, over an edit of the limits, and through the operations of an adapter.
//!
//! `key_state` puts the words of a key's records together, refuses while the key is blocked, and takes the words apart again.
//! `blob` is the stored form, `carry` takes a state over an edit, `kept` is the stored answer to a request whose repeats are known,
//! and [`Transaction`] does operations on what a store holds.

pub mod blob;
mod carry;
pub(crate) mod kept;
mod key_state;
mod transaction;

pub(crate) use carry::{before_edit, carry};
pub(crate) use key_state::{KeyState, Stored};
pub use transaction::{Answered, Due, KeySlots, Transaction, TransactionError, Used, Write};
