//! A world in which everything fails, with the real authorities, the real nodes and the real gate inside.
//!
//! Callers ask nodes. A node first asks its [`tidegate_tier::NodeCache`], which repeats refusals and spends units that it
//! took in advance. It passes the rest on to an authority: [`Topology`] says to which. The authorities are
//! [`tidegate_tier::Authority`] and decide on states in one storage, which compares and swaps the records of a partition as
//! the Redis script does.
//!
//! The network delays, loses, repeats and reorders. The storage refuses to write, expires records by a clock of its
//! own, loses everything, or holds what another program wrote. Nodes crash, are stopped for a while, and get other
//! revisions of their policies. Callers go away. Clocks drift and are set; monotonic clocks are too fast or too slow.
//!
//! One seed gives everything: a [`Setup`] and a list of [`Event`]s. Nothing else is random, so the list alone
//! repeats the history, and [`shrink()`] shortens it. [`Invariant`] lists the checks:
//!
//! - The world knows which operations each swap makes true, and does them once more, one after another, on plain
//!   words. Every answer and every stored byte must be the same.
//! - A ledger counts grants, returned units, leases, signals and reports without the code of the limiters. A limit
//!   must have a reason to refuse, and must not grant beyond its bound.
//! - Each unit that a node spends was taken out of the limits before, by this node, less than the time of its budget
//!   ago, and is neither spent twice nor given back. So in any span of length L all nodes together grant at most
//!   what the limits grant in L and this time.
//! - Each refusal that a node repeats was told to this node, no longer ago than the policy says, and no operation
//!   of the node has ended it. If nobody has given units back since, the authority would refuse at this moment; clocks
//!   that differ make the refusal last longer by their difference.
//!
//! ```
//! use tidegate_sim::world::{History, Script};
//!
//! let history = History::of_seed(1).unwrap();
//! assert_eq!(history.violation, None);
//! let kept: Script = history.script.to_string().parse().unwrap();
//! assert_eq!(kept, history.script);
//! ```

mod act;
mod acts;
mod answers;
mod asking;
mod block;
mod callers;
mod calm;
mod clock;
mod deliver;
mod draw;
mod event;
mod generate;
mod known;
mod ledger;
mod lent;
mod machine;
mod node;
pub mod objects;
mod places;
mod policies;
mod poll;
mod replay;
mod script;
mod seen;
mod setup;
mod shrink;
mod storage;
mod tally;
mod topology;
mod violation;

pub use act::Act;
pub use event::Event;
pub use script::{History, Script};
pub use setup::Setup;
pub use shrink::shrink;
pub use tally::{SITUATIONS, Tally};
pub use topology::Topology;
pub use violation::{Invariant, Violation};
