#![doc = include_str!("../README.md")]
//!
//! # The modules, in the order of reading
//!
//! - `key`: what a limit counts by, its canonical form, and patterns over it.
//! - `limit`: one [`Limit`], and the [`Operation`]s on it. It calls the mathematics of `core`.
//! - `decide`: several limits on one request, all or nothing: [`Limits::operate`].
//! - `policy`: the policy file, from text to [`Policies`]; a [`Resolved`] is a key under its policy.
//! - `state`: the words of a key, their stored bytes ([`blob`]), and a [`Transaction`] of operations on stored states.
//! - `describe`: a policy in sentences for people.
//! - `ask`: what a caller asks for, before it has a policy: an [`Ask`].
//! - `table`: the store in memory: [`Table`], and the account of a [`Grant`].
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
mod decide;
mod describe;
mod fnv;
mod key;
mod limit;
mod name;
mod policy;
mod state;
mod table;
mod units;

pub use ask::{
    Ask, AskError, Asked, AskedSpan, Chance, CheckForm, Count, DrawBits, Ppm, ReserveForm,
    read_json,
};
pub use decide::{Effect, Explanation, Limits, OnChange, PersistAhead, Record, Softness, Verdict};
pub use describe::{describe, describe_routes, describe_without_keys};
pub use fnv::fnv1a;
pub use key::{
    Depth, InvalidKey, MAX_KEY_BYTES, MAX_LEASE_BYTES, Pattern, canonical_key, check_key,
};
#[cfg(feature = "timezones")]
pub use limit::zone_data;
pub use limit::{
    Budget, CalendarFacts, Cause, Grant, Kind, Limit, NamedLimit, Offered, Operation,
    OperationError, Request, Timezone, Unspent, suppression,
};
pub use policy::{
    Cost, CountIf, FieldPath, Gateway, Idempotency, IfUnknown, JoinedSources, Jwt, KeySource,
    MAX_POLICIES, Metering, Network, OnError, Path, Placement, Policies, Policy, PolicyError,
    Reservations, Resolved, Route, RoutePolicy, Rule, SignatureAlgorithm, Sum, Summed, Term,
    TermSource, TimedOverride, TimedPolicies, TwoRoutes, is_authority, sha256,
};
pub use state::{Answered, Due, KeySlots, Transaction, TransactionError, Used, Write, blob};
pub use table::{
    CallLimits, CallLimitsError, Carried, DumpError, HasDecision, KeyHasher, Limited,
    MAX_CALL_LIMITS, Table, TableError, free_bits,
};
pub use tidegate_core::lease::budget::{Allowance, Config as BudgetConfig, Usage};
pub use tidegate_core::lease::{Held, Id};
#[doc(hidden)] // for `tier`
pub use tidegate_core::never;
pub use tidegate_core::shed::reporter;
pub use tidegate_core::shed::suppression::Estimator;
pub use tidegate_core::shed::utilization::Class;
pub use tidegate_core::shed::{Draw, Probability, Share};
pub use tidegate_core::top;
pub use tidegate_core::window::log::{Denied, Window};
pub use tidegate_core::{
    ConfigError, CostExceedsCapacity, Decision, Limiter, MAX_QUANTITY, Micros, Rate, RateLimiter,
    Timestamp,
};
pub use tidegate_form::{Bounded, Quoted};
pub use units::parse_span;
