//! Hosts that share a store.

mod answers;
mod asking;
mod by_node;
mod calm;
mod deliver;
mod draw;
mod machine;
mod node;
mod offered;
mod poll;
mod seen;
mod storage;
mod table;

pub(super) use draw::{draw, draw_table};
pub(super) use machine::World;
