//! The mathematics of rate limiting, once.
//!
//! Every limiter here is a validated `Config` (`Copy`), a [`State`] of plain words, and functions of
//! the two: those that all limiters have are [`Limiter`]'s and [`RateLimiter`]'s. Nothing reads a clock, draws a random number, allocates, uses a float or
//! touches I/O: time is an argument and a decision is a value, so the same request gets the same
//! answer in a process, in a Worker, under wasmtime and against Redis.
//!
//! | limiter | guarantee | state |
//! |---|---|---|
//! | [`bucket`] | in any span of length L at most capacity + rate·L | 16 bytes |
//! | [`window::fixed`] | at most limit in an aligned window, 2·limit in any | 16 bytes |
//! | [`window::sliding`] | the weighted estimate never exceeds the limit | 24 + 8·(n + 1) bytes |
//! | [`window::log`] | at most limit in every span of every rate, exactly | 16 + 8·limit bytes |
//! | [`shed::penalty`] | begins at the n-th refusal within its span, lasts at most its maximum | 32 + 8·(n − 1) bytes |
//! | [`shed::suppression`] | within its limit in every part of 6 s, an account is never suppressed | 72 bytes |
//! | [`shed::reporter`] | at most the account's limit in a part, with the local cap on | 80 bytes |
//! | [`shed::utilization`] | the shed amount moves by at most 1/full a microsecond | 24 bytes |
//! | [`lease::concurrency`] | never more than capacity units are live | 44 to 48 bytes a lease, and 24 |
//! | [`lease::connections`] | none is opened that would make the live owners exceed the limit | the same an owner |
//! | [`lease::budget`] | in any span of length L all holders together spend at most what the parent can grant in L + T | 68 to 72 bytes a holder, and 24 |
//! | [`shed::fleet`] | low priority never holds more than capacity − reserve | as concurrency |
//!
//! # The clock
//!
//! One rule for all limiters ([`Timestamp::taken_after`]): a decision at a time before the newest
//! one seen for its key is taken *as at that newest one*, all its spans included. A clock that
//! jumped ahead by more than one period and came back is believed again at once: what had been
//! consumed stays consumed, and is paid off from the time it came back to.
//!
//! So a clock that goes back, as far as it likes, grants nothing, and no clock locks a key for
//! longer than one period. Each jump *ahead* is believed, and gives what its time would have given.
//! That is as much as can be had: of clocks that stay further apart than a period, either one is
//! locked out or each is given its own. Nodes that share a store need clocks closer than that.
//!
//! # What a refusal changes
//!
//! It consumes nothing, unless a log is told to count it ([`window::log::Denied`]). It does count as
//! *seen* by the rule above. A cost of 0 is a peek and changes nothing at all.

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
#[cfg(test)]
mod properties;
mod quantity;
mod time;

pub mod bucket;
pub mod lease;
pub mod shed;
pub mod window;

pub use decision::{Answer, CostExceedsCapacity, Decision, InvalidState};
pub use limiter::{Limiter, RateLimiter, State, Words, WordsMut};
pub use quantity::{ConfigError, MAX_QUANTITY, Rate};
pub use time::{Micros, Timestamp};
