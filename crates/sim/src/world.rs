//! Worlds in which everything fails, with the real authorities, the real nodes and the real gate inside.
//!
//! Callers ask nodes, nodes ask authorities, and authorities store states: [`Topology`] says which nodes and authorities
//! there are, and where the states are. All topologies share clocks, network, faults, scripts and shrinking.
//!
//! The network delays, loses, repeats and reorders. Storage refuses to write, expires records by a clock of its own, loses
//! everything, or holds what another program wrote. Nodes and authorities lose their memory at any moment, are stopped for
//! a while, and get other revisions of their policies. Callers go away. Clocks drift and are set; monotonic clocks are too
//! fast or too slow.
//!
//! One seed gives everything: a [`Setup`] and a list of [`Event`]s. Nothing else is random, so the list alone
//! repeats the history, and [`Script::shrink`] shortens it. [`Invariant`] lists the checks:
//!
//! - The world knows which operations each swap makes true, and does them once more, one after another, on plain
//!   words. Every answer and every stored byte must be the same.
//! - A ledger counts grants, returned units, leases, signals and reports without the code of the limiters. A limit
//!   must have a reason to refuse, and must not grant beyond its bound.
//! - In worlds with reservations the ledger also knows which are live and how the others ended, and does all grants and
//!   refunds of a limit once more with the costs that are known by now. A refund gives back nothing that is held. What
//!   is reserved is what was committed, was released, has expired or is live; what remains, what a commit answers and how
//!   long a refusal lasts follow from that. A commit that comes again gets the same answer, and in the end nothing is held.
//! - Each unit that a node spends was taken out of the limits before, by this node, less than the time of its budget
//!   ago, and is neither spent twice nor given back. So in any span of length L all nodes together grant at most
//!   what the limits grant in L and this time.
//! - Each refusal that a node repeats was told to this node, no longer ago than the policy says, and no operation
//!   of the node has ended it. If nobody has given units back since, the authority would refuse at this moment; clocks
//!   that differ make the refusal last longer by their difference.
//! - In any period an outage costs at most one more limit: since the store went away, all hosts together have granted no more than
//!   a limit by their shares, and each of them no more than its part. A host that has begun anew grants nothing by a share before the
//!   store has answered it. Nobody reserves in this world.
//!
//! ```
//! use tidegate_sim::world::{History, Script, Topology};
//!
//! for (topology, _) in Topology::ALL {
//!     let history = History::of_seed(topology, 1).unwrap();
//!     assert_eq!(history.violation, None);
//!     let kept: Script = history.script.to_string().parse().unwrap();
//!     assert_eq!(kept, history.script);
//!     assert_eq!(History::of_seed_with_reservations(topology, 1).unwrap().violation, None);
//! }
//! ```

mod act;
mod acts;
mod block;
mod callers;
mod clock;
mod compared;
mod draw;
mod ended;
mod event;
mod front;
mod generate;
mod grants;
mod happens;
mod hosts;
mod known;
mod ledger;
mod lent;
mod message;
mod network;
mod objects;
mod outage;
mod parameter;
mod places;
mod policies;
mod replay;
mod script;
mod setup;
mod shrink;
mod tally;
mod topology;
mod violation;
mod wire;

pub use act::Act;
pub use event::Event;
pub use script::{History, Script};
pub use setup::Setup;
pub use tally::{Tally, situations, situations_with_reservations};
pub use topology::Topology;
pub use violation::{Invariant, Violation};
