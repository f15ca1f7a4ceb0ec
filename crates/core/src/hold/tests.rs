//! What must hold of a limiter that holds, whatever it counts.

mod edit;
mod refund;
mod replay;
mod stored;

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use self::replay::{Step, equals_the_replay};
use super::{Committed, Known, MAX_HOLDS, OnExpiry, Reserved, Terms};
use crate::lease::Id;
use crate::window::{Refund, calendar, fixed, log, sliding};
use crate::{Limiter, Micros, Rate, RateLimiter, Timestamp, bucket};

type Config = super::Config;

const START: u64 = 1_700_000_000_000_000;

const TERMS: Terms = Terms {
    most: 5,
    longest: Micros(6_000_000),
    remember: Micros(3_000_000),
    on_expiry: OnExpiry::Release,
};

/// Boundaries of windows that differ in length. The last window does not end.
const MONTHS: &[Timestamp] = &[
    Timestamp(START - 1),
    Timestamp(START + 4_000_000),
    Timestamp(START + 5_000_000),
    Timestamp(START + 12_000_000),
];

fn steps(most: u64, overrun: u64) -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        4 => (1..=most).prop_map(|cost| Step::Decide { cost }),
        1 => (1..=most).prop_map(move |cost| Step::Charge { cost: cost.div_ceil(overrun.max(1) * 4) * overrun.min(1) }),
        6 => (0..8_u64, 1..=most, 1..9_000_000_u64).prop_map(|(id, cost, span)| Step::Reserve { id, cost, span }),
        5 => (0..8_u64, 0..=most + overrun).prop_map(|(id, actual)| Step::Commit { id, actual }),
    ];
    proptest::collection::vec((prop_oneof![Just(0), 0..2_000_000_u64], step), 1..60)
}

fn terms() -> impl Strategy<Value = Terms> {
    let on_expiry = prop_oneof![Just(OnExpiry::Release), Just(OnExpiry::Charge)];
    (1..8_u64, on_expiry).prop_map(|(most, on_expiry)| Terms { most, on_expiry, ..TERMS })
}

/// Every sequence of five steps, for each of three small limits.
#[test]
fn equals_the_replay_in_every_short_history() {
    let (first, second) = (0, 1);
    let steps = [
        (0, Step::Decide { cost: 1 }),
        (700_000, Step::Decide { cost: 2 }),
        (0, Step::Reserve { id: first, cost: 2, span: 1_500_000 }),
        (700_000, Step::Reserve { id: second, cost: 1, span: 9_000_000 }),
        (700_000, Step::Commit { id: first, actual: 0 }),
        (0, Step::Commit { id: first, actual: 3 }),
        (700_000, Step::Commit { id: second, actual: 4 }),
    ];
    let bucket = bucket::Config::new(3, Rate::new(1, Micros::SECOND).unwrap()).unwrap();
    let window = sliding::Config::new(3, Micros(2_000_000), 2).unwrap();
    let log = log::Window { limit: 3, period: Micros(2_000_000) };
    let log = log::Config::new(&[log], Micros::ZERO, log::Denied::Forgotten).unwrap();
    for number in 0..7_usize.pow(5) {
        let history = [0, 1, 2, 3, 4].map(|place| steps[number / 7_usize.pow(place) % 7]);
        let terms = Terms { most: 2, remember: Micros::SECOND, ..TERMS };
        equals_the_replay(bucket, terms, &history, false).unwrap();
        equals_the_replay(window, terms, &history, false).unwrap();
        equals_the_replay(log, terms, &history, false).unwrap();
    }
}

fn tokens(capacity: u64) -> Config {
    let rate = Rate::new(capacity, Micros(60_000_000)).unwrap();
    Config::new(bucket::Config::new(capacity, rate).unwrap(), TERMS).unwrap()
}

fn remaining<W: AsRef<[u64]> + AsMut<[u64]>>(
    config: &Config,
    state: &mut super::State<W>,
    now: u64,
) -> u64 {
    config.decide(state, Timestamp(START + now), 0).unwrap().remaining()
}

#[test]
fn two_grants_of_which_one_comes_back_leave_what_the_other_used() {
    // 50 and 50 of 100; one is released after 24 s, in which 40 flow in
    let config = tokens(100);
    let mut state = config.state(vec![0; config.words()]).unwrap();
    for id in [1, 2] {
        let said =
            config.reserve(&mut state, Timestamp(START), Id([0, id]), 50, Micros(60_000_000));
        assert!(matches!(said, Ok(Reserved::Decided(decision)) if decision.is_allowed()));
    }
    let released = config.commit(&mut state, Timestamp(START + 5_000_000), Id([0, 1]), 0);
    assert_eq!(released, Committed { charged: 0, late: false });
    assert_eq!(remaining(&config, &mut state, 5_000_000), 58); // 50 were used, 8 ⅓ have come back
}

#[test]
fn a_hold_ends_by_itself_and_a_late_commit_says_so() {
    for (on_expiry, after, charged, left) in
        [(OnExpiry::Release, 60, 20, 40), (OnExpiry::Charge, 16, 50, 16)]
    {
        let plain = bucket::Config::new(60, Rate::new(1, Micros(1_000_000)).unwrap()).unwrap();
        let config = Config::new(plain, Terms { on_expiry, ..TERMS }).unwrap();
        let mut state = config.state(vec![0; config.words()]).unwrap();
        let id = Id([7, 7]);
        let said = config.reserve(&mut state, Timestamp(START), id, 50, Micros(6_000_000)).unwrap();
        assert!(matches!(said, Reserved::Decided(decision) if decision.remaining() == 10));
        assert_eq!(config.find(&state, id), Some((50, Timestamp(START + 6_000_000))));
        let _ = remaining(&config, &mut state, 5_999_999);
        assert!(config.find(&state, id).is_some());
        config.advance(&mut state, Timestamp(START + 6_000_000));
        assert_eq!(config.find(&state, id), None);
        assert_eq!(remaining(&config, &mut state, 6_000_000), after, "{on_expiry:?}");
        let late = config.commit(&mut state, Timestamp(START + 6_000_000), id, 20);
        assert_eq!(late, Committed { charged, late: true }, "{on_expiry:?}");
        assert_eq!(remaining(&config, &mut state, 6_000_000), left, "{on_expiry:?}");
    }
}

/// The estimate that stayed charged is charged beside it.
#[test]
fn a_commit_of_a_hold_that_is_forgotten_charges_all_of_its_cost() {
    for (on_expiry, before) in [(OnExpiry::Release, 60), (OnExpiry::Charge, 19)] {
        let plain = bucket::Config::new(60, Rate::new(1, Micros::SECOND).unwrap()).unwrap();
        let config = Config::new(plain, Terms { on_expiry, ..TERMS }).unwrap();
        let mut state = config.state(vec![0; config.words()]).unwrap();
        let _ = config.reserve(&mut state, Timestamp(START), Id([7, 7]), 50, Micros(6_000_000));
        assert_eq!(remaining(&config, &mut state, 9_000_000), before, "{on_expiry:?}");
        let late = config.commit(&mut state, Timestamp(START + 9_000_000), Id([7, 7]), 15);
        assert_eq!(late, Committed { charged: 15, late: true }, "{on_expiry:?}");
        assert_eq!(remaining(&config, &mut state, 9_000_000), before - 15, "{on_expiry:?}");
    }
}

#[test]
fn a_key_has_room_for_so_many_holds_and_says_when_there_is_room_again() {
    let config = tokens(100);
    let mut state = config.state(vec![0; config.words()]).unwrap();
    for id in 0..TERMS.most {
        let said =
            config.reserve(&mut state, Timestamp(START + id), Id([0, id]), 1, Micros::SECOND);
        assert!(matches!(said, Ok(Reserved::Decided(_))));
    }
    let reserve = |state: &mut _, now, id| {
        config.reserve(state, Timestamp(START + now), Id([0, id]), 1, Micros::SECOND).unwrap()
    };
    let until = Timestamp(START + 1_000_000);
    assert_eq!(reserve(&mut state, 10, 9), Reserved::Full { until });
    assert_eq!(reserve(&mut state, 10, 0), Reserved::Again { units: 1, until });
    // the first has ended then, but the key still remembers it
    let until = Timestamp(START + 1_000_001);
    assert_eq!(reserve(&mut state, 1_000_000, 9), Reserved::Full { until });
    assert_eq!(reserve(&mut state, 1_000_000, 0), Reserved::Ended);
    assert!(matches!(reserve(&mut state, 4_000_000, 9), Reserved::Decided(_)));
}

#[test]
fn a_refusal_waits_for_the_holds_that_end_by_themselves() {
    // one token a second; 30 of 60 are free from 20 s on, when the first hold ends
    let plain = bucket::Config::new(60, Rate::new(1, Micros::SECOND).unwrap()).unwrap();
    let terms = Terms { longest: Micros(60_000_000), most: 2, ..TERMS };
    for (on_expiry, expected) in [(OnExpiry::Release, 20_000_000), (OnExpiry::Charge, 30_000_000)] {
        let config = Config::new(plain, Terms { on_expiry, ..terms }).unwrap();
        let mut state = config.state(vec![0; config.words()]).unwrap();
        for (id, span) in [(1, 20_000_000), (2, 60_000_000)] {
            let _ = config.reserve(&mut state, Timestamp(START), Id([0, id]), 30, Micros(span));
        }
        let ask = |at: u64, id: Option<u64>, cost| {
            let id = id.map(|id| Id([0, id]));
            config.peek(&mut state.clone(), Timestamp(START + at), id, cost).unwrap()
        };
        let Reserved::Decided(refused) = ask(0, None, 30) else { panic!() };
        assert_eq!(refused.retry_after(), Micros(expected), "{on_expiry:?}");
        let is_granted =
            |said| matches!(said, Reserved::Decided(decision) if decision.is_allowed());
        assert!(!is_granted(ask(expected - 1, None, 30)));
        assert!(is_granted(ask(expected, None, 30)));
        // another hold also needs a place: the first keeps its own for as long as it is remembered
        let Reserved::Decided(refused) = ask(0, Some(3), 1) else { panic!() };
        assert_eq!(refused.retry_after(), Micros(20_000_000 + terms.remember.0));
        assert!(!is_granted(ask(22_999_999, Some(3), 1)));
        assert!(is_granted(ask(23_000_000, Some(3), 1)));
        assert!(matches!(ask(0, Some(1), 1), Reserved::Again { units: 30, .. }));
        let Reserved::Decided(ended) = ask(20_000_000, Some(1), 1) else { panic!() };
        assert_eq!(ended.retry_after(), terms.remember, "until the key forgets it");
    }
}

#[test]
fn what_ends_with_its_window_changes_no_other_window() {
    let window = fixed::Config::new(5, Micros(1_000_000)).unwrap().starting_at_first();
    let terms = Terms { on_expiry: OnExpiry::Charge, ..TERMS };
    let config = Config::new(window, terms).unwrap();
    let mut state = config.state(vec![0; config.words()]).unwrap();
    for (id, span) in [(1, 1_000_000), (2, 9_000_000)] {
        let _ = config.reserve(&mut state, Timestamp(START), Id([0, id]), 2, Micros(span));
    }
    config.advance(&mut state, Timestamp(START + 1_000_000)); // the first one expires, and is charged
    assert_eq!(config.accepts(&state), Ok(()));
    let _ = config.commit(&mut state, Timestamp(START + 1_000_000), Id([0, 2]), 4);
    assert_eq!(config.accepts(&state), Ok(()));
    let said = config.decide(&mut state, Timestamp(START + 1_000_000), 5).unwrap();
    assert!(said.is_allowed(), "both counted in a window that has ended");
}

#[test]
fn a_wait_counts_a_counted_refusal_once_and_grows_by_no_hold_that_ends() {
    // 3 in any 10 s, refused ones too; a hold that stays charged ends after 4 s
    let windows = [log::Window { limit: 3, period: Micros(10_000_000) }];
    let counted = log::Config::new(&windows, Micros::ZERO, log::Denied::Counted).unwrap();
    let config = Config::new(counted, Terms { on_expiry: OnExpiry::Charge, ..TERMS }).unwrap();
    let mut state = config.state(vec![0; config.words()]).unwrap();
    let _ = config.reserve(&mut state, Timestamp(START), Id([0, 1]), 3, Micros(4_000_000));
    let said = config.peek(&mut state.clone(), Timestamp(START), None, 2).unwrap();
    let Reserved::Decided(refused) = said else { panic!() };
    assert_eq!(refused.retry_after(), Micros(10_000_000));
}

/// The refusal itself moves no unit that the request waits for.
#[test]
fn a_counted_refusal_waits_for_the_units_before_it() {
    let windows = [log::Window { limit: 4, period: Micros(100_000_000) }];
    let counted = log::Config::new(&windows, Micros::ZERO, log::Denied::Counted).unwrap();
    let terms = Terms { longest: Micros(9_000_000), ..TERMS };
    let config = Config::new(counted, terms).unwrap();
    let mut state = config.state(vec![0; config.words()]).unwrap();
    let at = |tenths: u64| Timestamp(START + tenths * 100_000);
    let _ = config.commit(&mut state, at(0), Id([0, 1]), 2);
    let _ = config.reserve(&mut state, at(0), Id([0, 2]), 1, terms.longest);
    let _ = config.decide(&mut state, at(18), 1);
    let said = config.peek(&mut state.clone(), at(100), None, 2).unwrap();
    let Reserved::Decided(refused) = said else { panic!() };
    assert_eq!(refused.retry_after(), Micros(91_800_000));
    assert!(!config.decide(&mut state, at(100), 2).unwrap().is_allowed());
    assert!(config.decide(&mut state, at(1_018), 2).unwrap().is_allowed());
}

#[test]
fn what_is_charged_at_the_end_of_a_hold_is_not_forgotten() {
    let window = fixed::Config::new(50, Micros(60_000_000)).unwrap();
    let terms = Terms { on_expiry: OnExpiry::Charge, remember: Micros(1), ..TERMS };
    let config = Config::new(window, terms).unwrap();
    let mut state = config.state(vec![0; config.words()]).unwrap();
    let now = Timestamp(START / 60_000_000 * 60_000_000);
    let _ = config.reserve(&mut state, now, Id([0, 1]), 20, Micros(5_000_000));
    config.refund(&mut state, Refund { cost: 20, granted_at: now });
    let end = config.expires_at(&state);
    config.advance(&mut state, now.saturating_add(Micros(6_000_000)));
    assert_eq!(config.decide(&mut state, now, 0).unwrap().remaining(), 30, "20 are charged");
    config.advance(&mut state, end);
    assert!(state.words()[1] == 0 && state.words()[3..].iter().all(|&word| word == 0), "{state:?}");
}

#[test]
fn the_last_timestamp_and_a_list_without_holds() {
    let config = tokens(100);
    let mut state = config.state(vec![0; config.words()]).unwrap();
    let last = Timestamp(u64::MAX);
    let _ = config.reserve(&mut state, last, Id([0, 1]), 1, Micros::SECOND);
    assert_eq!(config.accepts(&state), Ok(()));
    let _ = config.commit(&mut state, last, Id([0, 1]), 1);
    assert_eq!(config.accepts(&state), Ok(()));
    for (place, word) in [
        (5, 7),        // an end of the next hold, in a list without holds
        (1, u64::MAX), // more spent than a bucket can owe
    ] {
        let mut words = vec![0; config.words()];
        words[place] = word;
        assert!(config.accepts(&config.state(&words[..]).unwrap()).is_err(), "{place}");
    }
}

#[test]
fn a_wait_ends_where_time_ends_and_where_a_stored_end_has_passed() {
    let config = tokens(100);
    let last = Timestamp(u64::MAX);
    for (now, next) in [(last, last.0), (Timestamp(START), START)] {
        let mut state = config.state(vec![0; config.words()]).unwrap();
        let _ = config.reserve(&mut state, now, Id([0, 1]), 100, Micros::SECOND);
        state.words_mut()[5] = next; // the end of the next hold
        assert_eq!(config.accepts(&state).is_ok(), now == last);
        let said = config.peek(&mut state, now, None, 7).unwrap();
        let Reserved::Decided(refused) = said else { panic!() };
        assert_eq!(refused.retry_after(), Micros(4_200_000), "as if the hold never ended");
    }
}

#[test]
fn a_key_knows_its_live_holds_and_those_that_have_ended() {
    let config = tokens(100);
    let mut state = config.state(vec![0; config.words()]).unwrap();
    let (now, end) = (Timestamp(START), Timestamp(START + 1_000_000));
    let (held, ended, other) = (Id([0, 1]), Id([0, 2]), Id([0, 3]));
    assert!(config.ends_nothing(&state, end), "nothing is held");
    for id in [held, ended] {
        let _ = config.reserve(&mut state, now, id, 5, Micros::SECOND);
    }
    let _ = config.commit(&mut state, now, ended, 5);
    assert_eq!(config.known(&state, held), Some(Known::Live));
    let until = Timestamp(START + 3_000_000); // as long as `remember`
    assert_eq!(config.known(&state, ended), Some(Known::Ended { until }));
    assert_eq!(config.known(&state, other), None);
    for (now, ends_nothing) in [
        (Timestamp(START - 1), false), // the clock goes back, and all times with it
        (now, true),
        (Timestamp(end.0 - 1), true),
        (end, false),
    ] {
        assert_eq!(config.ends_nothing(&state, now), ends_nothing, "{now:?}");
    }
    let changed = config.change_counted(&mut state, |words| {
        words[0] += 7;
        words.len()
    });
    assert_eq!((changed, config.counted(&state)[0]), (Some(2), 10 * 600_000 + 7));
}

/// It is a peek, which takes no place on the list.
#[test]
fn a_reservation_of_nothing_is_not_held() {
    let config = tokens(100);
    let mut state = config.state(vec![0; config.words()]).unwrap();
    assert!(config.has_no_holds(&state));
    let now = Timestamp(START);
    for cost in 0..=TERMS.most {
        let said = config.reserve(&mut state, now, Id([0, cost]), cost, Micros::SECOND).unwrap();
        assert!(matches!(said, Reserved::Decided(decision) if decision.is_allowed()));
        assert_eq!(config.find(&state, Id([0, cost])).is_some(), cost > 0);
        assert_eq!(config.has_no_holds(&state), cost == 0);
    }
    let peeked = config.reserve(&mut state, now, Id([0, 9]), 0, Micros::SECOND).unwrap();
    assert!(matches!(peeked, Reserved::Decided(decision) if decision.remaining() == 85));
}

#[test]
fn an_edit_ends_the_holds_and_keeps_them_charged() {
    let (old, new) = (tokens(100), tokens(60));
    let mut held = old.state(vec![0; old.words()]).unwrap();
    for id in [1, 2] {
        let _ = old.reserve(&mut held, Timestamp(START), Id([0, id]), 20, Micros::SECOND);
    }
    assert_eq!(old.commit(&mut held, Timestamp(START), Id([0, 1]), 5).charged, 5);
    let mut state = new.state(vec![0; new.words()]).unwrap();
    new.remember_holds_of(&mut state, &old, &held);
    new.advance(&mut state, Timestamp(START));
    assert_eq!(new.accepts(&state), Ok(()));
    assert_eq!(new.held(&state), 0);
    let mut commit = |id, actual| new.commit(&mut state, Timestamp(START), Id([0, id]), actual);
    assert_eq!(commit(1, 50), Committed { charged: 5, late: false });
    assert_eq!(commit(2, 7), Committed { charged: 20, late: true });
    assert_eq!(remaining(&new, &mut state, 0), 60);
}

#[test]
fn a_clock_that_comes_back_from_a_jump_ends_holds_as_long_after() {
    let config = tokens(100);
    let mut state = config.state(vec![0; config.words()]).unwrap();
    let (id, ahead) = (Id([0, 1]), START + 900_000_000);
    let said = config.reserve(&mut state, Timestamp(ahead), id, 50, Micros(5_000_000)).unwrap();
    assert!(matches!(said, Reserved::Decided(_)));
    assert_eq!(remaining(&config, &mut state, 0), 50);
    assert_eq!(remaining(&config, &mut state, 4_999_999), 58, "50 are held, 8 ⅓ came back");
    assert_eq!(remaining(&config, &mut state, 5_000_000), 100);
}

#[test]
fn terms_out_of_bounds_are_an_error_that_names_the_field() {
    let bucket = bucket::Config::new(1, Rate::new(1, Micros::SECOND).unwrap()).unwrap();
    for terms in [
        Terms { most: 0, ..TERMS },
        Terms { most: MAX_HOLDS + 1, ..TERMS },
        Terms { longest: Micros::ZERO, ..TERMS },
        Terms { remember: Micros(crate::MAX_QUANTITY + 1), ..TERMS },
        Terms { longest: Micros(crate::MAX_QUANTITY), remember: Micros(1), ..TERMS },
    ] {
        assert!(Config::new(bucket, terms).is_err(), "{terms:?}");
    }
    assert!(Config::new(bucket, Terms { most: MAX_HOLDS, ..TERMS }).is_ok());
}

proptest! {
    #[test]
    fn a_bucket_that_holds_equals_the_replay(terms in terms(), steps in steps(10, 25)) {
        let rate = Rate::new(3, Micros(1_000_001)).unwrap();
        let bucket = bucket::Config::new(10, rate).unwrap();
        equals_the_replay(bucket, terms, &steps, false)?;
        equals_the_replay(bucket.starting_empty(), terms, &steps, false)?;
    }

    #[test]
    fn windows_that_hold_equal_the_replay(terms in terms(), steps in steps(10, 99)) {
        equals_the_replay(fixed::Config::new(40, Micros(5_000_000)).unwrap(), terms, &steps, false)?;
        equals_the_replay(sliding::Config::new(40, Micros(5_000_000), 5).unwrap(), terms, &steps, false)?;
        let months = calendar::Instants::new(MONTHS).unwrap();
        equals_the_replay(calendar::Config::new(40, months).unwrap(), terms, &steps, false)?;
        let windows = [(60, 5_000_000), (40, 1_000_000)];
        let windows = windows.map(|(limit, period)| log::Window { limit, period: Micros(period) });
        let log = log::Config::new(&windows, Micros::ZERO, log::Denied::Forgotten).unwrap();
        equals_the_replay(log, terms, &steps, false)?;
        let gap = Micros(300_000);
        let counted = log::Config::new(&windows, gap, log::Denied::Counted).unwrap();
        equals_the_replay(counted, terms, &steps, true)?;
    }

    #[test]
    fn without_holds_the_state_is_that_of_the_limiter(
        costs in proptest::collection::vec((0..3_000_000_u64, 1..10_u64), 1..40)
    ) {
        let bucket = bucket::Config::new(10, Rate::new(3, Micros::SECOND).unwrap()).unwrap();
        let config = Config::new(bucket, TERMS).unwrap();
        let mut holding = config.state(vec![0; config.words()]).unwrap();
        let (mut plain, mut now) = (bucket::State::default(), Timestamp(START));
        for (passed, cost) in costs {
            now = now.saturating_add(Micros(passed));
            let said = config.decide(&mut holding, now, cost);
            prop_assert_eq!(said, bucket.decide(&mut plain, now, cost));
            config.refund(&mut holding, Refund { granted_at: now, cost: cost / 2 });
            bucket.refund(&mut plain, Refund { granted_at: now, cost: cost / 2 });
            prop_assert_eq!(&holding.words()[1..3], plain.words());
            prop_assert_eq!(config.reset_after(&holding), bucket.reset_after(&plain));
            prop_assert!(holding.words()[3..].iter().all(|&word| word == 0));
        }
    }
}
