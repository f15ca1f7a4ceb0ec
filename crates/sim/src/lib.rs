//! Seeded simulations: the core's own code in virtual time, with random traffic.
//!
//! Nothing here reads a clock. A seed gives the same run everywhere: the generator is ChaCha8,
//! whose output is fixed for good, and the logarithms behind random gaps are computed in Rust
//! (`rand_distr` without `std`; Cargo.lock pins it). The tables in `golden/` are such runs, and
//! the pictures in `docs/` are drawn from them: `cargo run -p tidegate-sim` writes both anew.

pub mod suppression;
pub mod table;
pub mod utilization;
