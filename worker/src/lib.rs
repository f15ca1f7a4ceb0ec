//! Cloudflare Worker: the decision API, with every key in a Durable Object.
//!
//! An adapter: what a request means and what is answered is `tidegate_gate::http`, and what is
//! granted is decided by the object that a key belongs to ([`keys`]).

#[cfg(target_arch = "wasm32")]
mod decide;
#[cfg(target_arch = "wasm32")]
mod entry;
#[cfg(target_arch = "wasm32")]
mod keys;
#[cfg(target_arch = "wasm32")]
mod policies;
