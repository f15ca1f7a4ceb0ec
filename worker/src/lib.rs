//! The Cloudflare Worker: the decision API, with the state of each key in a Durable Object.
//!
//! This crate is an adapter. `tidegate_http` reads the requests and words the answers. In an isolate a
//! node ([`node`]) answers what it may, and asks the objects ([`keys`]) for the rest, by `tidegate_tier`. JavaScript
//! (`worker.js`) carries the bytes between them and awaits.

#[cfg(target_arch = "wasm32")]
mod alarm;
#[cfg(target_arch = "wasm32")]
mod bindings;
#[cfg(target_arch = "wasm32")]
mod body;
#[cfg(any(target_arch = "wasm32", test))]
mod call;
#[cfg(target_arch = "wasm32")]
mod clock;
#[cfg(target_arch = "wasm32")]
mod events;
#[cfg(target_arch = "wasm32")]
mod exchange;
#[cfg(any(target_arch = "wasm32", test))]
mod fields;
#[cfg(target_arch = "wasm32")]
mod gateway;
#[cfg(target_arch = "wasm32")]
mod held;
#[cfg(target_arch = "wasm32")]
mod isolate;
#[cfg(target_arch = "wasm32")]
mod keys;
#[cfg(target_arch = "wasm32")]
mod log;
#[cfg(any(target_arch = "wasm32", test))]
mod memory;
#[cfg(target_arch = "wasm32")]
mod node;
#[cfg(target_arch = "wasm32")]
mod policies;
#[cfg(target_arch = "wasm32")]
mod proceed;
#[cfg(target_arch = "wasm32")]
mod recovery;
#[cfg(target_arch = "wasm32")]
mod revision_store;
#[cfg(target_arch = "wasm32")]
mod revisions;
#[cfg(target_arch = "wasm32")]
mod rows;
#[cfg(target_arch = "wasm32")]
mod rpc;
#[cfg(target_arch = "wasm32")]
mod sockets;
#[cfg(target_arch = "wasm32")]
mod step;
#[cfg(target_arch = "wasm32")]
mod token;
#[cfg(target_arch = "wasm32")]
mod watch;
