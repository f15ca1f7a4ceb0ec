//! Hosts whose store goes away: under `on_error = "local"` each goes on by its share of the limits.
//!
//! This world looks from outside. It counts what the hosts grant by their shares. Its clocks are right, and no window ends while a
//! history lasts, so the history is one period.

mod account;
mod draw;
mod machine;

pub(super) use draw::draw;
pub(super) use machine::World;
