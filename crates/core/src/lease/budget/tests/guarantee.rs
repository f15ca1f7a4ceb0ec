//! Tests of the guarantee over each kind of parent, with holders that spend, lose, repeat and
//! confuse their leases.

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::config;
use crate::lease::Id;
use crate::lease::budget::{Allowance, Refundable};
use crate::properties::fresh;
use crate::window::{fixed, sliding};
use crate::{Limiter, Micros, Rate, RateLimiter, Timestamp, bucket};

enum Parent {
    Bucket(bucket::Config, bucket::State),
    Fixed(fixed::Config, fixed::State),
    Sliding(sliding::Config, sliding::State<Vec<u64>>),
}

impl Parent {
    fn bucket(capacity: u64, units: u64, period: u64) -> Self {
        let rate = Rate::new(units, Micros(period)).unwrap();
        Self::Bucket(bucket::Config::new(capacity, rate).unwrap(), bucket::State::default())
    }

    fn fixed(limit: u64, period: u64) -> Self {
        Self::Fixed(fixed::Config::new(limit, Micros(period)).unwrap(), fixed::State::default())
    }

    fn sliding(limit: u64, segment: u64, segments: u64) -> Self {
        let config = sliding::Config::new(limit, Micros(segment * segments), segments).unwrap();
        Self::Sliding(config, config.state(vec![0; config.words()]).unwrap())
    }

    fn remaining(&self, now: Timestamp) -> u64 {
        match self {
            Self::Bucket(config, state) => config.peek(state, now, 0),
            Self::Fixed(config, state) => config.peek(state, now, 0),
            Self::Sliding(config, state) => config.peek(state, now, 0),
        }
        .unwrap()
        .remaining()
    }

    fn take(&mut self, now: Timestamp, units: u64) -> bool {
        match self {
            Self::Bucket(config, state) => config.decide(state, now, units),
            Self::Fixed(config, state) => config.decide(state, now, units),
            Self::Sliding(config, state) => config.decide(state, now, units),
        }
        .is_ok_and(|decision| decision.is_allowed())
    }

    /// Puts units back, and returns their number.
    fn refund(&mut self, refundable: Refundable) -> u64 {
        match self {
            Self::Bucket(config, state) => {
                let refund = refundable.to_bucket(config);
                config.refund(state, refund);
                refund.cost
            }
            Self::Fixed(config, state) => {
                config.refund(state, refundable.to_window());
                refundable.units
            }
            Self::Sliding(config, state) => {
                config.refund(state, refundable.to_window());
                refundable.units
            }
        }
    }

    /// The most units that the parent alone could grant from `first` to `last`, both included.
    fn most(&self, first: i128, last: i128) -> i128 {
        match self {
            Self::Bucket(config, _) => {
                let (units, period) = config.rate();
                i128::from(config.capacity())
                    + (last - first) * i128::from(units) / i128::from(period.0)
            }
            Self::Fixed(config, _) => {
                let period = i128::from(config.period().0);
                let windows = last.div_euclid(period) - first.div_euclid(period) + 1;
                windows * i128::from(config.limit())
            }
            Self::Sliding(config, _) => {
                let n = i128::try_from(config.segments()).unwrap();
                let segment = i128::from(config.period().0) / n;
                let segments = last.div_euclid(segment) - first.div_euclid(segment) + 1;
                (segments + n - 1) / n * i128::from(config.limit())
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Gives back the units that are left, and takes a new lease.
    Renew(u64),
    /// Takes a new lease. The holder forgets the rest of the last lease, but may give it back later.
    Replace(u64),
    GiveBack,
    /// Gives back the holder's n-th last lease as it was, again or late.
    Repeat(usize),
    Spend(u64),
    SpendAll,
}

/// The time and the units.
type Log = Vec<(i128, i128)>;
type Steps = Vec<(u64, usize, Step)>;

fn steps(gap: u64, most: u64) -> impl Strategy<Value = Steps> {
    let step = prop_oneof![
        6 => (1..=most).prop_map(Step::Renew),
        1 => (1..=most).prop_map(Step::Replace),
        2 => Just(Step::GiveBack),
        1 => (0..3_usize).prop_map(Step::Repeat),
        4 => (1..=most).prop_map(Step::Spend),
        4 => Just(Step::SpendAll),
    ];
    proptest::collection::vec((0..=gap, 0..4_usize, step), 1..100)
}

/// Does the steps. Then compares the units that were spent, and the units that were granted and not
/// given back, with those that the parent alone could have granted.
fn spends_at_most_what_the_parent_grants(
    mut parent: Parent,
    (most, time): (u64, u64),
    steps: Steps,
) -> Result<(), TestCaseError> {
    let budgets = config(most, time, 3);
    let mut state = fresh(budgets);
    let mut now = 1_000_u64;
    let mut allowances = [Allowance::default(); 4];
    let mut seen: [Vec<Allowance>; 4] = Default::default();
    let (mut spent, mut granted) = (Log::new(), Log::new());
    for (gap, k, step) in steps {
        now += gap;
        let (at, holder) = (Timestamp(now), Id([u64::try_from(k).unwrap(), 0]));
        let given_back = match step {
            Step::Renew(_) | Step::GiveBack => {
                let allowance = std::mem::take(&mut allowances[k]);
                seen[k].push(allowance);
                budgets.give_back(&mut state, at, holder, allowance)
            }
            Step::Repeat(n) => {
                let late = seen[k].iter().rev().nth(n).copied().unwrap_or_default();
                // a holder does not give back a lease that it still uses
                if late.granted_at == allowances[k].granted_at && allowances[k].left > 0 {
                    allowances[k] = Allowance::default();
                }
                budgets.give_back(&mut state, at, holder, late)
            }
            _ => None,
        };
        if let Some(refundable) = given_back {
            let units = i128::from(parent.refund(refundable));
            granted.push((refundable.granted_at.0.into(), -units));
        }
        match step {
            Step::Renew(wants) | Step::Replace(wants) => {
                let remaining = parent.remaining(at);
                let allowance = budgets.grant(&mut state, at, holder, wants, remaining);
                prop_assert!(allowance.left == 0 || parent.take(at, allowance.left));
                granted.push((now.into(), allowance.left.into()));
                if allowance.granted_at == at {
                    seen[k].push(std::mem::replace(&mut allowances[k], allowance));
                }
            }
            Step::Spend(_) | Step::SpendAll => {
                let units = if let Step::Spend(units) = step { units } else { allowances[k].left };
                if allowances[k].spend(at, units) {
                    spent.push((now.into(), units.into()));
                }
            }
            _ => {}
        }
    }
    granted.sort_unstable();
    for (log, earlier) in [(&spent, i128::from(time) - 1), (&granted, 0)] {
        for (k, &(first, _)) in log.iter().enumerate() {
            if k > 0 && log[k - 1].0 == first {
                continue; // the span of this time begins with its first entry
            }
            let mut total = 0;
            for (j, &(last, units)) in log.iter().enumerate().skip(k) {
                total += units;
                if log.get(j + 1).is_none_or(|next| next.0 > last) {
                    let most = parent.most(first - earlier, last);
                    prop_assert!(total <= most, "{total} > {most} from {first} to {last}");
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn over_a_bucket(
        (capacity, units, period, time) in (1..30_u64, 1..9_u64, 1..50_u64, 1..300_u64),
        steps in steps(60, 30),
    ) {
        let parent = Parent::bucket(capacity, units, period);
        spends_at_most_what_the_parent_grants(parent, (25, time), steps)?;
    }

    #[test]
    fn over_a_fixed_window(
        (limit, period, time) in (1..30_u64, 1..300_u64, 1..300_u64),
        steps in steps(60, 30),
    ) {
        let parent = Parent::fixed(limit, period);
        spends_at_most_what_the_parent_grants(parent, (25, time), steps)?;
    }

    #[test]
    fn over_a_sliding_window(
        (limit, segment, segments, time) in (1..30_u64, 1..90_u64, 1..6_u64, 1..300_u64),
        steps in steps(60, 30),
    ) {
        let parent = Parent::sliding(limit, segment, segments);
        spends_at_most_what_the_parent_grants(parent, (25, time), steps)?;
    }
}
