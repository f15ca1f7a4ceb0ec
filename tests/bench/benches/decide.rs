//! One decision of each limiter on a state at hand, beside governor's direct limiter. Both are
//! given the time.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use tidegate_bench::{GRANTED, LIMIT, REFUSED, governor, quick, ticks};
use tidegate_core::window::{fixed, sliding};
use tidegate_core::{Micros, Rate, bucket};

fn decide(criterion: &mut Criterion) {
    for (case, step) in [("granted", GRANTED), ("refused", REFUSED)] {
        let rate = Rate::new(LIMIT, Micros::SECOND).expect("a rate");
        let bucket = black_box(bucket::Config::new(LIMIT, rate).expect("a bucket"));
        let mut group = criterion.benchmark_group(format!("token_bucket_{case}"));
        governor(&mut group, step);
        group.bench_function("tidegate", |bencher| {
            let (mut state, mut tick) = (bucket::State::default(), ticks(step));
            bencher.iter(|| _ = black_box(&bucket.decide(&mut state, tick(), black_box(1))));
        });
        group.finish();

        let window = black_box(fixed::Config::new(LIMIT, Micros::SECOND).expect("a window"));
        let mut group = criterion.benchmark_group(format!("fixed_window_{case}"));
        governor(&mut group, step);
        group.bench_function("tidegate", |bencher| {
            let (mut state, mut tick) = (fixed::State::default(), ticks(step));
            bencher.iter(|| _ = black_box(&window.decide(&mut state, tick(), black_box(1))));
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
                bencher.iter(|| _ = black_box(&window.decide(&mut state, tick(), black_box(1))));
            });
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = quick();
    targets = decide
}
criterion_main!(benches);
