#![doc = include_str!("../README.md")]
//!
//! # What is where
//!
//! - [`Authority`] decides for the partitions of a store that has other writers. It batches the operations that
//!   wait together and remembers the states last seen.
//! - [`NodeCache`] is the part of a node that answers without asking an authority; [`Node`] adds the questions to one that is
//!   a remote call away.
//! - [`wire`] has the questions and replies of a node whose authority is one remote call away.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::string_slice)
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod authority;
pub mod cache;
mod count;
mod hash;
mod node;
pub mod outage;
mod tree;
pub mod wire;

pub use authority::Authority;
pub use cache::NodeCache;
pub use node::Node;
pub use outage::Outage;
