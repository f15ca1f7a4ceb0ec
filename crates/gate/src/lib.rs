//! crates/gate
