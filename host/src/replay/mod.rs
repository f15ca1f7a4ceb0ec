//! Replays of a recorded trace on any backend: [`Trace`] reads the lines, [`Backend`] decides on them.
//!
//! ```
//! use std::io::Cursor;
//! use tidegate::gate::Policies;
//! use tidegate::replay::{Backend, BackendKind, Target, Trace};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! let text = "[policies.login]
//!             limits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]";
//! let policies = Policies::parse(text)?;
//! let lines = "{\"t_us\":0,\"key\":\"user:42\"}\n{\"t_us\":1,\"key\":\"user:42\"}\n";
//! let mut trace = Trace::new(Box::new(Cursor::new(lines)), &policies, None)?;
//! let mut events = Vec::new();
//! while let Some(line) = trace.next_line()? {
//!     events.push(line.expect("a line that can be read"));
//! }
//! let mut memory = Backend::start(BackendKind::Memory, &policies, &Target::default()).await?;
//! let decisions = memory.decide(&events).await?;
//! assert!(decisions[0].allowed);
//! assert!(!decisions[1].allowed);
//! # Ok(())
//! # }
//! ```

mod backend;
mod decision;
#[cfg(test)]
mod tests;
mod trace;
mod wasmtime;
mod worker;

pub use backend::{Backend, BackendKind, RedisReplay, Target};
pub use decision::DecisionForm;
pub use trace::{Event, Line, Trace};
pub use wasmtime::Guest;
