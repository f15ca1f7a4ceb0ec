//! Leases among many live ones, compared with one decision of governor's direct limiter. Both get the time as an
//! argument. Each turn gives back what it was granted, so the number of live leases stays the same.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use tidegate_bench::{GRANTED, REFUSED, START, beside_governor, quick};
use tidegate_core::lease::{Id, budget, concurrency, connections};
use tidegate_core::shed::fleet::{self, Priority};
use tidegate_core::{Limiter, MAX_QUANTITY, Micros};

/// The number of live leases or owners.
const LIVE: u64 = 1_000;
/// A time to live so long that no lease expires during the benchmark.
const LONG: Micros = Micros(MAX_QUANTITY / 4);

/// Identities that are spread as random ones are.
fn id(number: u64) -> Id {
    Id([number.wrapping_mul(0xD134_2543_DE82_EF95), number])
}

/// Acquires one more lease and releases the oldest, or is refused.
fn concurrency(criterion: &mut Criterion) {
    for (case, step, capacity) in [("granted", GRANTED, LIVE + 1), ("refused", REFUSED, LIVE)] {
        let config = concurrency::Config::new(capacity, LONG, LIVE + 1).expect("a limit");
        let config = black_box(config);
        let mut state = config.state(vec![0; config.words()]).expect("fresh");
        for number in 0..LIVE {
            assert!(
                config.acquire(&mut state, START, id(number), 1).is_ok_and(|it| it.is_allowed())
            );
        }
        let mut next = LIVE;
        beside_governor(criterion, &format!("concurrency_{LIVE}_{case}"), step, |now| {
            let decision = config.acquire(&mut state, now, id(next), black_box(1));
            if case == "granted" {
                let _ = black_box(config.release(&mut state, now, id(next - LIVE)));
            }
            next += 1;
            decision
        });
    }
}

/// Opens and closes one connection of one owner after another, or is refused.
fn connections(criterion: &mut Criterion) {
    for (case, step, limit) in [("granted", GRANTED, LIVE + 1), ("refused", REFUSED, LIVE)] {
        let config = connections::Config::new(limit, LONG, LIVE).expect("a limit");
        let config = black_box(config);
        let mut state = config.state(vec![0; config.words()]).expect("fresh");
        for owner in 0..LIVE {
            assert!(config.open(&mut state, START, id(owner), 1).is_ok_and(|it| it.is_allowed()));
        }
        let mut turn = 0;
        beside_governor(criterion, &format!("connections_{LIVE}_{case}"), step, |now| {
            let owner = id(turn * 7_919 % LIVE);
            turn += 1;
            let decision = config.open(&mut state, now, owner, black_box(1));
            if case == "granted" {
                let _ = black_box(config.close(&mut state, now, owner, 1));
            }
            decision
        });
    }
}

/// Requests of low priority, as in the benchmark of concurrency.
fn fleet(criterion: &mut Criterion) {
    for (case, step, low) in [("granted", GRANTED, LIVE + 1), ("refused", REFUSED, LIVE)] {
        let config = fleet::Config::new(low + 250, 250, LONG, LIVE + 1).expect("a fleet");
        let config = black_box(config);
        let mut state = config.state(vec![0; config.words()]).expect("fresh");
        for number in 0..LIVE {
            let lease = config.acquire(&mut state, START, Priority::Low, id(number), 1);
            assert!(lease.is_ok_and(|it| it.is_allowed()));
        }
        let mut next = LIVE;
        beside_governor(criterion, &format!("fleet_{LIVE}_{case}"), step, |now| {
            let priority = black_box(Priority::Low);
            let decision = config.acquire(&mut state, now, priority, id(next), black_box(1));
            if case == "granted" {
                let _ = black_box(config.release(&mut state, now, id(next - LIVE)));
            }
            next += 1;
            decision
        });
    }
}

/// 64 holders want more than the budget has. One after another gives units back and is granted units anew, or
/// finds nothing left to grant.
fn budget(criterion: &mut Criterion) {
    const HOLDERS: u64 = 64;
    for (case, step, available) in [("granted", GRANTED, 1_000), ("refused", REFUSED, 0)] {
        let config = budget::Config::new(100, Micros(2_000_000), HOLDERS).expect("a budget");
        let config = black_box(config);
        let mut state = config.state(vec![0; config.words()]).expect("fresh");
        let mut allowances = [budget::Allowance::default(); HOLDERS as usize];
        let mut turn = 0;
        beside_governor(criterion, &format!("budget_{HOLDERS}_{case}"), step, |now| {
            turn = (turn + 1) % allowances.len();
            let (holder, allowance) = (id(turn as u64), &mut allowances[turn]);
            black_box(config.give_back(&mut state, now, holder, *allowance));
            *allowance = config.grant(&mut state, now, holder, black_box(100), available);
            *allowance
        });
    }
}

criterion_group! {
    name = benches;
    config = quick();
    targets = concurrency, connections, fleet, budget
}
criterion_main!(benches);
