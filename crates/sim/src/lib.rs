//! Seeded simulations of the real code in virtual time, with random traffic and random faults.
//!
//! No simulation reads a clock. A seed gives the same run on every machine: the generator is
//! ChaCha8, whose output never changes, and Rust code computes the logarithms for random gaps
//! (`rand_distr` without `std`, pinned by Cargo.lock). `golden/` has the tables of such runs, and
//! `docs/` has the pictures drawn from them. `cargo run -p tidegate-sim` writes both anew.

pub mod suppression;
pub mod table;
pub mod utilization;
pub mod world;
