//! Hosts whose store goes away: under `on_error = "local"` each goes on by its share of the limits.
//!
//! This world looks from outside. It counts what each host grants, by the store and by itself, and what the store holds in the
//! end. Its clocks are right, and no window ends while a history lasts.

mod account;
mod draw;
mod machine;

pub(super) use draw::draw;
pub(super) use machine::World;
