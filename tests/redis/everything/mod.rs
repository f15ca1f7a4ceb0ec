//! What takes long: processes that die, masters that are lost, slots that move.

mod failover;
mod faults;
mod hosts;
mod outage;
pub mod resharding;
