//! The memory store compared with governor's keyed limiter, with string keys. In some groups both get the time as
//! an argument, in others each reads its own clock.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use governor::clock::FakeRelativeClock;
use governor::{Quota, RateLimiter};
use tidegate::clock;
use tidegate::store::Memory;
use tidegate_bench::GivenClock;
use tidegate_core::Timestamp;
use tidegate_gate::{Id, Micros, Operation, Policy, Request, Resolved};

const POLICY: &str = "limits = [{ algorithm = 'token_bucket', capacity = 100, rate = '100/s' }]";

const THREE: &str = "limits = [
  { algorithm = 'token_bucket', capacity = 100, rate = '100/s' },
  { algorithm = 'fixed_window', limit = 6_000, period = '1m' },
  { algorithm = 'sliding_window', limit = 100_000, period = '1h', segments = 12 },
]";

/// So much that every request is granted.
const PLENTY: &str =
    "limits = [{ algorithm = 'token_bucket', capacity = 100_000_000, rate = '100000000/s' }]";

fn quota() -> Quota {
    quota_of(100)
}

fn quota_of(each_second: u32) -> Quota {
    Quota::per_second(NonZeroU32::new(each_second).expect("not 0"))
}

/// The keys in the order of the requests. No table has this order, so reading the next key is cheap and finding
/// it is not.
fn keys(count: usize) -> Vec<String> {
    (0..count).map(|place| format!("user:{:08}", place * 7_919 % count)).collect()
}

/// The keys sorted, which is the order in which the store learns them.
fn sorted(keys: &[String]) -> Vec<String> {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    keys
}

fn store(keys: &[String]) -> Memory {
    store_of(POLICY, keys)
}

fn store_of(policy: &str, keys: &[String]) -> Memory {
    let policy = Policy::parse("bench", policy).expect("a policy");
    let store = Memory::new(policy, (64 << 20) + 512 * keys.len()).expect("room");
    for key in &sorted(keys) {
        let _ = store.decide(key, clock::now(), 1).expect("room");
    }
    store
}

fn memory(criterion: &mut Criterion) {
    for count in [1_000, 1_000_000] {
        let keys = keys(count);

        let mut group = criterion.benchmark_group(format!("memory_{count}_keys_time_given"));
        {
            let clock = FakeRelativeClock::default();
            let limiter = RateLimiter::dashmap_with_clock(quota(), clock.clone());
            sorted(&keys).iter().for_each(|key| drop(limiter.check_key(key)));
            let mut next = 0;
            group.bench_function("governor", |bencher| {
                bencher.iter(|| {
                    next = if next + 1 == keys.len() { 0 } else { next + 1 };
                    clock.advance(Duration::from_micros(1));
                    _ = black_box(&limiter.check_key(&keys[next]));
                });
            });
        }
        {
            let clock = GivenClock::default();
            let limiter = RateLimiter::dashmap_with_clock(quota(), clock.clone());
            sorted(&keys).iter().for_each(|key| drop(limiter.check_key(key)));
            let (mut next, mut now) = (0, 0);
            group.bench_function("governor_given", |bencher| {
                bencher.iter(|| {
                    next = if next + 1 == keys.len() { 0 } else { next + 1 };
                    now += 1_000;
                    clock.set(now);
                    _ = black_box(&limiter.check_key(&keys[next]));
                });
            });
        }
        {
            let store = store(&keys);
            let (mut next, mut now) = (0, clock::now().0);
            group.bench_function("tidegate", |bencher| {
                bencher.iter(|| {
                    next = if next + 1 == keys.len() { 0 } else { next + 1 };
                    now += 1;
                    _ = black_box(&store.decide(&keys[next], Timestamp(now), 1).expect("room"));
                });
            });
        }
        group.finish();

        let mut group = criterion.benchmark_group(format!("memory_{count}_keys_own_clock"));
        {
            let limiter = RateLimiter::dashmap(quota());
            sorted(&keys).iter().for_each(|key| drop(limiter.check_key(key)));
            let mut next = 0;
            group.bench_function("governor", |bencher| {
                bencher.iter(|| {
                    next = if next + 1 == keys.len() { 0 } else { next + 1 };
                    _ = black_box(&limiter.check_key(&keys[next]));
                });
            });
        }
        {
            let store = store(&keys);
            let mut next = 0;
            group.bench_function("tidegate", |bencher| {
                bencher.iter(|| {
                    next = if next + 1 == keys.len() { 0 } else { next + 1 };
                    _ = black_box(&store.decide(&keys[next], clock::now(), 1).expect("room"));
                });
            });
        }
        group.finish();
    }
}

/// Compares a policy of three limits with three keyed limiters of governor, asked in turn.
fn three_limits(criterion: &mut Criterion) {
    let keys = keys(1_000);
    let mut group = criterion.benchmark_group("memory_1000_keys_3_limits");
    {
        let limiters = [(); 3].map(|()| RateLimiter::dashmap(quota()));
        for key in &keys {
            limiters.iter().for_each(|limiter| drop(limiter.check_key(key)));
        }
        let mut next = 0;
        group.bench_function("governor", |bencher| {
            bencher.iter(|| {
                next = if next + 1 == keys.len() { 0 } else { next + 1 };
                let key = &keys[next];
                let passes = |limiter: &&_| RateLimiter::check_key(*limiter, key).is_ok();
                _ = black_box(&limiters.iter().filter(passes).count()); // each is asked
            });
        });
    }
    {
        let store = store_of(THREE, &keys);
        let mut next = 0;
        group.bench_function("tidegate", |bencher| {
            bencher.iter(|| {
                next = if next + 1 == keys.len() { 0 } else { next + 1 };
                _ = black_box(&store.decide(&keys[next], clock::now(), 1).expect("room"));
            });
        });
    }
    group.finish();
}

/// The time that two threads take, if each asks `times` times.
fn on_two_threads(times: u64, keys: &[String], ask: impl Fn(&String) + Sync) -> Duration {
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let ask = &ask;
            scope.spawn(move || {
                let mut next = thread * keys.len() / 2;
                for _ in 0..times {
                    next = if next + 1 == keys.len() { 0 } else { next + 1 };
                    ask(&keys[next]);
                }
            });
        }
    });
    began.elapsed()
}

fn two_threads(criterion: &mut Criterion) {
    for (count, suffix, (quota, policy)) in [
        (1_000, "", (quota(), POLICY)),
        (1_000, "_granted", (quota_of(100_000_000), PLENTY)),
        (1_000_000, "", (quota(), POLICY)),
    ] {
        let keys = keys(count);
        let mut group = criterion.benchmark_group(format!("memory_{count}_keys_2_threads{suffix}"));
        {
            let limiter = RateLimiter::dashmap(quota);
            sorted(&keys).iter().for_each(|key| drop(limiter.check_key(key)));
            group.bench_function("governor", |bencher| {
                bencher.iter_custom(|times| {
                    on_two_threads(times, &keys, |key| {
                        _ = black_box(&limiter.check_key(key));
                    })
                });
            });
        }
        {
            let store = store_of(policy, &keys);
            group.bench_function("tidegate", |bencher| {
                bencher.iter_custom(|times| {
                    on_two_threads(times, &keys, |key| {
                        _ = black_box(&store.decide(key, clock::now(), 1).expect("room"));
                    })
                });
            });
        }
        group.finish();
    }
}

fn resolved_in(policy: &str, keys: &[String]) -> (Memory, Vec<Resolved>) {
    let policy = Arc::new(Policy::parse("bench", policy).expect("a policy"));
    let store = Memory::new(Arc::clone(&policy), 64 << 20).expect("room");
    let keys = keys.iter().map(|key| Resolved::new(&policy, key).expect("a key"));
    (store, keys.collect())
}

/// A request whose cost is known later, beside a check. Each key has ten reservations that it still remembers.
fn reservations(criterion: &mut Criterion) {
    let keys = keys(1_000);
    let reserving = format!("{PLENTY}\nreservations = {{ most = 16, remember = '10s' }}");
    let mut group = criterion.benchmark_group("memory_1000_keys_reservations");
    for (name, policy) in [("check", PLENTY), ("check_beside_reservations", &*reserving)] {
        let (store, keys) = resolved_in(policy, &keys);
        let (mut next, mut now) = (0, clock::now().0);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                (next, now) = ((next + 1) % keys.len(), now + 1_000);
                _ = black_box(&store.operate(&keys[next], Timestamp(now), Request::of(1)));
            });
        });
    }
    let (store, keys) = resolved_in(&reserving, &keys);
    let (mut next, mut now, mut number) = (0, clock::now().0, 0);
    group.bench_function("reserve_and_commit", |bencher| {
        bencher.iter(|| {
            (next, now, number) = ((next + 1) % keys.len(), now + 1_000, number + 1);
            let (key, id) = (&keys[next], Id([1, number]));
            let request = Request { lease: Some(id), hold: Micros(60_000_000), ..Request::of(2) };
            let reserved = store.operate(key, Timestamp(now), request);
            assert!(reserved.expect("room").decision.is_allowed());
            _ = black_box(&store.operate(key, Timestamp(now), Operation::Commit(id, 1)));
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .without_plots();
    targets = memory, three_limits, two_threads, reservations
}
criterion_main!(benches);
