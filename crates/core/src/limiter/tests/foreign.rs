//! What limiters do with a state that another limiter wrote.

use std::vec;

use super::Owned;
use crate::lease::{Id, budget, concurrency, connections};
use crate::properties::{fresh, listed};
use crate::shed::penalty;
use crate::window::{fixed, log, sliding};
use crate::{InvalidState, Limiter, Micros, RateLimiter, State, Timestamp};

/// A state of another limiter: its words are one too few, one too many, or none.
fn of_others<L: Limiter>(limiter: L) -> [Owned<L>; 3] {
    let words = limiter.words();
    [0, words - 1, words + 1].map(|words| State::over(vec![0; words]))
}

#[test]
fn a_state_of_another_limiter_grants_nothing() {
    const NOW: Timestamp = Timestamp(1_700_000_000_000_000);
    fn refuses(limiter: impl RateLimiter + Copy) {
        for mut state in of_others(limiter) {
            assert!(limiter.decide(&mut state, NOW, 1).is_err(), "{} words", state.words().len());
            assert!(limiter.peek(&state, NOW, 1).is_err());
        }
    }
    let (minute, id) = (Micros(60_000_000), Id([7, 42]));
    refuses(fixed::Config::new(5, minute).unwrap().starting_at_first());
    refuses(fixed::Config::new(5, minute).unwrap());
    refuses(listed(5, &[minute.0]));
    refuses(sliding::Config::new(5, minute, 4).unwrap());
    refuses(
        log::Config::new(
            &[log::Window { limit: 5, period: minute }],
            Micros::ZERO,
            log::Denied::Forgotten,
        )
        .unwrap(),
    );
    let places = concurrency::Config::new(5, minute, 4).unwrap();
    for mut state in of_others(places) {
        assert!(
            places.acquire(&mut state, NOW, id, 1).is_err() && places.peek(&state, NOW, 1).is_err()
        );
    }
    let connections = connections::Config::new(5, minute, 4).unwrap();
    for mut state in of_others(connections) {
        assert!(connections.open(&mut state, NOW, id, 1).is_err());
        assert!(connections.peek(&state, NOW, id, 1).is_err());
    }
    let budget = budget::Config::new(5, minute, 4).unwrap();
    for mut state in of_others(budget) {
        assert_eq!(budget.grant(&mut state, NOW, id, 5, 5).left, 0);
    }
}

#[test]
fn the_two_states_of_a_fixed_window_are_not_one_another() {
    let first = fixed::Config::new(5, Micros(60_000_000)).unwrap().starting_at_first();
    let mut state = fixed::State::default(); // two words, as aligned windows have them
    let granted = |second: u64| {
        first
            .decide(&mut state, Timestamp(second * 1_000_000), 1)
            .is_ok_and(|said| said.is_allowed())
    };
    assert_eq!((0..200).map(granted).filter(|granted| *granted).count(), 0);
}

#[test]
fn a_state_of_another_limiter_is_not_accepted() {
    fn check(limiter: impl Limiter + Copy) {
        assert_eq!(limiter.accepts(&fresh(limiter)), Ok(()));
        for state in of_others(limiter) {
            assert_eq!(limiter.accepts(&state), Err(InvalidState), "{} words", state.words().len());
        }
    }
    let minute = Micros(60_000_000);
    let fixed = fixed::Config::new(5, minute).unwrap();
    check(fixed);
    check(fixed.starting_at_first());
    let calendar = listed(5, &[minute.0]);
    check(calendar);
    for count in [10, 11] {
        let accepted = calendar.accepts(&calendar.state(vec![count, 1]).unwrap());
        assert_eq!(accepted.is_ok(), count <= 10, "a debt of at most the limit");
    }
    check(sliding::Config::new(5, minute, 4).unwrap());
    let windows = [log::Window { limit: 5, period: minute }];
    check(log::Config::new(&windows, Micros::ZERO, log::Denied::Forgotten).unwrap());
    check(
        penalty::Config::new(penalty::Terms {
            refusals: 3,
            within: minute,
            duration: minute,
            max: minute,
            forgive_after: minute,
        })
        .unwrap(),
    );
    check(concurrency::Config::new(5, minute, 4).unwrap());
    check(budget::Config::new(5, minute, 4).unwrap());
}

#[test]
fn a_fixed_window_forgets_no_count_of_a_state_of_another_window() {
    const NOW: Timestamp = Timestamp(1_700_000_000_000_000);
    let aligned = fixed::Config::new(5, Micros(60_000_000)).unwrap();
    let first = aligned.starting_at_first();
    let mut state = fixed::State::default(); // two words, as aligned windows have them
    assert!(aligned.decide(&mut state, NOW, 5).unwrap().is_allowed());
    assert!(first.expires_at(&state) > NOW);
    first.advance(&mut state, NOW);
    assert_eq!((first.used(&state), aligned.used(&state)), (u64::MAX, 5)); // not known, so more than any limit
}

#[test]
fn connections_in_a_state_of_another_limiter_are_not_reported_as_recorded() {
    let connections = connections::Config::new(5, Micros(60_000_000), 4).unwrap();
    for mut state in of_others(connections) {
        let recorded = connections.report(&mut state, Timestamp(1), Id([7, 42]), 2);
        assert!(recorded.is_err(), "{} words", state.words().len());
    }
}
