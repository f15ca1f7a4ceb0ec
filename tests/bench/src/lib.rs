//! Benchmarks: see `benches/`. Each group has what is ours, `tidegate`, and its baseline.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use governor::clock::Clock;
use governor::nanos::Nanos;

/// A clock for governor that is told the time for next to nothing: a plain load and store, where
/// its own manual clock adds by compare and swap, which costs as much as its decision.
#[derive(Clone, Debug, Default)]
pub struct GivenClock(Arc<AtomicU64>);

impl GivenClock {
    pub fn set(&self, nanos: u64) {
        self.0.store(nanos, Ordering::Relaxed);
    }
}

impl Clock for GivenClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::from(self.0.load(Ordering::Relaxed))
    }
}
