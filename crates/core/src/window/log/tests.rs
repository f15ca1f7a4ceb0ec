mod histories;

use std::vec;
use std::vec::Vec;

use tidegate_reference::log::Log;

use super::{Bound, Config, Denied, MAX_REMEMBERED, State, Window};
use crate::exhaustive::every_sequence;
use crate::properties::{Subject, fresh};
use crate::window::Refund;
use crate::{ConfigError, Limiter, MAX_QUANTITY, Micros, RateLimiter, Timestamp, properties};

fn config(windows: &[(u64, u64)], min_gap: u64, denied: Denied) -> Config {
    let windows: Vec<Window> =
        windows.iter().map(|&(limit, period)| Window { limit, period: Micros(period) }).collect();
    Config::new(&windows, Micros(min_gap), denied).unwrap()
}

/// A row: time, cost, (allowed, remaining, retry after, reset after).
type Row = (u64, u64, (bool, u64, u64, u64));

fn check(config: Config, rows: &[Row]) {
    let mut state = fresh(config);
    for &(now, cost, expected) in rows {
        let decision = config.decide(&mut state, Timestamp(now), cost).unwrap();
        assert_eq!(properties::tuple(decision), expected, "at {now}, cost {cost}, {state:?}");
        assert_eq!(decision.limit(), config.limit());
    }
}

impl Subject for Config {
    type Oracle = Log;
    fn oracle(self) -> Self::Oracle {
        Log::new(
            self.windows().iter().map(|window| (window.limit, window.period.0)).collect(),
            self.min_gap().0,
            self.denied() == Denied::Counted,
        )
    }
}

#[test]
fn two_rates_decide_as_worked_out_by_hand() {
    check(
        config(&[(3, 10), (2, 3)], 0, Denied::Forgotten),
        &[
            (0, 0, (true, 2, 0, 0)),
            (0, 1, (true, 1, 0, 10)),
            (1, 1, (true, 0, 0, 10)),
            (2, 1, (false, 0, 1, 9)), // the unit of 0 leaves (t − 3, t] at 3
            (3, 2, (false, 1, 7, 8)), // two more units must fit the rate of 10 µs as well
            (3, 1, (true, 0, 0, 10)),
            (9, 1, (false, 0, 1, 4)),
            (10, 1, (true, 0, 0, 10)),
            (8, 1, (false, 0, 1, 10)), // back in time: taken as at 10
            (11, 2, (false, 1, 2, 9)),
            (13, 2, (true, 0, 0, 10)),
            (2, 2, (false, 0, 10, 10)), // more than a period back is believed: 13 is now 2
            (11, 2, (false, 1, 1, 1)),
            (12, 2, (true, 0, 0, 10)),
        ],
    );
}

#[test]
fn every_sequence_equals_the_oracle() {
    let window = |(limit, period)| Window { limit, period: Micros(period) };
    for denied in [Denied::Forgotten, Denied::Counted] {
        for min_gap in [0, 2, 5] {
            for windows in [
                vec![(1, 3)],
                vec![(2, 5)],
                vec![(3, 4)],
                vec![(2, 2), (3, 6)],
                vec![(3, 2), (2, 5), (3, 7)],
            ] {
                let windows: Vec<_> = windows.into_iter().map(window).collect();
                every_sequence(Config::new(&windows, Micros(min_gap), denied).unwrap());
            }
        }
    }
}

#[test]
fn a_gap_lies_between_requests_and_not_between_the_units_of_one() {
    check(
        config(&[(10, 1_000)], 100, Denied::Forgotten),
        &[
            (0, 3, (true, 0, 0, 1_000)),
            (99, 1, (false, 0, 1, 901)),
            (100, 1, (true, 0, 0, 1_000)),
            (150, 0, (true, 0, 0, 950)),
            (200, 0, (true, 6, 0, 900)),
            (200, 7, (false, 6, 800, 900)),
        ],
    );
    // a gap longer than the period
    check(
        config(&[(3, 10)], 100, Denied::Forgotten),
        &[
            (0, 3, (true, 0, 0, 100)),
            (99, 1, (false, 0, 1, 1)),
            (100, 1, (true, 0, 0, 100)),
            (150, 2, (false, 0, 50, 50)),
        ],
    );
}

#[test]
fn counted_refusals_decide_as_worked_out_by_hand() {
    check(
        config(&[(2, 10)], 0, Denied::Counted),
        &[
            (0, 2, (true, 0, 0, 10)),
            (5, 1, (false, 0, 5, 10)), // the log holds 5 and one of the units of 0
            (9, 1, (false, 0, 6, 10)), // the log holds 9 and 5
            (14, 1, (false, 0, 5, 10)), // a request at 15 would have passed
            (18, 2, (false, 0, 10, 10)),
            (28, 2, (true, 0, 0, 10)),
        ],
    );
    check(
        config(&[(3, 10)], 4, Denied::Counted),
        &[
            (0, 1, (true, 0, 0, 10)),
            (3, 1, (false, 0, 4, 10)), // the refusal itself is g old at 7
            (7, 1, (true, 0, 0, 10)),
            (11, 2, (false, 0, 10, 10)), // one of 11, 11 and 7 may stay
            (21, 3, (true, 0, 0, 10)),
        ],
    );
}

#[test]
fn a_caller_who_never_stops_never_passes_where_refusals_count() {
    let granted = |denied| {
        let config = config(&[(2, 10)], 0, denied);
        let mut state = fresh(config);
        let times = (0..1_000).map(|i| Timestamp(i * 4));
        times.filter(|&now| config.decide(&mut state, now, 1).unwrap().is_allowed()).count()
    };
    assert_eq!(granted(Denied::Counted), 2);
    assert_eq!(granted(Denied::Forgotten), 667); // two of every three requests
}

#[test]
fn units_of_one_moment_are_alike() {
    let at = |state: &State<Vec<u64>>| state.words()[2..].to_vec();
    let config = config(&[(4, 100)], 0, Denied::Counted);
    let mut state = fresh(config);
    for (now, cost, allowed, units) in [
        (3, 1, true, [3, 0, 0, 0]),
        (5, 1, true, [5, 3, 0, 0]),
        (5, 2, true, [5, 5, 5, 3]),
        (5, 3, false, [5, 5, 5, 5]), // a refusal at the time of a grant: the newest four stay
    ] {
        let decision = config.decide(&mut state, Timestamp(now), cost).unwrap();
        assert_eq!((decision.is_allowed(), at(&state)), (allowed, units.to_vec()));
    }
    config.refund(&mut state, Refund { granted_at: Timestamp(5), cost: 3 });
    assert_eq!(state.words(), [5, 1, 5, 0, 0, 0]);
}

#[test]
fn a_refund_takes_what_was_remembered_at_that_moment() {
    let config = config(&[(5, 100)], 0, Denied::Forgotten);
    let mut state = fresh(config);
    for (now, cost) in [(10, 1), (20, 3), (30, 1)] {
        assert!(config.decide(&mut state, Timestamp(now), cost).unwrap().is_allowed());
    }
    for (granted_at, cost, words) in [
        (15, 5, [30, 5, 30, 20, 20, 20, 10]),
        (20, 2, [30, 3, 30, 20, 10, 0, 0]),
        (20, 2, [30, 2, 30, 10, 0, 0, 0]),
        (10, u64::MAX, [30, 1, 30, 0, 0, 0, 0]),
        (30, 0, [30, 1, 30, 0, 0, 0, 0]),
        (30, 1, [30, 0, 0, 0, 0, 0, 0]),
        (30, 1, [30, 0, 0, 0, 0, 0, 0]),
    ] {
        config.refund(&mut state, Refund { granted_at: Timestamp(granted_at), cost });
        assert_eq!(state.words(), words, "{cost} of {granted_at}");
    }
}

/// The state after units at these times.
fn after(config: Config, times: &[u64]) -> State<Vec<u64>> {
    let mut state = fresh(config);
    for &at in times {
        assert!(config.decide(&mut state, Timestamp(at), 1).unwrap().is_allowed(), "{at}");
    }
    state
}

#[test]
fn the_rate_with_the_least_room_determines_the_used_units() {
    let config = config(&[(10, 100), (3, 10)], 5, Denied::Forgotten);
    assert_eq!(config.used(&fresh(config)), 0);
    assert_eq!(config.used(&after(config, &[0])), 1, "the gap counts no units");
    assert_eq!(config.used(&after(config, &[0, 5])), 2);
    assert_eq!(config.used(&after(config, &[0, 10, 20, 30, 40])), 1, "5 of 10 leave room for 3");
    assert_eq!(config.used(&after(config, &[0, 10, 20, 30, 40, 50, 60, 70, 80])), 2, "9 of 10");
}

#[test]
fn a_request_is_held_by_what_makes_it_wait_longest() {
    let log = config(&[(4, 100), (3, 10)], 5, Denied::Forgotten);
    let [slow, fast] = [(4, 100), (3, 10)]
        .map(|(limit, period)| Bound::Rate(Window { limit, period: Micros(period) }));
    let held = |times: &[u64], now, cost| log.held_by(&after(log, times), Timestamp(now), cost);
    assert_eq!(held(&[], 0, 1), None);
    assert_eq!(held(&[0], 2, 1), Some((Bound::Gap, Micros(3))));
    assert_eq!(held(&[0], 5, 1), None, "the gap is over");
    assert_eq!(held(&[0], 2, 3), Some((fast, Micros(8))));
    assert_eq!(held(&[0, 5], 10, 3), Some((slow, Micros(90))));
    assert_eq!(held(&[0, 20, 40, 60], 61, 1), Some((slow, Micros(39))));
    let both = config(&[(3, 10)], 10, Denied::Forgotten);
    let wait = both.held_by(&after(both, &[0]), Timestamp(1), 3);
    assert_eq!(wait, Some((Bound::Gap, Micros(9))), "of equal waits the first one");
}

#[test]
fn units_that_are_taken_over_keep_their_times() {
    let old = config(&[(6, 100)], 0, Denied::Forgotten);
    let held = after(old, &[10, 20, 30, 40]);
    let taken = |new: Config, ratio| {
        let mut state = fresh(new);
        new.adopt(&mut state, &held, ratio);
        assert_eq!(new.accepts(&state), Ok(()));
        assert_eq!(state.newest(), Timestamp(40));
        super::units(&state).to_vec()
    };
    let config = |limit, period| config(&[(limit, period)], 0, Denied::Forgotten);
    assert_eq!(taken(config(6, 100), (1, 1)), [40, 30, 20, 10]);
    assert_eq!(taken(config(3, 100), (1, 1)), [40, 30, 20], "the newest find room");
    assert_eq!(taken(config(6, 20), (1, 1)), [40, 30], "the others are too old");
    assert_eq!(taken(config(12, 100), (2, 1)), [40, 40, 30, 30, 20, 20, 10, 10]);
    assert_eq!(taken(config(3, 100), (1, 2)), [40, 20]);
    assert_eq!(taken(config(4, 100), (2, 3)), [40, 30, 10], "2.7 units are 3");
}

#[test]
fn a_configuration_out_of_bounds_is_an_error() {
    let new = |limit, period, min_gap, windows| {
        let windows = vec![Window { limit, period: Micros(period) }; windows];
        Config::new(&windows, Micros(min_gap), Denied::Counted).map(|config| config.words())
    };
    assert_eq!(new(MAX_REMEMBERED, MAX_QUANTITY, MAX_QUANTITY, 8), Ok(1_002));
    let most = MAX_REMEMBERED;
    let too_many =
        |field, found, most| Err(ConfigError::OutOfRange { field, found, least: 1, most });
    assert_eq!(new(1_001, 1, 0, 1), too_many("limit", 1_001, most));
    assert_eq!(new(0, 1, 0, 1), too_many("limit", 0, most));
    assert_eq!(new(1, 1, 0, 0), too_many("rates", 0, 8));
    assert_eq!(new(1, 1, 0, 9), too_many("rates", 9, 8));
    assert!(new(1, 0, 0, 1).is_err());
    assert!(new(1, MAX_QUANTITY + 1, 0, 1).is_err());
    assert!(new(1, 1, MAX_QUANTITY + 1, 1).is_err());
    // more than the smallest limit never passes
    let config = config(&[(5, 100), (2, 10)], 0, Denied::Counted);
    let mut state = fresh(config);
    let error = config.decide(&mut state, Timestamp(7), 3).unwrap_err();
    assert_eq!((error.capacity, &state), (2, &fresh(config)));
}

#[test]
fn a_jump_ahead_and_back_locks_for_no_longer_than_the_period() {
    for denied in [Denied::Forgotten, Denied::Counted] {
        for min_gap in [0, 100, 2_000_000] {
            let config = config(&[(9, 500_000), (5, 1_000_000)], min_gap, denied);
            let period = config.period();
            properties::a_jump_and_back_locks_for_no_longer_than_a_period(config, period, 5);
        }
    }
}

#[test]
fn a_foreign_state_is_noticed() {
    let config = config(&[(3, 10), (2, 5)], 0, Denied::Forgotten);
    let accepts = |words: [u64; 5]| config.accepts(&config.state(words).unwrap()).is_ok();
    assert!(accepts([0; 5]));
    assert!(accepts([57, 0, 0, 0, 0]));
    assert!(accepts([57, 3, 57, 57, 48]));
    assert!(!accepts([57, 3, 57, 57, 47]), "a unit is too old to be remembered");
    assert!(!accepts([57, 3, 58, 57, 50]), "a unit is later than the newest time");
    assert!(!accepts([57, 3, 50, 57, 50]), "the units are out of order");
    assert!(!accepts([57, 2, 57, 57, 50]), "more units than the word says");
    assert!(!accepts([57, 4, 57, 57, 50]), "more units than fit");
    assert!(!accepts([57, u64::MAX, 57, 57, 50]));
    assert!(config.state([0; 4]).is_err(), "one word too few");
    assert!(config.state([0; 6]).is_err(), "one word too many");
}
