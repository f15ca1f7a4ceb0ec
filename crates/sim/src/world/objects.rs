//! A world of objects, as in the Cloudflare Worker: each is the only owner of some partitions.
//!
//! Nodes ask by [`NodeCache`](tidegate_tier::NodeCache) and [`Outbox`](tidegate_tier::wire::Outbox). Objects answer by
//! [`Inbox`](tidegate_tier::wire::Inbox) and an [`Authority`](tidegate_tier::Authority) that is the only writer of its
//! storage. The network delays, loses, repeats, reorders and corrupts. Objects lose their memory at any moment,
//! storage refuses to write and deletes what has expired, nodes start again, and clocks drift and are set.
//!
//! The world reads every question and every reply, and does the operations once more on plain words, in the order
//! and at the times at which the object decides them. Two states are beside each key: that which the object must
//! have in memory, and that of a key that never crashes. The answers must be those of the first. What is granted,
//! and what is stored, must be within the second.
//!
//! ```
//! use tidegate_sim::world::objects::{History, Script};
//!
//! let history = History::of_seed(1).unwrap();
//! assert_eq!(history.violation, None);
//! let kept: Script = history.script.to_string().parse().unwrap();
//! assert_eq!(kept, history.script);
//! ```

mod calm;
mod decide;
mod deliver;
mod event;
mod generate;
mod machine;
mod node;
mod object;
mod policies;
mod script;
mod setup;
mod store;
mod truth;
mod wiretap;

pub use event::Event;
pub use machine::SITUATIONS;
pub use script::{History, Script};
pub use setup::Setup;
