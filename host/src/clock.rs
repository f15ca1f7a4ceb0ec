//! The clock of the host: read once per event, and here alone.
//!
//! `clock_gettime` costs more than a decision does. The processor's own counter costs half of it,
//! and is not the time: so each thread takes the time anew every 10 ms, and counts from there.
//! Between two threads, and at each of those moments, the clock may step by some microseconds
//! either way, which the core's rule for clocks is there for.

use std::cell::Cell;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use quanta::Clock;
use tidegate_gate::Timestamp;

/// A counter that is calibrated to 200 parts in a million drifts by 2 µs in this time.
const TRUSTED_FOR_NS: u64 = 10_000_000;

static COUNTER: LazyLock<Clock> = LazyLock::new(Clock::new);

thread_local! {
    /// What the counter and the system's clock showed at the same moment.
    static ANCHOR: Cell<Option<(u64, Timestamp)>> = const { Cell::new(None) };
}

/// The time now, as the system's wall clock would tell it.
#[must_use]
#[inline]
pub fn now() -> Timestamp {
    let count = COUNTER.raw();
    if let Some((anchored_at, time)) = ANCHOR.get() {
        let passed_ns = COUNTER.delta_as_nanos(anchored_at, count);
        if passed_ns < TRUSTED_FOR_NS {
            return Timestamp(time.0.saturating_add(passed_ns / 1_000));
        }
    }
    let time = system_time();
    ANCHOR.set(Some((count, time)));
    time
}

/// A clock before 1970 reads as 1970.
fn system_time() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    #[test]
    fn tells_the_system_s_time() {
        for _ in 0..1_000_000 {
            let before = super::system_time().0;
            let now = super::now().0;
            let after = super::system_time().0;
            // a processor that is slow to get to it may make the span long, never the time wrong
            assert!((before.saturating_sub(1_000)..=after + 1_000).contains(&now));
        }
    }
}
