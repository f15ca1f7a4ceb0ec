//! Tests of the findings of "Building a distributed rate limiter that scales horizontally" (Ably)
//! and of the trajectory of "Scaling your API with rate limiters" (Stripe). They compare golden
//! tables and check properties of them. All rates are means over 2 s in thousandths of the limit.
#![expect(clippy::unwrap_used, reason = "a failed unwrap ends its test")]

use std::fs;
use std::path::Path;

use tidegate_core::Micros;
use tidegate_core::shed::reporter::LocalCap;
use tidegate_core::shed::suppression::Estimator;
use tidegate_sim::suppression::{Scenario, run};
use tidegate_sim::table::{self, Row, Table};

fn golden(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    fs::read_to_string(folder.join(name)).unwrap()
}

/// The rate that an estimator admitted in each row.
fn admitted(table: &Table, name: &str) -> Vec<(i64, u64)> {
    let column = table.names.iter().position(|column| *column == name).unwrap();
    table.rows.iter().map(|row| (row.second, row.admitted[column])).collect()
}

/// The first second from which all rates are within 5 % of the limit, up to the end of the load.
fn settled_from(admitted: &[(i64, u64)]) -> i64 {
    let loaded = admitted.iter().filter(|row| (0..96).contains(&row.0));
    let outside = |row: &&(i64, u64)| !(950..=1_050).contains(&row.1);
    loaded.filter(outside).map(|row| row.0 + 2).max().unwrap_or(0)
}

#[test]
fn a_new_run_equals_the_golden_tables() {
    assert_eq!(table::step().unwrap().csv(), golden("suppression.csv"));
    assert_eq!(table::local_cap().unwrap().csv(), golden("local_cap.csv"));
    assert_eq!(table::utilization_csv().unwrap(), golden("utilization.csv"));
}

#[test]
fn on_the_admitted_rate_it_swings_between_nothing_and_everything_every_24_seconds() {
    let swing = admitted(&table::step().unwrap(), "linear_admitted");
    // the times at which admission rises from nothing
    let mut rises = Vec::new();
    for pair in swing.windows(2) {
        if pair[0].1 < 100 && pair[1].1 >= 1_000 && pair[1].0 < 96 {
            rises.push(pair[1].0);
        }
    }
    assert!(rises.len() >= 4, "{rises:?}");
    for pair in rises.windows(2) {
        assert!((20..=28).contains(&(pair[1] - pair[0])), "{rises:?}");
    }
    let most = swing.iter().filter(|row| row.0 >= 20).map(|row| row.1).max().unwrap();
    assert!(most > 9_000, "{most}");
}

#[test]
fn on_the_offered_rate_it_settles_at_the_limit() {
    let table = table::step().unwrap();
    let mean = admitted(&table, "modified_mean");
    assert!(settled_from(&mean) <= 28, "{}", settled_from(&mean));
    for pair in mean.iter().filter(|row| (0..22).contains(&row.0)).collect::<Vec<_>>().windows(2) {
        assert!(pair[1].1 <= pair[0].1 + 20, "the rate falls, except by chance: {pair:?}");
    }
    let newest = admitted(&table, "newest_part");
    assert!(settled_from(&newest) <= 10, "{}", settled_from(&newest));
}

/// The step may come anywhere in a part of 6 s, and with any seed.
#[test]
fn the_default_settles_soon_wherever_in_a_part_the_step_comes() {
    for into_part in 0..6 {
        for seed in 2..5 {
            let scenario = Scenario {
                seed,
                into_part: Micros(into_part * 1_000_000),
                ..Scenario::step(Estimator::NewestPart)
            };
            let seconds = run(&scenario).unwrap();
            for (second, pair) in (0..48).map(|row| (2 * row, &seconds[12 + 2 * row..][..2])) {
                let rate = (pair[0].admitted + pair[1].admitted) / 20;
                let in_time = if into_part == 0 { 10 } else { 14 };
                assert!(
                    second < in_time || (940..=1_060).contains(&rate),
                    "step {into_part} s into a part, seed {seed}: {rate} at {second} s"
                );
            }
        }
    }
}

#[test]
fn after_the_load_nothing_overshoots_and_suppression_ends() {
    let table = table::step().unwrap();
    let after = |row: &&Row| row.second >= 98;
    for (column, name) in table.names.iter().enumerate() {
        for row in table.rows.iter().filter(after) {
            assert!(row.admitted[column] <= 1_000, "{name} at {} s", row.second);
        }
        let free = |row: &&Row| row.second >= 122;
        for row in table.rows.iter().filter(free) {
            assert_eq!(row.admitted[column], row.offered, "{name} at {} s", row.second);
        }
    }
}

/// Until the first report has reached the master and the reply has come back, only the caps refuse.
#[test]
fn with_caps_the_first_seconds_are_bounded_by_the_reporters_that_alone_exceed_the_limit() {
    let units = |cap| -> u64 {
        let seconds = run(&Scenario::two_hot_reporters(cap)).unwrap();
        seconds[12..18].iter().map(|second| second.admitted).sum()
    };
    let part = 6 * 10_000;
    assert!(units(LocalCap::On) <= 2 * part, "{}", units(LocalCap::On));
    assert!(units(LocalCap::Off) > 2 * part, "{}", units(LocalCap::Off));
}

#[test]
fn an_account_within_its_limit_in_every_part_is_never_suppressed() {
    for estimator in [Estimator::ModifiedMean, Estimator::NewestPart] {
        let seconds = run(&Scenario::just_within(estimator)).unwrap();
        let offered: u64 = seconds.iter().map(|second| second.offered).sum();
        assert!(offered > 3_600 * 300 * 97 / 100, "{offered} is too far below the limit");
        for (at, second) in seconds.iter().enumerate() {
            assert_eq!((second.suppressed, second.capped), (0, 0), "{estimator:?} at {at} s");
        }
    }
}
