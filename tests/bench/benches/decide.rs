//! One decision of each limiter on a state in memory, compared with governor's direct limiter. Both get the
//! time as an argument.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use tidegate_bench::{GRANTED, LIMIT, REFUSED, beside_governor, quick};
use tidegate_core::window::{fixed, sliding};
use tidegate_core::{Limiter, Micros, Rate, RateLimiter, bucket};

fn decide(criterion: &mut Criterion) {
    for (case, step) in [("granted", GRANTED), ("refused", REFUSED)] {
        let rate = Rate::new(LIMIT, Micros::SECOND).expect("a rate");
        let bucket = black_box(bucket::Config::new(LIMIT, rate).expect("a bucket"));
        let mut state = bucket::State::default();
        beside_governor(criterion, &format!("token_bucket_{case}"), step, |now| {
            bucket.decide(&mut state, now, black_box(1))
        });

        let window = black_box(fixed::Config::new(LIMIT, Micros::SECOND).expect("a window"));
        let mut state = fixed::State::default();
        beside_governor(criterion, &format!("fixed_window_{case}"), step, |now| {
            window.decide(&mut state, now, black_box(1))
        });

        for segments in [1, 10, 50] {
            let window = sliding::Config::new(LIMIT, Micros::SECOND, segments);
            let window = black_box(window.expect("a window"));
            let mut state = window.state(vec![0; window.words()]).expect("fresh");
            beside_governor(criterion, &format!("sliding_window_{segments}_{case}"), step, |now| {
                window.decide(&mut state, now, black_box(1))
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = quick();
    targets = decide
}
criterion_main!(benches);
