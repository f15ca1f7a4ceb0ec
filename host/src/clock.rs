//! The clock of the host. It is read once per event, and only in this module.
//!
//! `clock_gettime` costs more than a decision. The processor's own counter costs half as much but does
//! not know the time, so each thread reads the system's time every 10 ms and counts from there. Between
//! two threads, and whenever a thread reads the system's time, the clock may step by some microseconds
//! either way; the core's clock rule covers such steps.

use std::cell::Cell;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use quanta::Clock;
use tidegate_gate::Timestamp;

/// How long a thread trusts its counter. A counter calibrated to 200 ppm drifts by 2 µs in this time.
const TRUSTED_FOR_NS: u64 = 10_000_000;

/// How long the counter and the system's time take to be read, at most.
const AT_ONCE_NS: u64 = 20_000;

static COUNTER: LazyLock<Clock> = LazyLock::new(Clock::new);

thread_local! {
    /// The counter and the system's time at the same moment.
    static ANCHOR: Cell<Option<(u64, Timestamp)>> = const { Cell::new(None) };
}

/// The time now, by the system's wall clock.
#[must_use]
#[inline]
pub fn now() -> Timestamp {
    now_by(system_time)
}

#[inline]
fn now_by(read: impl FnOnce() -> Timestamp) -> Timestamp {
    let count = COUNTER.raw();
    if let Some((anchored_at, time)) = ANCHOR.get() {
        let passed_ns = COUNTER.delta_as_nanos(anchored_at, count);
        if passed_ns < TRUSTED_FOR_NS {
            return Timestamp(time.0.saturating_add(passed_ns / 1_000));
        }
    }
    let time = read();
    // of a thread that stood still meanwhile, nobody knows at which count the time was read
    let is_at_once = COUNTER.delta_as_nanos(count, COUNTER.raw()) < AT_ONCE_NS;
    ANCHOR.set(is_at_once.then_some((count, time)));
    time
}

/// A span that began at some moment, by the processor's counter.
#[cfg(feature = "command")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began(u64);

#[cfg(feature = "command")]
impl Began {
    pub(crate) fn now() -> Self {
        Self(COUNTER.raw())
    }

    pub(crate) fn elapsed(self) -> std::time::Duration {
        std::time::Duration::from_nanos(COUNTER.delta_as_nanos(self.0, COUNTER.raw()))
    }
}

/// A clock before 1970 reads as 1970.
fn system_time() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
}

/// A span in µs.
#[cfg(feature = "redis")]
pub(crate) fn micros(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Timestamp, now_by};

    #[test]
    fn a_thread_counts_from_no_time_that_was_read_late() {
        let late = || {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(1) {}
            Timestamp(7_000_000)
        };
        assert_eq!(now_by(late), Timestamp(7_000_000));
        assert_eq!(now_by(|| Timestamp(8_000_000)), Timestamp(8_000_000));
    }

    #[test]
    fn now_is_the_time_of_the_system() {
        for _ in 0..1_000_000 {
            let before = super::system_time().0;
            let now = super::now().0;
            let after = super::system_time().0;
            // a busy machine may make the span between `before` and `after` long, and never the time wrong
            assert!((before.saturating_sub(1_000)..=after + 1_000).contains(&now));
        }
    }
}
