//! The npm package `tidegate`: the gate's table in memory, for JavaScript.
//!
//! Only `npm/limiter.js` and `npm/reporter.js` call this crate. For a check, only plain numbers cross the
//! boundary: JavaScript writes the key into [`Limiter`]'s memory and reads the decision from it, so neither
//! side allocates a string or an object. The other operations take numbers and texts, and all answers come back as
//! numbers. All quantities are whole numbers up to 2^53 − 1, which an `f64` holds exactly.

mod answer;
mod chance;
#[cfg(feature = "check")]
mod check;
mod failure;
mod fields;
mod limiter;
mod middleware;
mod number;
mod policy;
#[cfg(feature = "redis")]
mod redis;
mod reporter;

#[cfg(feature = "check")]
pub use check::described;
pub use limiter::{Limiter, module_memory, require_memory, span_of};
#[cfg(feature = "redis")]
pub use redis::{Authority, long_key};
pub use reporter::Reporter;
#[cfg(feature = "toml")]
pub use tidegate_wasm_toml::{from_toml, place_in_toml};
