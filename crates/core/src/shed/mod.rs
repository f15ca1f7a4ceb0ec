//! Shedding: what is turned away although a limit of its own would let it pass.

pub mod penalty;
