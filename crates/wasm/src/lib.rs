//! The npm package `tidegate`: the gate's table in memory, for JavaScript.
//!
//! `npm/limiter.js` is the other side of this boundary and its only caller. Per decision nothing
//! crosses but plain numbers: JavaScript writes the key into [`Limiter`]'s memory and reads the
//! decision out of it, so no string and no object is allocated on the way. All quantities are
//! whole numbers up to 2^53 − 1, which an `f64` holds exactly.

mod failure;
mod limiter;
mod number;
mod policy;

pub use limiter::{Limiter, module_memory};
