//! The Cloudflare Worker: the decision API, with the state of each key in a Durable Object.
//!
//! This crate is an adapter. `tidegate_http` reads the requests and words the answers. In an isolate a
//! node ([`node`]) answers what it may, and asks the objects ([`keys`]) for the rest, by `tidegate_tier`. JavaScript
//! (`worker.js`) carries the bytes between them and awaits.
//!
//! With the feature `limiter` in place of `api` it has the objects alone, and the limiter of the npm package that asks them ([`limiter`]).

#[cfg(target_arch = "wasm32")]
mod alarm;
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod bindings;
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod body;
#[cfg(any(target_arch = "wasm32", test))]
mod call;
#[cfg(target_arch = "wasm32")]
mod clock;
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod events;
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod exchanges;
#[cfg(any(target_arch = "wasm32", test))]
#[path = "../../crates/wasm/src/fields.rs"]
#[cfg_attr(not(feature = "api"), expect(dead_code, reason = "only responses have headers"))]
mod fields; // the npm package has the same file
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod gateway;
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod held;
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod in_force;
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod isolate;
#[cfg(target_arch = "wasm32")]
mod keys;
#[cfg(all(target_arch = "wasm32", feature = "limiter"))]
mod limiter;
#[cfg(all(any(target_arch = "wasm32", test), feature = "api"))]
mod lists;
#[cfg(target_arch = "wasm32")]
mod log;
#[cfg(any(target_arch = "wasm32", test))]
mod memory;
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod node;
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod policies;
#[cfg(all(target_arch = "wasm32", not(feature = "api")))]
#[path = "learnt.rs"]
mod policies; // those of limiters, which are not deployed as a file
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod proceed;
#[cfg(target_arch = "wasm32")]
mod recovery;
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod revision_store;
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod revisions;
#[cfg(target_arch = "wasm32")]
mod rows;
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod rpc;
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod sockets;
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod token;
#[cfg(target_arch = "wasm32")]
mod variables;
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod watch;
#[cfg(all(target_arch = "wasm32", feature = "api"))]
mod watched;
