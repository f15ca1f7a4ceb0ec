//! The npm package `tidegate`: the gate's table in memory, for JavaScript.
//!
//! `npm/limiter.js` and `npm/reporter.js` are the other side of this boundary and its only callers.
//! For a check nothing crosses but plain numbers: JavaScript writes the key into [`Limiter`]'s
//! memory and reads the decision out of it, so no string and no object is allocated on the way.
//! Whatever says more crosses as the JSON that the gate reads and writes. All quantities are whole
//! numbers up to 2^53 − 1, which an `f64` holds exactly.

mod chance;
mod failure;
mod limiter;
mod number;
mod policy;
mod reporter;

pub use limiter::{Limiter, module_memory};
pub use reporter::Reporter;
