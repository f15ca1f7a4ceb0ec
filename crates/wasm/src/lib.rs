//! The npm package `tidegate`: the gate's table in memory, for JavaScript.
//!
//! Only `npm/limiter.js`, `npm/reporter.js` and the limiters in `npm/far` call this crate. For a check in memory, only plain numbers cross the
//! boundary: JavaScript writes the key into [`Limiter`]'s memory and reads the decision from it, so neither
//! side allocates a string or an object. The other operations take numbers and texts, and all answers come back as
//! numbers. All quantities are whole numbers up to 2^53 − 1, which an `f64` holds exactly.

mod answer;
mod chance;
#[cfg(feature = "check")]
mod check;
mod failure;
#[cfg(any(feature = "redis", feature = "objects"))]
mod far;
#[expect(dead_code, reason = "the Worker, which has this file too, reads fields")]
mod fields;
mod input;
#[cfg(not(feature = "objects"))]
mod limiter;
mod memory;
mod middleware;
mod number;
#[cfg(feature = "objects")]
mod objects;
mod policy;
#[cfg(feature = "redis")]
mod redis;
#[cfg(not(feature = "objects"))]
mod reporter;

#[cfg(feature = "check")]
pub use check::described;
#[cfg(any(feature = "redis", feature = "objects"))]
pub use far::{Authority, long_key};
#[cfg(not(feature = "objects"))]
pub use limiter::{Limiter, sha256};
pub use memory::{module_memory, require_memory};
#[cfg(feature = "objects")]
pub use objects::policy_of;
#[cfg(not(feature = "objects"))]
pub use reporter::Reporter;
#[cfg(feature = "toml")]
pub use tidegate_wasm_toml::{from_toml, place_in_toml};
