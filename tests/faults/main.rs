//! Faults, each against real processes of `tidegate serve`: what is granted beside the bound that docs/operations.md states, what
//! `on_error` decides meanwhile, how long the slowest answer takes, how soon hosts recover by themselves, and what the metric counts.
//!
//! `cargo run -p tidegate-tests --bin faults` writes the table of docs/operations.md from the last run.

#[path = "../redis/certificates.rs"]
#[expect(dead_code, reason = "no server demands a certificate here")]
mod certificates;
mod everything;
#[path = "../redis/proxy.rs"]
#[expect(dead_code, reason = "the tests of the store have more faults of the network")]
mod proxy;
mod world;
