//! crates/wasm
