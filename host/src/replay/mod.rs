//! A recorded trace against any backend.

mod backend;
mod trace;
mod wasmtime;
mod worker;

pub use backend::{Backend, BackendKind, RedisReplay, Target};
pub use trace::{Event, Line, Trace};
pub use wasmtime::Guest;
