//! tests/bench
