use std::vec::Vec;

use tidegate_reference::penalty::Penalty;

use super::{Config, MAX_REFUSALS, Terms};
use crate::properties::{fresh, tuple};
use crate::{ConfigError, Limiter, MAX_QUANTITY, Micros, Timestamp};

mod histories;

fn config(refusals: u64, [within, duration, max, forgive_after]: [u64; 4]) -> Config {
    Config::new(Terms {
        refusals,
        within: Micros(within),
        duration: Micros(duration),
        max: Micros(max),
        forgive_after: Micros(forgive_after),
    })
    .unwrap()
}

fn oracle(config: Config) -> Penalty {
    let terms = config.terms();
    Penalty {
        refusals: terms.refusals,
        within: terms.within.0,
        duration: terms.duration.0,
        max: terms.max.0,
        forgive_after: terms.forgive_after.0,
        ..Penalty::default()
    }
}

#[test]
fn decides_as_worked_out_by_hand() {
    // 3 refusals within 10 begin penalties of 20, then 40, then 50, which are forgiven after 30
    let config = config(3, [10, 20, 50, 30]);
    let mut state = fresh(config);
    assert_eq!(tuple(config.peek(&state, Timestamp(0),)), (true, 3, 0, 0));
    // rows: time, the penalty that a refusal begins, and the decision after it as (allowed,
    // remaining, retry after, reset after)
    for (now, begins, expected) in [
        (100, None, (true, 2, 0, 10)),
        (105, None, (true, 1, 0, 10)),
        (110, None, (true, 1, 0, 10)), // that of 100 has left (100, 110]
        (114, Some(20), (false, 0, 20, 50)),
        (133, None, (false, 0, 1, 31)), // during a penalty no refusal counts
        (134, None, (true, 2, 0, 30)),
        (130, None, (true, 1, 0, 30)), // back in time: taken as at 134
        (135, Some(40), (false, 0, 40, 70)),
        (175, None, (true, 2, 0, 30)),
        (180, None, (true, 1, 0, 25)),
        (184, Some(50), (false, 0, 50, 80)), // not 80
        (234, None, (true, 2, 0, 30)),
        (263, None, (true, 2, 0, 10)),
        (263, None, (true, 1, 0, 10)),
        (264, Some(20), (false, 0, 20, 50)), // 30 after the end of the last penalty
    ] {
        assert_eq!(config.refused(&mut state, Timestamp(now)).map(|lasts| lasts.0), begins);
        assert_eq!(tuple(config.decide(&mut state, Timestamp(now))), expected, "at {now}");
    }
    config.forgive(&mut state);
    assert_eq!(state, fresh(config));
}

#[test]
fn one_refusal_can_be_enough() {
    let config = config(1, [5, 10, 10, 0]);
    let mut state = fresh(config);
    assert_eq!(state.words().len(), 4);
    for round in 0..5 {
        let now = |after: u64| Timestamp(round * 10 + after);
        assert_eq!(tuple(config.decide(&mut state, now(0))), (true, 1, 0, 0));
        assert_eq!(config.refused(&mut state, now(0)), Some(Micros(10)));
        assert_eq!(tuple(config.decide(&mut state, now(9))), (false, 0, 1, 1));
    }
}

#[test]
fn a_penalty_ends_although_the_caller_never_stops() {
    // another limit refuses the caller whenever the penalty lets it pass
    let config = config(5, [1_000, 100, 800, 10_000]);
    let mut state = fresh(config);
    let (mut began, mut at) = (Vec::new(), Vec::new());
    for now in 0..5_000 {
        if config.decide(&mut state, Timestamp(now)).is_allowed() {
            at.push(now);
            began.extend(config.refused(&mut state, Timestamp(now)).map(|lasts| (now, lasts.0)));
        }
    }
    assert_eq!(
        began,
        [
            (4, 100),
            (108, 200),
            (312, 400),
            (716, 800),
            (1_520, 800),
            (2_324, 800),
            (3_128, 800),
            (3_932, 800),
            (4_736, 800)
        ]
    );
    assert_eq!(at.len(), 45); // five before each penalty
}

#[test]
fn the_shortest_penalty_doubles_until_it_is_the_longest() {
    let max = MAX_QUANTITY - 1;
    let config = config(1, [1, 1, max, 1]);
    let mut state = fresh(config);
    let mut now = Timestamp(7);
    for doubled in 0..60 {
        let lasts = Micros(max.min(1 << doubled));
        assert_eq!(config.refused(&mut state, now), Some(lasts), "doubled {doubled} times");
        assert_eq!(config.accepts(&state), Ok(()));
        now = now.saturating_add(lasts);
    }
}

#[test]
fn what_cannot_be_remembered_is_refused() {
    let new = |refusals, [within, duration, max, forgive_after]: [u64; 4]| {
        let [within, duration, max, forgive_after] =
            [within, duration, max, forgive_after].map(Micros);
        Config::new(Terms { refusals, within, duration, max, forgive_after })
    };
    let words = |refusals| new(refusals, [1; 4]).map(|config| config.words());
    let most = MAX_REFUSALS;
    assert_eq!(words(most), Ok(103));
    assert_eq!(
        words(0),
        Err(ConfigError::OutOfRange { field: "refusals", found: 0, least: 1, most })
    );
    assert_eq!(
        words(101),
        Err(ConfigError::OutOfRange { field: "refusals", found: 101, least: 1, most })
    );
    let out_of_range =
        |field| ConfigError::OutOfRange { field, found: 0, least: 1, most: MAX_QUANTITY };
    assert_eq!(new(1, [0, 1, 1, 1]).unwrap_err(), out_of_range("within"));
    assert_eq!(new(1, [1, 0, 1, 1]).unwrap_err(), out_of_range("duration"));
    assert_eq!(new(1, [1, 1, 0, 1]).unwrap_err(), out_of_range("max"));
    let too_small =
        ConfigError::OutOfRange { field: "max", found: 4, least: 5, most: MAX_QUANTITY };
    assert_eq!(new(1, [1, 5, 4, 1]).unwrap_err(), too_small);
    let Err(ConfigError::ScaleTooFine { field: "forgive_after", nearest, .. }) =
        new(1, [1, 5, 10, MAX_QUANTITY])
    else {
        panic!("it would be remembered for more than 285 years");
    };
    assert!(new(1, [1, 5, 10, nearest]).is_ok());
    assert!(new(1, [1, 5, 10, nearest + 1]).is_err());
    assert!(new(1, [MAX_QUANTITY, 1, MAX_QUANTITY, 0]).is_ok());
}

#[test]
fn a_jump_ahead_and_back_refuses_for_no_longer_than_the_penalty() {
    let config = config(2, [1_000, 100, 400, 5_000]);
    let sane = Timestamp(1_000_000);
    let period = config.period();
    assert_eq!(period, Micros(5_400));
    for ahead in [period.0 + 1, 1 << 40, u64::MAX - sane.0] {
        let mut state = fresh(config);
        let jumped = sane.saturating_add(Micros(ahead));
        assert_eq!(config.refused(&mut state, jumped), None);
        assert_eq!(config.refused(&mut state, jumped), Some(Micros(100)));
        assert_eq!(tuple(config.decide(&mut state, jumped)), (false, 0, 100, 5_100));
        assert_eq!(tuple(config.decide(&mut state, sane)), (false, 0, 100, 5_100));
        assert!(config.decide(&mut state, Timestamp(sane.0 + 100)).is_allowed());
    }
    // back by no more than a period: time stands still up to there
    let mut state = fresh(config);
    let jumped = sane.saturating_add(period);
    assert_eq!(config.refused(&mut state, jumped), None);
    assert_eq!(config.refused(&mut state, jumped), Some(Micros(100)));
    assert_eq!(tuple(config.decide(&mut state, sane)), (false, 0, 100, 5_100));
    assert_eq!(tuple(config.decide(&mut state, jumped)), (false, 0, 100, 5_100));
    assert!(config.decide(&mut state, Timestamp(jumped.0 + 100)).is_allowed());
    // a penalty that is over stays over, also when the clock comes back to 0
    assert_eq!(tuple(config.decide(&mut state, Timestamp(3))), (true, 2, 0, 5_000));
}

#[test]
fn a_foreign_state_is_noticed() {
    // two penalties in a row last 20 and 25, and are forgiven after 30
    let config = config(3, [10, 20, 25, 30]);
    let accepts = |words: [u64; 6]| config.accepts(&config.state(words).unwrap()).is_ok();
    assert!(accepts([0; 6]));
    assert!(accepts([0, 0, 57, 2, 57, 48]));
    assert!(!accepts([0, 0, 57, 2, 57, 47]), "too old to be remembered");
    assert!(!accepts([0, 0, 57, 1, 57, 48]), "more than it says");
    assert!(!accepts([0, 1, 57, 0, 0, 0]), "forgiven, and still in a row");
    assert!(!accepts([1, 0, 57, 0, 0, 0]), "not forgiven, and none in a row");
    assert!(accepts([50, 1, 57, 0, 0, 0]));
    assert!(!accepts([51, 1, 57, 0, 0, 0]), "longer than the first");
    assert!(accepts([55, 2, 57, 0, 0, 0]));
    assert!(!accepts([56, 2, 57, 0, 0, 0]), "longer than any");
    assert!(!accepts([50, 3, 57, 0, 0, 0]), "counted no further");
    assert!(!accepts([u64::MAX, u64::MAX, 57, 0, 0, 0]));
    assert!(!accepts([31, 1, 57, 1, 57, 0]), "nothing counts while a penalty lasts");
    assert!(accepts([25, 1, 57, 1, 52, 0]));
    assert!(!accepts([25, 1, 57, 1, 51, 0]), "counted before the penalty ended");
    assert!(config.state([0; 5]).is_err(), "a word short");
    assert!(config.state([0; 7]).is_err(), "a word over");
}
