#![doc = include_str!("../README.md")]
//!
//! # The limiters
//!
//! Each limiter is a validated `Config` (a plain value), a [`State`] of plain words, and functions of the
//! two. The traits [`Limiter`] and [`RateLimiter`] hold the functions that all limiters share. No
//! function reads a clock, draws a random number, allocates, uses a float or does I/O. Time is an
//! argument and a decision is a value, so the same request gets the same answer in a process, in a
//! Worker, under wasmtime and against Redis.
//!
//! | limiter | guarantee | state |
//! |---|---|---|
//! | [`bucket`] | grants at most capacity + rate·L in any span of length L | 16 bytes |
//! | [`window::fixed`] | grants at most limit in a window, 2·limit in any span of a period | 16 bytes; 24 for windows that start at the first grant |
//! | [`window::calendar`] | grants at most limit in a window between two given instants, such as a month in Madrid | 16 bytes |
//! | [`window::sliding`] | the weighted estimate never exceeds the limit | 24 + 8·(n + 1) bytes |
//! | [`window::log`] | grants at most limit in every span of every rate, exactly | 16 + 8·limit bytes |
//! | [`hold`], around a bucket or a window | used and held units together never exceed what the limiter grants; a commit leaves what a replay with the true costs would have left | the limiter's, 32 bytes, and 64 for each hold of a bucket, 40 of a window |
//! | [`shed::penalty`] | a penalty begins at the n-th refusal within its span and lasts at most its maximum | 32 + 8·(n − 1) bytes |
//! | [`shed::suppression`] | an account within its limit in every part of 6 s is never suppressed | 72 bytes |
//! | [`shed::reporter`] | with the local cap on, admits at most the account's limit in a part | 80 bytes |
//! | [`shed::utilization`] | the shed amount moves by at most 1/full a microsecond | 24 bytes |
//! | [`lease::concurrency`] | never more than capacity units are live | 24 bytes, and 44 to 48 for each lease |
//! | [`lease::connections`] | no connection is opened that would make the live owners exceed the limit | 24 bytes, and 44 to 48 for each owner |
//! | [`lease::budget`] | in any span of length L, all holders together spend at most what the parent can grant in L + T | 24 bytes, and 68 to 72 for each holder |
//! | [`shed::fleet`] | low priority never holds more than capacity − reserve | as concurrency |
//!
//! [`top`] counts which keys are refused most: no limiter, but exact integers too.
//!
//! # The clock
//!
//! All limiters follow one rule ([`Timestamp::taken_after`]). A decision at a time before the
//! newest time seen for its key is taken *at that newest time*, and all its spans start there. If
//! the decision's time is more than one period before the newest time, the clock is believed
//! again at once: it had jumped ahead and came back. What was consumed stays consumed, and is paid
//! off from the time to which the clock came back.
//!
//! So a clock that goes back grants nothing, however far it goes, and no clock locks a key for
//! longer than one period. Each jump *ahead* is believed, and grants what its span would have
//! granted. No rule can do better: if two clocks stay further apart than a period, either one of
//! them is locked out or each gets grants of its own. Nodes that share a store therefore need
//! clocks that are less than a period apart.
//!
//! # What a refusal changes
//!
//! A refusal consumes nothing, unless a log is configured to count it ([`window::log::Denied`]).
//! Its time does count as *seen* by the rule above. A cost of 0 is a peek, which changes nothing.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::float_arithmetic)
)]

#[cfg(test)]
extern crate std;

mod decision;
mod divisor;
#[cfg(test)]
mod exhaustive;
mod limiter;
mod never;
#[cfg(test)]
mod properties;
mod quantity;
mod time;

pub mod bucket;
pub mod hold;
pub mod lease;
pub mod shed;
pub mod top;
pub mod window;

pub use decision::{Answer, CostExceedsCapacity, Decision, InvalidState};
pub use limiter::{Ahead, Limiter, RateLimiter, State, Words, WordsMut};
#[doc(hidden)] // for the crates of this repository
pub use never::never;
pub use quantity::{ConfigError, MAX_QUANTITY, Rate};
pub use time::{Micros, Timestamp};
