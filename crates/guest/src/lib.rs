//! crates/guest
