#![doc = include_str!("../README.md")]
//!
//! # What is where
//!
//! - The policy file: [`Policies`].
//! - Several limits on one request, decided all or nothing: [`Limits::operate`].
//! - The stored form of a state: [`blob`].
//! - Operations on the stored states of one home: [`Session`].
//! - The store in memory: [`Table`].
//! - The HTTP API: [`http`].
//! - The gateway in front of an upstream: [`gateway`].
//!
//! The Worker, the host and the npm package behave alike because they all call this crate. They add the
//! clock and the store.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::string_slice)
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod ask;
pub mod blob;
mod block;
mod carry;
mod decide;
mod fnv;
pub mod gateway;
mod gathered;
pub mod http;
mod key;
mod limit;
mod limits;
mod policy;
mod quote;
mod request;
mod resolved;
mod session;
mod source;
mod table;
mod tree;

pub use ask::{Ask, AskError, Asked, Chance, CheckForm};
pub use decide::{Effect, Verdict};
pub use fnv::fnv1a;
pub use key::{Depth, InvalidKey, MAX_KEY_BYTES, MAX_LEASE_BYTES, Pattern, check_key};
pub use limit::{Kind, Limit, suppression};
pub use limits::{Limits, NamedLimit, Slice};
pub use policy::{
    Cost, OnChange, OnError, PersistAhead, Placement, Policies, Policy, PolicyError, Rule, Whole,
    parse_span,
};
pub use quote::Quoted;
pub use request::{Budget, Offered, Operation, OperationError, Request, Settlement, Unspent};
pub use resolved::Resolved;
pub use session::{Answered, Due, Seat, Session, SessionError, Used, Write};
pub use source::token::{Algorithm, Verify};
pub use source::{JoinedSources, KeySource};
pub use table::{
    CallLimitsError, Carried, Decided, DumpError, Explanation, KeyHasher, Limited, MAX_CALL_LIMITS,
    Table, TableError,
};
pub use tidegate_core::lease::budget::{Allowance, Config as BudgetConfig, Usage};
pub use tidegate_core::lease::{Held, Id};
pub use tidegate_core::shed::reporter;
pub use tidegate_core::shed::suppression::Estimator;
pub use tidegate_core::shed::utilization::Class;
pub use tidegate_core::shed::{Draw, Probability, Share};
pub use tidegate_core::window::log::{Denied, Window};
pub use tidegate_core::{
    ConfigError, CostExceedsCapacity, Decision, Limiter, MAX_QUANTITY, Micros, Rate, RateLimiter,
    Timestamp,
};
