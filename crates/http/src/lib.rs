#![doc = include_str!("../README.md")]
//!
//! # The contract of the loop
//!
//! **Call [`Exchange::step`] until it returns [`Step::Done`]. Between two calls do what the step says, and hand in the result:
//! [`Exchange::body`] after [`Step::Body`] and [`Step::Copy`], [`Exchange::verified`] after [`Step::Verify`], [`Exchange::decided`] after
//! [`Step::Decide`], [`Exchange::changed`] after [`Step::Change`], [`Exchange::probed`] after [`Step::Probe`],
//! [`Exchange::watched`] after [`Step::Watch`]. Never hand in anything else, and take [`Step::Done`] once.**
//!
//! [`Step::Decide`] may come several times, and so may [`Step::Verify`]: where several policies decide on a request, each is asked in
//! a step of its own. A first step may peek at all of them, and if one refuses, a last step gives back what the others granted.
//!
//! An exchange waits for nothing by itself: it has no future and no callback, it reads no clock and draws no random number.
//! An adapter may wait between two steps as long as it likes, on any runtime. An input that no step asked for is ignored.
//!
//! ```
//! use std::sync::Arc;
//! use tidegate_gate::{KeyHasher, Policies, Table, Timestamp};
//! use tidegate_http::{Access, Check, Exchange, Head, Outcome, RevisionTag, Served, Server, Step};
//!
//! let policies = Arc::new(Policies::parse(r#"
//!     [policies.login]
//!     limits = [{ algorithm = "fixed_window", limit = 1, period = "1m" }]
//! "#).unwrap());
//! let mut table = Table::new(1 << 20, KeyHasher::new(1)); // the store of this server
//! let (access, revision) = (Access::OPEN, RevisionTag::default());
//! let server = Server { policies: &policies, access: &access, revision: &revision, metrics: &String::new };
//! let mut random = || Some(4); // a real server draws a random number
//!
//! let mut answer = |method, path, body: &str| {
//!     let now = Timestamp(0);
//!     let head = Head { method, path, now, ..Head::default() };
//!     let mut exchange = Exchange::new(&server, &head, &mut random);
//!     loop {
//!         match exchange.step() {
//!             Step::Body | Step::Copy => exchange.body(Ok(body.into()), &mut random),
//!             Step::Decide(checks) => {
//!                 let decide = |check: &Check| match table.ask(check.resolved(), now, &check.operation()) {
//!                     Ok(verdict) => Outcome::Decided(verdict),
//!                     Err(error) => Outcome::Unavailable(error.to_string()),
//!                 };
//!                 let outcomes = checks.iter().map(decide).collect();
//!                 exchange.decided(outcomes);
//!             }
//!             Step::Verify(_) => exchange.verified(Err(tidegate_http::NoKeys), &mut random), // this server has no keys
//!             Step::Change(_) => exchange.changed(tidegate_http::without_revisions()),
//!             Step::Probe => exchange.probed(Ok(Vec::new())), // a store in memory always answers
//!             Step::Watch { .. } => exchange.watched(Err("this server counts nothing".into())),
//!             Step::Done(Served::Response(response)) => return response,
//!             Step::Done(Served::Pass(_)) => unreachable!("the policy file has no routes"),
//!         }
//!     }
//! };
//! let check = r#"{"policy":"login","key":"user:42"}"#;
//! assert!(answer("POST", "/v1/check", check).body.contains(r#""allowed":true"#));
//! let refused = answer("POST", "/v1/check", check);
//! assert!(refused.body.contains(r#""allowed":false"#));
//! assert!(refused.headers.contains(&("retry-after", "60".into())));
//! ```
//!
//! # What is where
//!
//! - [`exchange`](Exchange): the state machine.
//! - `admission`: what middleware that asks a server is told.
//! - `api`: the calls of the HTTP API, by their paths. `gateway`: the requests that pass to an upstream.
//! - `several`: several policies on one request, one after another.
//! - `meter`: the cost of a request, read from its answer.
//! - `key`: where requests have their keys. `access`: who may use the API.
//! - `answer`: JSON, header fields, problems, the page for browsers.
//! - `metrics`, `limited`, `log`: what a server says about itself.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::string_slice)
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod access;
mod admission;
mod answer;
mod api;
mod exchange;
mod gateway;
mod head;
mod key;
mod limited;
mod log;
mod meter;
mod metrics;
mod plan;
mod response;
mod served;
mod several;
mod state;
#[cfg(test)]
mod tests;

pub use access::{Access, InvalidToken, Tokens};
pub use admission::Granted;
pub use answer::headers::OlderForm;
pub use answer::problem::{
    internal_error, invalid_policies, invalid_request, misconfigured, problem_type,
    unknown_transfer_coding, without_revisions,
};
pub use answer::status::Status;
pub use answer::{Outcome, operation_json};
pub use api::call::MAX_CHECKS;
pub use api::policies::{
    Audited, Change, Changed, InvalidRevisions, Origin, PolicyCall, RevisionTag, Revisions, Source,
    actor, most_units,
};
pub use exchange::{Exchange, Step};
pub use gateway::upstream_failed;
pub use head::{BodyError, Head, MAX_BODY_BYTES, MAX_DRAINED_BYTES, NoKeys};
pub use key::token::Verify;
pub use key::{address, key_headers, key_of};
pub use limited::{Hour, KeysAs, Limited, List, Tally};
pub use log::{Log, LogSecret, More};
pub use meter::{AnswerEnd, Meter};
pub use metrics::{Counted, Metrics};
pub use plan::{Check, Keyed};
pub use response::{Header, Headers, Response};
pub use served::{Lease, Pass, Reservation, Served};
pub use state::{Server, Watched};
