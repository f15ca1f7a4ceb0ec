//! Tests of the contract of every limiter, run for each limiter.

mod foreign;

use std::string::ToString;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::hold::{self, OnExpiry, Terms};
use crate::lease::{Held, Id, Leases, budget, concurrency, connections};
use crate::properties::{fresh, listed};
use crate::shed::reporter::LocalCap;
use crate::shed::suppression::{Estimator, Report};
use crate::shed::utilization::{Thresholds, Timing};
use crate::shed::{Draw, Share, fleet, penalty, reporter, suppression, utilization};
use crate::window::{fixed, log, sliding};
use crate::{InvalidState, Limiter, Micros, Rate, RateLimiter, State, Timestamp, bucket};

type Owned<L> = State<L, Vec<u64>>;

/// Steps of (µs ahead, µs back, a number that selects an operation).
type Steps = Vec<(u64, u64, u64)>;

fn keeps_the_contract<L: Limiter + Copy + PartialEq + core::fmt::Debug>(
    limiter: L,
    steps: &Steps,
    operate: impl Fn(&mut Owned<L>, Timestamp, u64),
) -> Result<(), TestCaseError> {
    let words = limiter.words();
    for wrong in [0, words - 1, words + 1] {
        prop_assert_eq!(limiter.state(vec![0; wrong]).err(), Some(InvalidState));
    }
    let mut state = fresh(limiter);
    prop_assert_eq!(limiter.accepts(&state), Ok(()));
    prop_assert_eq!((state.newest(), limiter.expires_at(&state)), (Timestamp(0), Timestamp(0)));

    let period = limiter.period();
    let mut now = Timestamp(1_000_000);
    for &(ahead, back, number) in steps {
        now = Timestamp(now.0.saturating_add(ahead).saturating_sub(back));
        let taken = now.taken_after(state.newest(), period);
        let mut advanced = state.clone();
        limiter.advance(&mut advanced, now);
        prop_assert_eq!(advanced.newest(), taken, "all go by one clock rule");
        let once = advanced.clone();
        limiter.advance(&mut advanced, taken);
        prop_assert_eq!(&advanced, &once, "to advance to the same time changes nothing");

        operate(&mut state, now, number);
        prop_assert_eq!(state.newest(), taken);
        prop_assert_eq!(limiter.accepts(&state), Ok(()), "{:?}", state);
        let again = limiter.state(state.words()).unwrap();
        prop_assert_eq!(again.newest(), state.newest(), "a state is its words");
        prop_assert_eq!(limiter.reset_after(&again), limiter.reset_after(&state));

        let reset_after = limiter.reset_after(&state);
        prop_assert_eq!(limiter.expires_at(&state), taken.saturating_add(reset_after));
        let (mut expired, mut unseen) = (state.clone(), fresh(limiter));
        let expires = limiter.expires_at(&state);
        limiter.advance(&mut expired, expires);
        limiter.advance(&mut unseen, expires);
        prop_assert_eq!(limiter.reset_after(&expired), Micros::ZERO);
        prop_assert_eq!(limiter.reset_after(&unseen), Micros::ZERO);
    }
    Ok(())
}

fn steps() -> impl Strategy<Value = Steps> {
    let back = prop_oneof![4 => Just(0), 1 => 0..40_000_000_u64];
    proptest::collection::vec((0..9_000_000_u64, back, any::<u64>()), 1..40)
}

fn counts(
    limiter: impl RateLimiter + Copy + PartialEq + core::fmt::Debug,
    steps: &Steps,
) -> Result<(), TestCaseError> {
    keeps_the_contract(limiter, steps, |state, now, number| match number % 4 {
        0 => limiter.charge(state, now, number % 5),
        _ => {
            let _ = limiter.decide(state, now, 1 + number % limiter.capacity());
        }
    })
}

fn id(number: u64) -> Id {
    Id([number / 16 % 5, 0])
}

proptest! {
    #[test]
    fn limiters_of_rates(steps in steps()) {
        let rate = Rate::new(3, Micros(10_000_000)).unwrap();
        counts(bucket::Config::new(5, rate).unwrap(), &steps)?;
        let window = fixed::Config::new(5, Micros(10_000_000)).unwrap();
        counts(window, &steps)?;
        counts(window.starting_at_first(), &steps)?;
        let boundaries: Vec<u64> = (1..100).map(|each| each * 4_000_000 + each % 3 * 999).collect();
        counts(listed(5, &boundaries), &steps)?;
        counts(sliding::Config::new(5, Micros(9_000_000), 3).unwrap(), &steps)?;
        let windows = [(4, 9_000_000), (2, 1_000_000)];
        let windows = windows.map(|(limit, period)| log::Window { limit, period: Micros(period) });
        for denied in [log::Denied::Forgotten, log::Denied::Counted] {
            counts(log::Config::new(&windows, Micros(100), denied).unwrap(), &steps)?;
        }
    }

    #[test]
    fn limiters_that_hold(steps in steps()) {
        let span = Micros(7_000_000);
        let terms =
            Terms { most: 3, longest: span, remember: Micros::SECOND, on_expiry: OnExpiry::Charge };
        let rate = Rate::new(3, Micros(10_000_000)).unwrap();
        let bucket: hold::Config = hold::Config::new(bucket::Config::new(5, rate).unwrap(), terms).unwrap();
        keeps_the_contract(bucket, &steps, |state, now, number| match number % 4 {
            0 => bucket.charge(state, now, number % 5),
            1 => {
                let _ = bucket.commit(state, now, id(number), number % 9);
            }
            2 => {
                let _ = bucket.reserve(state, now, id(number), 1 + number % 3, span);
            }
            _ => {
                let _ = bucket.decide(state, now, 1 + number % 5);
            }
        })?;
    }

    #[test]
    fn limiters_of_leases(steps in steps()) {
        let places = concurrency::Config::new(4, Micros(10_000_000), 3).unwrap();
        keeps_the_contract(places, &steps, |state, now, number| {
            let _ = match number % 3 {
                0 => places.release(state, now, id(number)) == crate::lease::Held::Unknown,
                _ => places.acquire(state, now, id(number), 1 + number % 2).is_ok(),
            };
        })?;
        let owners = connections::Config::new(4, Micros(10_000_000), 3).unwrap();
        keeps_the_contract(owners, &steps, |state, now, number| {
            let _ = match number % 3 {
                0 => owners.report(state, now, id(number), number % 7).is_ok(),
                _ => owners.open(state, now, id(number), 1 + number % 2).is_ok(),
            };
        })?;
        let low = fleet::Config::new(5, 1, Micros(10_000_000), 3).unwrap();
        keeps_the_contract(low, &steps, |state, now, number| {
            let _ = low.acquire(state, now, fleet::Priority::Low, id(number), 1 + number % 2);
        })?;
        let budgets = budget::Config::new(5, Micros(10_000_000), 3).unwrap();
        keeps_the_contract(budgets, &steps, |state, now, number| {
            let _ = budgets.grant(state, now, id(number), 1 + number % 9, number % 11);
        })?;
    }

    #[test]
    fn limiters_that_shed(steps in steps()) {
        let busy = utilization::Config::new(Thresholds::DEFAULT, Timing::DEFAULT, 1).unwrap();
        keeps_the_contract(busy, &steps, |state, now, number| {
            busy.observe(state, now, Share::of(number % 101, 100));
        })?;
        let rate = Rate::new(1, Micros(1_000_000)).unwrap();
        let master = suppression::Config::new(rate, Estimator::NewestPart).unwrap();
        keeps_the_contract(master, &steps, |state, now, number| {
            let report = Report { offered_at: now, admitted: number % 9, suppressed: number % 5 };
            let offered_at = now.taken_after(state.newest(), master.period());
            master.report(state, now, Report { offered_at, ..report });
        })?;
        let reports = reporter::Config::new(rate, LocalCap::On);
        keeps_the_contract(reports, &steps, |state, now, number| {
            let _ = reports.decide(state, now, 1 + number % 3, Draw(0));
        })?;
        let terms = penalty::Terms {
            refusals: 3,
            within: Micros(9_000_000),
            duration: Micros(5_000_000),
            max: Micros(20_000_000),
            forgive_after: Micros(6_000_000),
        };
        let penalties = penalty::Config::new(terms).unwrap();
        keeps_the_contract(penalties, &steps, |state, now, number| match number % 2 {
            0 => drop(penalties.refused(state, now)),
            _ => drop(penalties.decide(state, now)),
        })?;
    }
}

/// Whether the lease is held just before its end, at its end, and after its release.
fn held<L: Leases + Copy>(
    limiter: L,
    acquire: impl Fn(&mut Owned<L>, Timestamp, Id) -> bool,
    release: impl Fn(&mut Owned<L>, Timestamp, Id) -> Held,
) {
    let (mine, others) = (Id([1, 0]), Id([0, 1]));
    let mut state = fresh(limiter);
    assert!(!limiter.holds(&state, Timestamp(0), mine), "none was acquired");
    assert!(acquire(&mut state, Timestamp(50), mine));
    let end = 50 + limiter.period().0;
    for (now, held) in [(50, true), (end - 1, true), (end, false), (end + 1, false)] {
        assert_eq!(limiter.holds(&state, Timestamp(now), mine), held, "at {now} of {end}");
        assert!(!limiter.holds(&state, Timestamp(now), others));
    }
    assert_eq!(limiter.heartbeat(&mut state, Timestamp(end - 1), mine), Held::Live { cost: 1 });
    assert!(limiter.holds(&state, Timestamp(end), mine), "renewed");
    assert_eq!(release(&mut state, Timestamp(end), mine), Held::Live { cost: 1 });
    assert!(!limiter.holds(&state, Timestamp(end), mine), "released");
}

#[test]
fn a_lease_is_held_until_its_time_to_live_has_passed() {
    let places = concurrency::Config::new(4, Micros(100), 3).unwrap();
    held(
        places,
        |state, now, id| places.acquire(state, now, id, 1).unwrap().is_allowed(),
        |state, now, id| places.release(state, now, id),
    );
    let owners = connections::Config::new(4, Micros(100), 3).unwrap();
    held(
        owners,
        |state, now, id| owners.open(state, now, id, 1).unwrap().is_allowed(),
        |state, now, id| owners.close(state, now, id, 1),
    );
    let low = fleet::Config::new(5, 1, Micros(100), 3).unwrap();
    held(
        low,
        |state, now, id| low.acquire(state, now, fleet::Priority::Low, id, 1).unwrap().is_allowed(),
        |state, now, id| low.release(state, now, id),
    );
    let mut state = fresh(low);
    assert!(low.acquire(&mut state, Timestamp(0), fleet::Priority::High, id(16), 1).is_ok());
    assert!(!low.holds(&state, Timestamp(0), id(16)), "high priority holds no lease");
}

#[test]
fn a_configuration_says_what_it_was_made_of() {
    let (span, most) = (Micros(100), 7);
    let rate = Rate::new(6, Micros(20)).unwrap();
    let bucket = bucket::Config::new(5, rate).unwrap();
    assert_eq!((bucket.capacity(), bucket.rate()), (5, (3, Micros(10))));
    assert!(!bucket.starts_empty() && bucket.starting_empty().starts_empty());
    let fixed = fixed::Config::new(5, span).unwrap();
    assert_eq!((fixed.limit(), fixed.capacity(), fixed.period()), (5, 5, span));
    assert!(!fixed.starts_at_first() && fixed.starting_at_first().starts_at_first());
    let calendar = listed(5, &[3, 10]);
    assert_eq!((calendar.limit(), calendar.capacity(), calendar.period()), (5, 5, Micros(7)));
    let sliding = sliding::Config::new(5, span, 4).unwrap();
    assert_eq!((sliding.limit(), sliding.capacity(), sliding.segments()), (5, 5, 4));
    let window = log::Window { limit: 5, period: span };
    let log = log::Config::new(&[window], Micros(9), log::Denied::Counted).unwrap();
    assert_eq!((log.limit(), log.capacity(), log.windows()), (5, 5, &[window][..]));
    assert_eq!((log.min_gap(), log.denied()), (Micros(9), log::Denied::Counted));

    let places = concurrency::Config::new(5, span, 7).unwrap();
    assert_eq!((places.capacity(), places.period(), places.max_leases()), (5, span, most));
    let owners = connections::Config::new(5, span, 7).unwrap();
    assert_eq!((owners.limit(), owners.period(), owners.max_owners()), (5, span, most));
    let budgets = budget::Config::new(5, span, 7).unwrap();
    assert_eq!((budgets.most(), budgets.period(), budgets.max_holders()), (5, span, most));
    let low = fleet::Config::new(5, 2, span, 7).unwrap();
    assert_eq!((low.capacity(), low.reserve(), low.max_leases()), (5, 2, most));

    let thresholds = Thresholds { good: Share::of(1, 10), bad: Share::of(1, 2) };
    let timing = Timing { delay: Micros(3), full: Micros(11) };
    let busy = utilization::Config::new(thresholds, timing, 4).unwrap();
    assert_eq!((busy.thresholds(), busy.timing(), busy.classes()), (thresholds, timing, 4));
    let linear = Estimator::LinearAdmitted { ramp: 3 };
    let master = suppression::Config::new(rate, linear).unwrap();
    assert_eq!((master.limit(), master.estimator()), (rate, linear));
    let reports = reporter::Config::new(rate, LocalCap::On);
    assert_eq!((reports.limit(), reports.capacity()), (rate, 1_800_000)); // 3 in 10 µs, for 6 s
}

#[test]
fn an_error_of_a_configuration_says_what_was_found_and_what_is_expected() {
    let minute = Micros(60_000_000);
    let rate = Rate::new(1, Micros(crate::MAX_QUANTITY)).unwrap();
    let thresholds = Thresholds { good: Share::of(1, 2), bad: Share::of(1, 4) };
    let most = crate::MAX_QUANTITY;
    for (error, expected) in [
        (fixed::Config::new(0, minute).unwrap_err(), std::format!("`limit`: expected 1 to {most}, found 0")),
        (
            bucket::Config::new(5, rate).unwrap_err(),
            "`capacity`: expected at most 1, because exact 64-bit arithmetic".to_string(),
        ),
        (
            sliding::Config::new(5, Micros(10), 3).unwrap_err(),
            "`segments`: expected a number that divides the period 10 µs into whole microseconds, found 3; \
             the nearest period that 3 divides is 9 µs"
                .to_string(),
        ),
        (
            utilization::Config::new(thresholds, Timing::DEFAULT, 1).unwrap_err(),
            "`good`: expected 0 < good ≤ bad < 1000000 parts per million, found good = 500000 and bad = 250000"
                .to_string(),
        ),
    ] {
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
    let full = connections::Unrecorded::OwnersFull { most: 2 }.to_string();
    assert_eq!(full, "expected at most 2 owners of connections, found another");
    let Thresholds { good, bad } = Thresholds::DEFAULT;
    assert_eq!((good.ppm(), bad.ppm()), (700_000, 800_000), "those of the source");
}

/// What a limiter of 10 units says after 3 grants of 1 unit.
#[test]
fn used_units_are_those_that_were_granted_or_charged() {
    fn check(limiter: impl RateLimiter, can_charge_ahead: bool) {
        let now = Timestamp(1_700_000_000_000_000);
        let mut state = limiter.state(vec![0; limiter.words()]).unwrap();
        let unseen = limiter.charge_ahead(&mut state, 4, Micros::ZERO);
        assert_eq!(unseen.map(|ahead| ahead.units), None);
        for _ in 0..3 {
            assert!(limiter.decide(&mut state, now, 1).unwrap().is_allowed());
        }
        assert_eq!(limiter.used(&state), 3);
        let ahead = limiter.charge_ahead(&mut state, 4, Micros::ZERO).map(|ahead| ahead.units);
        assert_eq!(ahead, can_charge_ahead.then_some(4));
        assert_eq!(limiter.used(&state), 3 + ahead.unwrap_or(0));
        limiter.charge(&mut state, now, 5);
        assert_eq!(limiter.used(&state), 8 + ahead.unwrap_or(0), "also in debt");
    }
    let span = Micros(60_000_000);
    check(bucket::Config::new(10, Rate::new(1, span).unwrap()).unwrap(), true);
    let fixed = fixed::Config::new(10, span).unwrap();
    check(fixed, true);
    check(fixed.starting_at_first(), true);
    check(sliding::Config::new(10, span, 4).unwrap(), true);
    check(listed(10, &[span.0, crate::MAX_QUANTITY]), true);
    let windows = [log::Window { limit: 10, period: span }];
    check(log::Config::new(&windows, Micros::ZERO, log::Denied::Forgotten).unwrap(), false);
}

/// The table of limiters in the head of the crate.
#[test]
fn a_state_has_the_size_that_the_docs_say() {
    let span = Micros(100);
    let rate = Rate::new(3, Micros(10)).unwrap();
    let window = [log::Window { limit: 5, period: span }];
    let terms = penalty::Terms {
        refusals: 4,
        within: span,
        duration: span,
        max: span,
        forgive_after: span,
    };
    let busy = utilization::Config::new(Thresholds::DEFAULT, Timing::DEFAULT, 1).unwrap();
    let master = suppression::Config::new(rate, Estimator::NewestPart).unwrap();
    for (words, bytes) in [
        (bucket::Config::new(5, rate).unwrap().words(), 16),
        (fixed::Config::new(5, span).unwrap().words(), 16),
        (fixed::Config::new(5, span).unwrap().starting_at_first().words(), 24),
        (listed(5, &[100]).words(), 16),
        (sliding::Config::new(5, span, 4).unwrap().words(), 24 + 8 * (4 + 1)),
        (log::Config::new(&window, Micros(0), log::Denied::Forgotten).unwrap().words(), 16 + 8 * 5),
        (penalty::Config::new(terms).unwrap().words(), 32 + 8 * (4 - 1)),
        (master.words(), 72),
        (reporter::Config::new(rate, LocalCap::On).words(), 80),
        (busy.words(), 24),
    ] {
        assert_eq!(words * 8, bytes);
    }
    for entries in [1_usize, 2, 3, 4, 5, 100, 1_000, 4_096] {
        let slots = (2 * entries).max(4).next_power_of_two();
        let least = 3 + slots / 4;
        let count = u64::try_from(entries).unwrap();
        let words = [
            concurrency::Config::new(5, span, count).unwrap().words(),
            connections::Config::new(5, span, count).unwrap().words(),
            fleet::Config::new(5, 1, span, count).unwrap().words(),
        ];
        assert_eq!(words, [least + 5 * entries; 3]);
        assert_eq!(budget::Config::new(5, span, count).unwrap().words(), least + 8 * entries);
    }
}
