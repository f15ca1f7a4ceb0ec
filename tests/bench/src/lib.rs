//! Code that the benchmarks in `benches/` share. Each group has `tidegate` and its baseline. Answers are left in
//! memory for a reader and not moved again: on some machines a move costs as much as a decision.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, measurement::WallTime};
use governor::clock::{Clock, FakeRelativeClock};
use governor::nanos::Nanos;
use governor::{Quota, RateLimiter};
use tidegate_core::Timestamp;

/// The units granted in a second.
pub const LIMIT: u64 = 100;
/// The time between two requests in µs at 100 a second: as many as the limit grants.
pub const GRANTED: u64 = 10_000;
/// The time between two requests in µs at ten times the limit.
pub const REFUSED: u64 = 1_000;

/// `governor` uses its own manual clock. `governor_given` uses a clock that costs next to nothing to set, so it
/// measures the decision alone.
fn governor(group: &mut BenchmarkGroup<'_, WallTime>, step: u64) {
    let quota = Quota::per_second(NonZeroU32::new(100).expect("not 0"));
    {
        let clock = FakeRelativeClock::default();
        let limiter = RateLimiter::direct_with_clock(quota, clock.clone());
        let step = Duration::from_micros(step);
        group.bench_function("governor", |bencher| {
            bencher.iter(|| {
                clock.advance(step);
                _ = black_box(&limiter.check());
            });
        });
    }
    let clock = GivenClock::default();
    let limiter = RateLimiter::direct_with_clock(quota, clock.clone());
    let mut now = 0;
    group.bench_function("governor_given", |bencher| {
        bencher.iter(|| {
            now += step * 1_000;
            clock.set(now);
            _ = black_box(&limiter.check());
        });
    });
}

/// A group that compares `ours` with governor. Both are asked every `step` µs.
pub fn beside_governor<T>(
    criterion: &mut Criterion,
    name: &str,
    step: u64,
    mut ours: impl FnMut(Timestamp) -> T,
) {
    let mut group = criterion.benchmark_group(name);
    governor(&mut group, step);
    let mut tick = ticks(step);
    group.bench_function("tidegate", |bencher| bencher.iter(|| _ = black_box(&ours(tick()))));
    group.finish();
}

/// A clock that advances by the same step each time.
fn ticks(step: u64) -> impl FnMut() -> Timestamp {
    let mut now = START.0;
    move || {
        now += step;
        Timestamp(now)
    }
}

/// The first time of [`ticks`].
pub const START: Timestamp = Timestamp(1_700_000_000_000_000);

/// Times that give criterion stable results on a machine that is not idle.
pub fn quick() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .without_plots()
}

/// A clock for governor that is set by a plain load and store. Governor's own manual clock adds by compare and
/// swap, which costs as much as a decision.
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
