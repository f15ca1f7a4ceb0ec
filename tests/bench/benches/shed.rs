//! One decision of each log and shedder on a state in memory, compared with governor's direct limiter. Both get
//! the time as an argument.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use tidegate_bench::{GRANTED, LIMIT, REFUSED, START, beside_governor, quick};
use tidegate_core::shed::reporter::{self, LocalCap};
use tidegate_core::shed::suppression::{self, Estimator};
use tidegate_core::shed::utilization::{self, Class, Thresholds, Timing};
use tidegate_core::shed::{Draw, Share, penalty};
use tidegate_core::window::log::{self, Denied};
use tidegate_core::{Limiter, MAX_QUANTITY, Micros, Rate, RateLimiter, Timestamp};

/// A period so long that nothing is forgotten during the benchmark.
const LONG: Micros = Micros(MAX_QUANTITY / 4);

const CASES: [(&str, u64); 2] = [("granted", GRANTED), ("refused", REFUSED)];

/// A log of this many units at the same rate.
fn sliding_log(criterion: &mut Criterion) {
    for (case, step) in CASES {
        for limit in [10, 1_000] {
            let windows = [log::Window { limit, period: Micros(limit * 1_000_000 / LIMIT) }];
            let log = log::Config::new(&windows, Micros::ZERO, Denied::Forgotten);
            let log = black_box(log.expect("a log"));
            let mut state = log.state(vec![0; log.words()]).expect("fresh");
            beside_governor(criterion, &format!("sliding_log_{limit}_{case}"), step, |now| {
                log.decide(&mut state, now, black_box(1))
            });
        }
    }
}

/// A penalty with half of the refusals that begin one, and with all of them.
fn penalty(criterion: &mut Criterion) {
    let terms = penalty::Terms {
        refusals: 10,
        within: LONG,
        duration: LONG,
        max: LONG,
        forgive_after: Micros::ZERO,
    };
    let penalty = black_box(penalty::Config::new(terms).expect("a penalty"));
    for ((case, step), refusals) in CASES.into_iter().zip([5, 10]) {
        let mut state = penalty.state(vec![0; penalty.words()]).expect("fresh");
        for _ in 0..refusals {
            penalty.refused(&mut state, START);
        }
        let decide = |now| penalty.decide(&mut state, now);
        beside_governor(criterion, &format!("penalty_{case}"), step, decide);
    }
}

/// A shedder at rest, and one that is to shed half of the load.
fn utilization(criterion: &mut Criterion) {
    let config = utilization::Config::new(Thresholds::DEFAULT, Timing::DEFAULT, 1);
    let config = black_box(config.expect("a shedder"));
    let half = (Timing::DEFAULT.delay.0 + Timing::DEFAULT.full.0 / 2) / 1_000_000;
    for ((case, step), (seconds, busy)) in CASES.into_iter().zip([(0, 50), (half, 75)]) {
        let mut state = utilization::State::default();
        for second in 0..=seconds {
            let before = (seconds - second) * 1_000_000;
            config.observe(&mut state, Timestamp(START.0 - before), Share::of(second.min(1), 1));
        }
        let signal = Some(Share::of(busy, 100));
        beside_governor(criterion, &format!("utilization_{case}"), step, |now| {
            config.decide(&mut state, now, black_box(signal), Class(0), black_box(Draw(0)))
        });
    }
}

/// A suppression as a policy has it: one state both counts the reports and decides.
fn suppression(criterion: &mut Criterion) {
    let limit = Rate::new(LIMIT, Micros::SECOND).expect("a rate");
    let config = suppression::Config::new(limit, Estimator::default());
    let config = black_box(config.expect("a suppression"));
    for (case, step) in CASES {
        let mut state = suppression::State::default();
        beside_governor(criterion, &format!("suppression_{case}"), step, |now| {
            config.decide(&mut state, now, black_box(1), black_box(Draw(0)))
        });
    }
}

/// A reporter that refuses by its cap alone.
fn reporter(criterion: &mut Criterion) {
    let limit = Rate::new(LIMIT, Micros::SECOND).expect("a rate");
    let config = black_box(reporter::Config::new(limit, LocalCap::On));
    for (case, step) in CASES {
        let mut state = reporter::State::default();
        beside_governor(criterion, &format!("reporter_{case}"), step, |now| {
            config.decide(&mut state, now, black_box(1), black_box(Draw(0)))
        });
    }
}

criterion_group! {
    name = benches;
    config = quick();
    targets = sliding_log, penalty, utilization, suppression, reporter
}
criterion_main!(benches);
