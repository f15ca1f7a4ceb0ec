//! A world of objects, as in the Cloudflare Worker: each is the only owner of some partitions.
//!
//! The nodes are those of the Worker: [`Node`](tidegate_tier::Node). Objects answer by
//! [`Inbox`](tidegate_tier::wire::Inbox) and an [`Authority`](tidegate_tier::Authority) that is the only writer of its
//! storage. The network delays, loses, repeats, reorders and corrupts. Objects lose their memory at any moment,
//! storage refuses to write and deletes what has expired, nodes start again, and clocks drift and are set.
//!
//! The world reads every question and every reply, and does the operations once more on plain words, in the order
//! and at the times at which the object decides them. Two states are beside each key: that which the object must
//! have in memory, and that of a key that never crashes. The answers must be those of the first. What is granted,
//! and what is stored, must be within the second.

mod calm;
mod decide;
mod deliver;
mod draw;
mod machine;
pub(super) mod node;
pub(super) mod object;
mod store;
mod truth;
pub(super) mod wiretap;

pub(super) use draw::draw;
pub(super) use machine::World;
