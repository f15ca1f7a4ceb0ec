//! One decision of each limiter on a state at hand, beside governor's direct limiter. Both are
//! given the time.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use criterion::{
    BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime,
};
use governor::clock::FakeRelativeClock;
use governor::{Quota, RateLimiter};
use tidegate_bench::GivenClock;
use tidegate_core::window::{fixed, sliding};
use tidegate_core::{Micros, Rate, Timestamp, bucket};

/// From one request to the next, in µs, at 100 a second: as many as are granted.
const GRANTED: u64 = 10_000;
/// Ten times as many as are granted.
const REFUSED: u64 = 1_000;

const LIMIT: u64 = 100;

/// `governor` with its own manual clock, and `governor_given` with one that costs next to nothing
/// to set: what is left is its decision alone.
fn governor(group: &mut BenchmarkGroup<'_, WallTime>, step: u64) {
    let quota = Quota::per_second(NonZeroU32::new(100).expect("not 0"));
    {
        let clock = FakeRelativeClock::default();
        let limiter = RateLimiter::direct_with_clock(quota, clock.clone());
        let step = Duration::from_micros(step);
        group.bench_function("governor", |bencher| {
            bencher.iter(|| {
                clock.advance(step);
                black_box(limiter.check())
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
            black_box(limiter.check())
        });
    });
}

/// A clock that goes on by as much each time.
fn ticks(step: u64) -> impl FnMut() -> Timestamp {
    let mut now = 1_700_000_000_000_000;
    move || {
        now += step;
        Timestamp(now)
    }
}

fn decide(criterion: &mut Criterion) {
    for (case, step) in [("granted", GRANTED), ("refused", REFUSED)] {
        let rate = Rate::new(LIMIT, Micros::SECOND).expect("a rate");
        let bucket = black_box(bucket::Config::new(LIMIT, rate).expect("a bucket"));
        let mut group = criterion.benchmark_group(format!("token_bucket_{case}"));
        governor(&mut group, step);
        group.bench_function("tidegate", |bencher| {
            let (mut state, mut tick) = (bucket::State::default(), ticks(step));
            bencher.iter(|| black_box(bucket.decide(&mut state, tick(), black_box(1))));
        });
        group.finish();

        let window = black_box(fixed::Config::new(LIMIT, Micros::SECOND).expect("a window"));
        let mut group = criterion.benchmark_group(format!("fixed_window_{case}"));
        governor(&mut group, step);
        group.bench_function("tidegate", |bencher| {
            let (mut state, mut tick) = (fixed::State::default(), ticks(step));
            bencher.iter(|| black_box(window.decide(&mut state, tick(), black_box(1))));
        });
        group.finish();

        for segments in [1, 10, 50] {
            let window = sliding::Config::new(LIMIT, Micros::SECOND, segments);
            let window = black_box(window.expect("a window"));
            let mut group = criterion.benchmark_group(format!("sliding_window_{segments}_{case}"));
            governor(&mut group, step);
            group.bench_function("tidegate", |bencher| {
                let counts = vec![0; window.segments() + 1];
                let (mut state, mut tick) = (window.state(counts).expect("fresh"), ticks(step));
                bencher.iter(|| black_box(window.decide(&mut state, tick(), black_box(1))));
            });
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .without_plots();
    targets = decide
}
criterion_main!(benches);
