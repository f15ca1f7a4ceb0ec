//! Nodes that ask one authority by [`tidegate_tier::wire`] alone, in front of a store.
//!
//! This world looks from outside, so a question may hold many operations, and the authority need not be the only
//! writer. Each request takes one unit, so the number of units that are taken names the grant: every operation is answered
//! once and taken at most once, whatever the network does.

mod draw;
mod held;
mod machine;
mod watch;

pub(super) use draw::draw;
pub(super) use machine::World;
