//! The words that a limiter that holds accepts.

use std::vec;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{Config, START, TERMS, remaining, tokens};
use crate::hold::Counter;
use crate::lease::Id;
use crate::window::{fixed, sliding};
use crate::{Limiter, Micros, Rate, Timestamp, bucket};

/// A list that counts more holds than it has room for is broken. It must not read as one without holds.
#[test]
fn a_broken_list_refuses() {
    let config = tokens(100);
    let counted = 3; // the newest time, and the words of the bucket
    let most = TERMS.most;
    for (live, ended) in [(most + 1, 0), (0, most + 1), (3, most - 2), (u64::MAX, 0), (u64::MAX, 1)]
    {
        let mut words = vec![0; config.words()];
        words[counted..counted + 2].copy_from_slice(&[live, ended]);
        let mut state = config.state(&mut words[..]).unwrap();
        let now = Timestamp(START);
        assert!(config.accepts(&state).is_err(), "{live} and {ended}");
        assert!(config.decide(&mut state, now, 0).is_err(), "{live} and {ended}");
        let said = config.reserve(&mut state, now, Id([0, 1]), 1, Micros::SECOND);
        assert!(said.is_err(), "{live} and {ended}");
        config.charge(&mut state, now, 1);
        assert_eq!(config.held(&state), u64::MAX);
        assert_eq!(state.words()[1..counted], [0, 0], "nothing was taken");
    }
    let mut words = vec![0; config.words()];
    words[counted] = most; // live holds that have expired
    let mut state = config.state(&mut words[..]).unwrap();
    assert_eq!(remaining(&config, &mut state, 0), 100);
}

#[test]
fn a_window_knows_nothing_of_the_time_before_its_holds() {
    let window = fixed::Config::new(10, Micros::SECOND).unwrap();
    let config = Config::new(window, TERMS).unwrap();
    let mut state = config.state(vec![0; config.words()]).unwrap();
    let _ = config.decide(&mut state, Timestamp(START), 2);
    let _ = config.reserve(&mut state, Timestamp(START), Id([0, 1]), 3, Micros::SECOND);
    assert_eq!(state.words()[3..7], [1, 0, START + 1_000_000, 0], "live, ended, next end, before");
}

/// Each word that no operation can have written is noticed.
#[test]
fn a_foreign_list_is_noticed() {
    let config = tokens(100);
    let mut state = config.state(vec![0; config.words()]).unwrap();
    for id in [1, 2, 3] {
        let _ = config.reserve(&mut state, Timestamp(START), Id([0, id]), 5, Micros::SECOND);
    }
    let _ = config.commit(&mut state, Timestamp(START + 1), Id([0, 1]), 5);
    assert_eq!(config.accepts(&state), Ok(()));
    let (next, before, first, second) = (5, 6, 7, 15);
    let (units, granted_at, until) = (first + 2, first + 3, first + 4);
    let last = config.words() - 1;
    let end = START + 1_000_000;
    for (place, word, is_accepted) in [
        (units, crate::MAX_QUANTITY, true),
        (units, crate::MAX_QUANTITY + 1, false),
        (granted_at, START - 1, true),
        (granted_at, START + 1, false), // after the second one
        (second + 3, START + 1, true),
        (second + 3, START + 2, false), // after the newest time
        (until, START + 6_000_000, true),
        (until, START + 6_000_001, false), // after the longest time
        (until, end - 1, false),           // before the next end
        (until, u64::MAX, false),
        (next, START + 1, false),
        (next, START + 2, true), // no later than what ends next
        (next, end + 1, false),
        (next, u64::MAX, false),
        (before, 7, true),
        (second + 8, 1, false), // behind the holds
        (last, end, true),
        (last, end - 1, false), // forgotten before the next end
        (last, START + 1, false),
        (last, u64::MAX, true), // no time lies after it
    ] {
        let mut words = state.words().to_vec();
        words[place] = word;
        let accepted = config.accepts(&config.state(words).unwrap()).is_ok();
        assert_eq!(accepted, is_accepted, "{word} at {place}");
    }
    let mut words = state.words().to_vec();
    (words[3], words[before]) = (0, 7); // no hold is live
    words[first..second + 8].fill(0);
    assert!(config.accepts(&config.state(words.clone()).unwrap()).is_err());
    words[before] = 0;
    assert_eq!(config.accepts(&config.state(words).unwrap()), Ok(()));
}

/// The words of a key with holds, some of them changed, are refused, or lead to no state that is refused.
fn accepted_words_stay_accepted<L: Into<Counter> + Copy>(
    limiter: L,
    changes: &[(usize, u64)],
) -> Result<(), TestCaseError> {
    let config = Config::new(limiter, TERMS).unwrap();
    let mut words = vec![0; config.words()];
    let mut state = config.state(&mut words[..]).unwrap();
    for id in 0..4 {
        let _ = config.reserve(&mut state, Timestamp(START + id), Id([0, id]), 2, Micros::SECOND);
        config.charge(&mut state, Timestamp(START + id), 1);
    }
    let _ = config.commit(&mut state, Timestamp(START + 9), Id([0, 1]), 5);
    for &(place, change) in changes {
        let place = place % words.len();
        words[place] ^= change;
    }
    let mut state = config.state(&mut words[..]).unwrap();
    if config.accepts(&state).is_err() {
        return Ok(());
    }
    for later in 0..40 {
        let now = Timestamp(START + later * 100_000);
        let _ = config.commit(&mut state, now, Id([0, later % 5]), later);
        let _ = config.reserve(&mut state, now, Id([1, later]), 1, Micros::SECOND);
        let _ = config.decide(&mut state, now, 1);
        prop_assert_eq!(config.accepts(&state), Ok(()), "{:?}", state.words());
    }
    Ok(())
}

proptest! {
    #[test]
    fn stored_words_are_refused_or_lead_to_states_that_are_accepted(
        changes in proptest::collection::vec((0..200_usize, prop_oneof![0..4_u64, any::<u64>()]), 0..3)
    ) {
        let bucket = bucket::Config::new(20, Rate::new(3, Micros::SECOND).unwrap()).unwrap();
        accepted_words_stay_accepted(bucket, &changes)?;
        let window = sliding::Config::new(20, Micros(5_000_000), 5).unwrap();
        accepted_words_stay_accepted(window, &changes)?;
    }
}
