//! A world in which everything fails, with the real authorities and the real gate inside.
//!
//! Nodes decide by [`tidegate_tier::Authority`] on states in one storage, which compares and swaps the slices
//! of a home as the Redis script does. The network delays, loses, repeats and reorders. The storage refuses
//! to write, expires slices by a clock of its own, loses everything, or holds what another program wrote.
//! Nodes crash and get other editions of their policies, callers go away, and clocks drift and are set.
//!
//! One seed gives everything: a [`Setup`] and a list of [`Event`]s. Nothing else is random, so the list alone
//! repeats the history, and [`shrink()`] shortens it. The world knows which operations each swap makes true, and
//! does them once more, one after another, on plain words. Every answer and every stored byte must be the
//! same: [`Invariant`] lists the checks.
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
