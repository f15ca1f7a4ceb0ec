//! Limits that warn.

use std::format;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_core::{Decision, MAX_QUANTITY, Micros, Timestamp};

use crate::policy::Policy;

fn window(limit: u64, warn_at: &str) -> Policy {
    let limit = format!("algorithm = 'fixed_window', limit = {limit}, period = '1m'");
    Policy::parse("p", &format!("limits = [{{ {limit}, warn_at = '{warn_at}' }}]")).unwrap()
}

#[test]
fn an_answer_warns_from_the_share_on() {
    let policy = window(10, "80%");
    let limits = policy.limits();
    assert!(policy.is_soft() && limits.shadows() == 0);
    let mut words = vec![0; limits.words()];
    for (cost, allowed, warns) in [
        (7, true, false),
        (0, true, false),
        (1, true, true),
        (0, true, true),
        (3, false, true),
        (2, true, true),
    ] {
        let verdict = limits.operate(&mut words, Timestamp(1), &cost.into()).unwrap();
        assert_eq!(
            (verdict.decision.is_allowed(), limits.softness(&verdict).warns()),
            (allowed, warns),
            "{cost}"
        );
    }
    let later = limits.operate(&mut words, Timestamp(60_000_000), &0_u64.into()).unwrap();
    assert!(!limits.softness(&later).warns(), "the window has ended");
}

#[test]
fn an_answer_says_which_limit_warns() {
    let policy = "limits = [
        { name = 'a', algorithm = 'fixed_window', limit = 9, period = '1m', warn_at = '50%' },
        { name = 'b', algorithm = 'fixed_window', limit = 2, period = '1m', warn_at = '50%' },
    ]";
    let policy = Policy::parse("p", policy).unwrap();
    let limits = policy.limits();
    let mut words = vec![0; limits.words()];
    let verdict = limits.operate(&mut words, Timestamp(1), &1_u64.into()).unwrap();
    let warns: Vec<bool> = limits.softness(&verdict).each().take(2).map(|each| each.1).collect();
    assert_eq!(warns, [false, true]);
}

#[test]
fn a_share_is_exact() {
    for (limit, warn_at, least) in [
        (3, "66.6666%", 2),
        (3, "66.6667%", 3),
        (1, "0.0001%", 1),
        (7, "100%", 7),
        (1_000_001, "50%", 500_001),
        (MAX_QUANTITY, "100%", MAX_QUANTITY),
        (MAX_QUANTITY, "99.9999%", 9_007_190_247_541_737),
    ] {
        let policy = window(limit, warn_at);
        let named = policy.limits().iter().next().unwrap();
        let warns = |used: u64| {
            named.warns(&Decision::Allow { limit, remaining: limit - used, reset_after: Micros(1) })
        };
        assert_eq!((warns(least - 1), warns(least)), (false, true), "{warn_at} of {limit}");
    }
}

#[test]
fn only_limits_with_units_or_places_warn() {
    let beside = "{ algorithm = 'fixed_window', limit = 3, period = '1m' }";
    for (limit, expected) in [
        (
            "algorithm = 'suppression', rate = '9/s', warn_at = '80%'",
            "`warn_at`: expected a limit on units over time or on places, found `suppression`",
        ),
        ("algorithm = 'budget', most = 1, time = '1s', warn_at = '80%'", "found `budget`"),
        (
            "algorithm = 'fixed_window', limit = 3, period = '1m', warn_at = '0%'",
            "`warn_at`: expected more than 0%, found 0%",
        ),
        (
            "algorithm = 'fixed_window', limit = 3, period = '1m', warn_at = '101%'",
            "expected \"0%\" to \"100%\"",
        ),
        (
            "algorithm = 'fixed_window', limit = 3, period = '1m', warn_at = 0.8",
            "expected a string",
        ),
    ] {
        let text = format!("limits = [{beside}, {{ {limit} }}]");
        let error = Policy::parse("p", &text).unwrap_err().to_string();
        assert!(error.contains(expected), "{limit}: {error}");
    }
    let places = "limits = [{ algorithm = 'concurrency', capacity = 5, time_to_live = '1m', warn_at = '80%' }]";
    assert!(Policy::parse("p", places).unwrap().is_soft());
}

#[test]
fn an_override_may_change_when_its_keys_are_warned_of() {
    let policy = Policy::parse(
        "p",
        "limits = [{ algorithm = 'fixed_window', limit = 3, period = '1m', warn_at = '80%' }]\n\
         overrides = { a = { limit = 9 }, b = { warn_at = '50%' } }",
    )
    .unwrap();
    let shares = policy.overrides().iter().map(|(_, limits)| limits.iter().next().unwrap());
    let shares: Vec<_> = shares.map(|named| named.warn_at.unwrap().ppm()).collect();
    assert_eq!(shares, [800_000, 500_000]);
}

proptest! {
    #[test]
    fn a_warning_changes_no_state_and_no_decision(
        steps in proptest::collection::vec((0..2_000_u64, 0..5_u64), 1..40),
        ppm in 1..1_000_000_u32,
    ) {
        let limit = "algorithm = 'token_bucket', capacity = 4, rate = '2/ms'";
        let warn_at = format!("{}.{:04}%", ppm / 10_000, ppm % 10_000);
        let own = Policy::parse("p", &format!("limits = [{{ {limit}, warn_at = '{warn_at}' }}]")).unwrap();
        let plain = Policy::parse("p", &format!("limits = [{{ {limit} }}]")).unwrap();
        let (own, plain) = (own.limits(), plain.limits());
        prop_assert_eq!(own.records()[0].fingerprint(), plain.records()[0].fingerprint());
        prop_assert_eq!(own.parameters(), plain.parameters());
        let (mut one, mut other, mut now) = (vec![0; own.words()], vec![0; plain.words()], 1_000_000);
        for (by, cost) in steps {
            now += by;
            let said = own.operate(&mut one, Timestamp(now), &cost.into()).unwrap();
            prop_assert_eq!(&said, &plain.operate(&mut other, Timestamp(now), &cost.into()).unwrap());
            prop_assert_eq!(&one, &other);
            let used = said.limits[0].limit() - said.limits[0].remaining();
            prop_assert_eq!(own.softness(&said).warns(), used * 1_000_000 >= 4 * u64::from(ppm));
        }
    }
}
