#![cfg_attr(
    all(feature = "client", feature = "redis", feature = "reqwest", feature = "tower"),
    doc = include_str!("../README.md")
)]
#![cfg_attr(
    not(all(feature = "client", feature = "redis", feature = "reqwest", feature = "tower")),
    doc = "Exact rate limiting in your process or on Redis."
)]
//!
//! # What is where
//!
//! This crate is an adapter around `tidegate_gate`: it reads the time, keeps states and moves bytes. The
//! gate makes the decisions and words the answers.
//!
//! - [`store`] keeps states in the process or in Redis.
//! - [`tower`] is a layer for services of tower, such as those of axum.
//! - [`reqwest`](mod@reqwest) is middleware that keeps a client of reqwest within a limit.
//! - [`serve`] serves the decision API over HTTP.
//! - [`replay`] replays a recorded trace on any backend: memory, Redis, wasmtime or a Worker.
//! - [`local`] starts a private Redis or workerd, for replays and tests.
//! - [`client`] asks a store of this process, Redis, or a server over HTTP.
//! - [`clock`] tells the time.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `redis` | the store in Redis or Valkey |
//! | `tower` | the layer for services of tower |
//! | `command`, the default | the command `tidegate` and its HTTP server, with `redis` |
//! | `replay` | the subcommands `replay` and `parity`, with `command` and `local` |
//! | `client` | a client of a store, or of a server over HTTP |
//! | `reqwest` | the middleware for clients of reqwest |
//! | `local` | a private Redis or workerd |
//! | `tls`, a default | TLS of the server, and to Redis |
//! | `otel` | spans of the server's decisions, for OpenTelemetry |

#[cfg(feature = "client")]
pub mod client;
pub mod clock;
#[cfg(any(feature = "command", feature = "tls"))]
#[doc(hidden)] // for the command
pub mod file;
#[cfg(any(feature = "command", feature = "tower"))]
mod http_message;
#[cfg(feature = "local")]
pub mod local;
#[cfg(any(feature = "client", feature = "command", feature = "reqwest", feature = "tower"))]
mod random;
#[cfg(feature = "replay")]
pub mod replay;
#[cfg(feature = "reqwest")]
pub mod reqwest;
#[cfg(feature = "command")]
pub mod serve;
pub mod store;
#[cfg(feature = "tower")]
pub mod tower;

pub use store::{Memory, Store, StoreError};
#[cfg(feature = "redis")]
pub use store::{Redis, RedisClientFiles, RedisOptions, RedisTls};
pub use tidegate_gate as gate;
pub use tidegate_gate::{Decision, Operation, Policies, Policy, Resolved, Timestamp, Verdict};
#[cfg(any(feature = "client", feature = "command", feature = "tower"))]
pub use tidegate_http as http;
