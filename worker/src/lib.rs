//! The Cloudflare Worker: the decision API, with the state of each key in a Durable Object.
//!
//! This crate is an adapter. `tidegate_gate::http` reads the requests and words the answers, and the object
//! that a key belongs to decides ([`keys`]).

#[cfg(target_arch = "wasm32")]
mod decide;
#[cfg(target_arch = "wasm32")]
mod entry;
#[cfg(target_arch = "wasm32")]
mod keys;
#[cfg(target_arch = "wasm32")]
mod policies;
