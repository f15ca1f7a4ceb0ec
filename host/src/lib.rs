#![doc = include_str!("../README.md")]
//!
//! # What is where
//!
//! This crate is an adapter around `tidegate_gate`: it reads the time, keeps states and moves bytes. The
//! gate makes the decisions and words the answers.
//!
//! - [`store`] keeps states in the process or in Redis.
//! - [`serve`] serves the decision API over HTTP.
//! - [`replay`] replays a recorded trace on any backend: memory, Redis, wasmtime or a Worker.
//! - [`local`] starts a private Redis or workerd, for replays and tests.
//! - [`clock`] tells the time.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `redis` | the store in Redis or Valkey |
//! | `local` | a private Redis or workerd |
//! | `command`, the default | the command `tidegate` and its HTTP server, with `redis` and `local` |

pub mod clock;
#[cfg(feature = "local")]
pub mod local;
#[cfg(feature = "command")]
pub mod replay;
#[cfg(feature = "command")]
pub mod serve;
pub mod store;

pub use store::{Memory, Store, StoreError};
#[cfg(feature = "redis")]
pub use store::{Redis, RedisOptions};
pub use tidegate_gate as gate;
pub use tidegate_gate::{Decision, Operation, Policies, Policy, Resolved, Timestamp, Verdict};
#[cfg(feature = "command")]
pub use tidegate_http as http;
