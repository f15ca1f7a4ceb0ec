//! Rate limiting in a process or against Redis.
//!
//! An adapter around `tidegate_gate`: here time is read, states are kept and bytes travel. What is
//! decided, and how it is answered, is the gate's.
//!
//! - [`store`]: where states are kept: in the process or in Redis.
//! - [`serve`]: the decision API over HTTP.
//! - [`replay`]: a recorded trace against any backend: memory, Redis, wasmtime, a Worker.
//! - [`local`]: a Redis and a workerd of one's own, for replays and tests.

pub mod clock;
#[cfg(feature = "command")]
pub mod local;
#[cfg(feature = "command")]
pub mod replay;
#[cfg(feature = "command")]
pub mod serve;
pub mod store;

pub use tidegate_gate as gate;
