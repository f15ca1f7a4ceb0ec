//! Calls with limits that differ from call to call.

use std::format;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_core::{Micros, Timestamp};

use super::{Called, FIVE, NOW, limits, of, policy};

const SECOND: u64 = 1_000_000;

/// The grants of `first` and `second`, asked in turns once a second for ten minutes.
fn in_turns(first: &str, second: &str) -> [u64; 2] {
    let mut called = Called::new(&limits([first]));
    let mut granted = [0; 2];
    for second_of in 0..600 {
        let now = Timestamp((1_888_889 * 900 + second_of) * SECOND); // a window of 15 minutes begins
        let second = called.under(&limits([second]));
        for (granted, policy) in granted.iter_mut().zip([Arc::clone(&called.policy), second]) {
            let said = called.table.decide(&policy, "k", now, 1).unwrap();
            *granted += u64::from(said.is_allowed());
        }
    }
    granted
}

#[test]
fn a_strict_limit_in_turns_with_a_loose_one_grants_what_it_grants_alone() {
    let loose = r#"{"algorithm":"fixed_window","limit":100,"period":"1s"}"#;
    for (strict, alone) in [
        (r#"{"algorithm":"fixed_window","limit":5,"period":"15m"}"#, 5),
        (r#"{"algorithm":"token_bucket","capacity":5,"rate":"5/15m"}"#, 8),
        (r#"{"algorithm":"sliding_window","limit":5,"period":"15m"}"#, 5),
    ] {
        for name in ["", r#","name":"x""#] {
            let named = |limit: &str| limit.replace('}', &format!("{name}}}"));
            let (strict, loose) = (named(strict), named(loose));
            assert_eq!(in_turns(&loose, &strict), [600, alone], "{strict}");
            assert_eq!(in_turns(&strict, &loose), [alone, 600], "{strict}");
        }
    }
}

/// Limits of several algorithms, some of which share a count.
const POOL: [&str; 11] = [
    r#"{"algorithm":"fixed_window","limit":2,"period":"15s"}"#,
    r#"{"algorithm":"fixed_window","limit":9,"period":"15s"}"#,
    r#"{"algorithm":"fixed_window","limit":9,"period":"1s"}"#,
    r#"{"algorithm":"fixed_window","name":"x","limit":3,"period":"15s","start":"first"}"#,
    r#"{"algorithm":"sliding_window","limit":4,"period":"6s","segments":3}"#,
    r#"{"algorithm":"sliding_window","limit":9,"period":"6s","segments":3}"#,
    r#"{"algorithm":"token_bucket","capacity":2,"rate":"2/9s"}"#,
    r#"{"algorithm":"token_bucket","capacity":7,"rate":"7/9s"}"#,
    r#"{"algorithm":"token_bucket","name":"y","capacity":3,"rate":"1/s"}"#,
    r#"{"algorithm":"sliding_log","rates":["3/7s"]}"#,
    r#"{"algorithm":"sliding_log","rates":["5/7s"]}"#,
];

/// The one whose windows begin with a grant. Beside other limits it grants later, so that its windows end elsewhere, and in all
/// it may grant more than alone; in none of its windows it may grant more than its 3 units.
const FROM_FIRST: usize = 3;

/// The most grants in one of the windows of 15 s that begin with the first grant after the one before.
fn most_in_a_window(times: &[Timestamp]) -> usize {
    let mut windows: Vec<(Timestamp, usize)> = Vec::new();
    for &time in times {
        match windows.last_mut().filter(|(began, _)| time.saturating_since(*began).0 < 15_000_000) {
            Some((_, granted)) => *granted += 1,
            None => windows.push((time, 1)),
        }
    }
    windows.into_iter().map(|(_, granted)| granted).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn in_any_order_of_calls_each_limit_grants_at_most_what_it_grants_alone(
        own in 0..POOL.len(),
        steps in proptest::collection::vec(
            (0..4_000_000_u64, proptest::collection::hash_set(0..POOL.len(), 0..4)),
            1..80,
        ),
    ) {
        let mut called = Called::new(&limits([POOL[own]]));
        let mut alone = POOL.map(|limit| Called::new(&limits([limit])));
        let mut granted = [[0; POOL.len()]; 2];
        let mut from_first = Vec::new();
        let mut now = NOW;
        for (later, chosen) in steps {
            now = now.saturating_add(Micros(later));
            let text = if chosen.is_empty() { String::new() } else { limits(chosen.iter().map(|place| POOL[*place])) };
            let policy = called.under(&text);
            let passes = called.table.decide(&policy, "k", now, 1).unwrap().is_allowed();
            for place in if chosen.is_empty() { [own].into() } else { chosen } {
                let Called { table, policy, .. } = &mut alone[place];
                from_first.extend((passes && place == FROM_FIRST).then_some(now));
                granted[0][place] += u64::from(passes);
                granted[1][place] += u64::from(table.decide(policy, "k", now, 1).unwrap().is_allowed());
            }
            prop_assert!(most_in_a_window(&from_first) <= 3, "{from_first:?}");
            for place in (0..POOL.len()).filter(|place| *place != FROM_FIRST) {
                prop_assert!(granted[0][place] <= granted[1][place], "{}: {granted:?}", POOL[place]);
            }
        }
    }

    #[test]
    fn a_window_counts_every_unit_once_however_its_limit_changes(
        steps in proptest::collection::vec((0..=9_u64, 0..=4_u64), 1..60),
    ) {
        let mut called = Called::new(FIVE);
        let text = |limit: u64| if limit == 0 { String::new() } else { of(limit) };
        let mut used = 0;
        for (choice, cost) in steps {
            let limit = if choice == 0 { 5 } else { choice };
            let cost = cost.min(limit);
            let (allowed, remaining) = called.ask(&text(choice), cost);
            let fits = cost == 0 || used + cost <= limit;
            prop_assert_eq!(allowed, fits);
            used += if fits { cost } else { 0 };
            prop_assert_eq!(remaining, limit.saturating_sub(used));
        }
        let dump = called.table.dump(&called.policy, &called.call_limits).unwrap();
        let (table, call_limits, policy) = called.table.restored(&policy(FIVE), &dump).unwrap();
        let mut restored = Called { table, call_limits, policy };
        for limit in 0..=9 {
            prop_assert_eq!(restored.ask(&text(limit), 0), called.ask(&text(limit), 0));
        }
    }
}
