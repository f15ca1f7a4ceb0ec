//! Holds over an edit: what commits leave is what the edit would have left if the true costs had been known before.

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::super::{Counter, OnExpiry, Reserved, Terms, Times};
use super::{Config, MONTHS, START};
use crate::hold::reservable::Reservable;
use crate::lease::Id;
use crate::window::{calendar, fixed, log, sliding};
use crate::{Limiter, Micros, Rate, RateLimiter, Timestamp, bucket};

/// Long enough that no hold ends by itself.
const TERMS: Terms = Terms {
    most: 8,
    longest: Micros(1_000_000_000),
    remember: Micros(1_000_000_000),
    on_expiry: OnExpiry::Release,
};

/// A request: how long after the one before, its estimate, and its true cost if it is reserved.
type Asked = (u64, u64, Option<u64>);

fn asked(most: u64) -> impl Strategy<Value = Vec<Asked>> {
    let actual = (1..=most).prop_flat_map(|cost| (Just(cost), proptest::option::of(0..=cost)));
    let each = (prop_oneof![Just(0), 0..3_000_000_u64], actual);
    proptest::collection::vec(each.prop_map(|(gap, (cost, actual))| (gap, cost, actual)), 1..20)
}

/// A limiter that holds, and beside it the same limiter with the true costs.
struct Beside<L> {
    limiter: L,
    config: Config,
    held: Vec<u64>,
    truth: Vec<u64>,
    now: Timestamp,
}

impl<L: RateLimiter + Into<Counter>> Beside<L> {
    fn new(limiter: L) -> Self {
        let config = Config::new(limiter.clone(), TERMS).unwrap();
        let (held, truth) = (vec![0; config.words()], vec![0; limiter.words()]);
        Self { limiter, config, held, truth, now: Timestamp(START) }
    }

    /// Does the requests. Returns the reservations that were granted, with their true costs.
    fn ask(&mut self, first: u64, asked: &[Asked]) -> Vec<(Id, u64)> {
        let mut open = Vec::new();
        for (number, &(gap, cost, actual)) in (first..).zip(asked) {
            self.now = self.now.saturating_add(Micros(gap));
            let mut state = self.config.state(&mut self.held[..]).unwrap();
            let cost = cost.min(self.config.capacity());
            let id = Id([0, number]);
            let granted = match actual {
                None => self.config.decide(&mut state, self.now, cost).unwrap().is_allowed(),
                Some(_) => {
                    let said = self.config.reserve(&mut state, self.now, id, cost, TERMS.longest);
                    matches!(said.unwrap(), Reserved::Decided(decision) if decision.is_allowed())
                }
            };
            let mut truth = self.limiter.state(&mut self.truth[..]).unwrap();
            let counts = actual.map_or(cost, |actual| actual.min(cost));
            self.limiter.charge(&mut truth, self.now, if granted { counts } else { 0 });
            open.extend(actual.filter(|_| granted).map(|_| (id, counts)));
        }
        open
    }

    fn used(&mut self) -> [u64; 2] {
        let mut state = self.config.state(&mut self.held[..]).unwrap();
        self.config.advance(&mut state, self.now);
        assert_eq!(self.config.accepts(&state), Ok(()), "{:?}", state.words());
        let counted = self.limiter.state(self.config.counted(&state).to_vec()).unwrap();
        let mut truth = self.limiter.state(&mut self.truth[..]).unwrap();
        self.limiter.advance(&mut truth, self.now);
        let truth = self.limiter.state(truth.words().to_vec()).unwrap();
        [self.limiter.used(&counted), self.limiter.used(&truth)]
    }
}

/// What an edit and the commits after it have left.
struct Left {
    /// How many reservations were committed, and whether all that were live at the edit went on.
    committed: u64,
    went_on: bool,
    /// The words of the limiter that holds, and those of the truth.
    words: [Vec<u64>; 2],
    used: [u64; 2],
}

/// Asks, edits, asks again and commits in another order. If the edit took no holds over, how many were live.
fn edited<L: RateLimiter + Into<Counter>, M: RateLimiter + Into<Counter>>(
    (old, new): (L, M),
    (before, after): (&[Asked], &[Asked]),
    carry: impl Fn(&mut [u64], &[u64]) -> Option<Times>,
) -> Result<Left, usize> {
    let mut first = Beside::new(old);
    let mut open = first.ask(0, before);
    let mut second = Beside { now: first.now, ..Beside::new(new) };
    carry(&mut second.truth, &first.truth);
    let mut held = first.config.state(&mut first.held[..]).unwrap();
    let mut state = second.config.state(&mut second.held[..]).unwrap();
    if !second.config.take_over(&mut state, &first.config, &mut held, carry) {
        assert!(state.words().iter().all(|&word| word == 0));
        return Err(open.len());
    }
    let went_on = second.config.holds(&state.borrowed()).unwrap().len() == open.len();
    open.extend(second.ask(1_000, after));
    let middle = open.len() / 2;
    open.rotate_left(middle);
    for &(id, actual) in &open {
        let mut state = second.config.state(&mut second.held[..]).unwrap();
        second.config.commit(&mut state, second.now, id, actual);
    }
    let used = second.used();
    let state = second.config.state(&second.held[..]).unwrap();
    let words = [second.config.counted(&state).to_vec(), second.truth];
    Ok(Left { committed: u64::try_from(open.len()).unwrap(), went_on, words, used })
}

fn tokens(capacity: u64, units: u64, seconds: u64) -> bucket::Config {
    bucket::Config::new(capacity, Rate::new(units, Micros(seconds * 1_000_000)).unwrap()).unwrap()
}

fn of_windows<L: RateLimiter + Into<Counter>, M: RateLimiter + Into<Counter>>(
    (old, new): (L, M),
    asked: (&[Asked], &[Asked]),
) -> Result<(), TestCaseError> {
    let carry = |words: &mut [u64], counted: &[u64]| {
        let counted = old.state(counted.to_vec()).unwrap();
        let used = old.used(&counted);
        new.charge(&mut new.state(words).unwrap(), counted.newest(), used);
        (used <= 2 * new.capacity()).then_some(Times::Newest)
    };
    let Ok(left) = edited((old.clone(), new.clone()), asked, carry) else { return Ok(()) };
    let [found, expected] = left.used;
    prop_assert!(found >= expected, "{} is less than {}", found, expected);
    prop_assert!(!left.went_on || found == expected, "{} for {}", found, expected);
    Ok(())
}

proptest! {
    #[test]
    fn of_a_bucket(
        (old_capacity, old_units, old_seconds) in (1..60_u64, 1..20_u64, 1..20_u64),
        (capacity, units, seconds) in (1..60_u64, 1..20_u64, 1..20_u64),
        (before, after) in (asked(40), asked(40)),
    ) {
        let old = tokens(old_capacity, old_units, old_seconds);
        let new = tokens(capacity, units, seconds);
        let carry = |words: &mut [u64], counted: &[u64]| {
            let spent = (counted[0] * new.rate().1.0).div_ceil(old.rate().1.0);
            words.copy_from_slice(&[spent, counted[1]]);
            None
        };
        match edited((old, new), (&before, &after), carry) {
            Ok(left) => {
                prop_assert!(left.went_on);
                let [found, truth] = [left.words[0][0], left.words[1][0]];
                prop_assert!(found >= truth, "{} is less than {}", found, truth);
                prop_assert!(found <= truth + 3 * left.committed + 1, "{} for {}", found, truth);
            }
            // the debt of the new bucket has no room for what was spent
            Err(live) => prop_assert!(live == 0 || capacity * 2 < old_capacity),
        }
    }

    #[test]
    fn of_windows_to_windows(
        kinds in 0..4_u8,
        (old_limit, old_seconds) in (1..40_u64, 1..9_u64),
        (limit, seconds) in (1..40_u64, 1..9_u64),
        (before, after) in (asked(20), asked(20)),
    ) {
        prop_assume!((old_limit, old_seconds) != (limit, seconds)); // then it is no edit
        let fixed = |limit, seconds: u64| fixed::Config::new(limit, Micros(seconds * 1_000_000)).unwrap();
        let sliding = |limit, seconds: u64| sliding::Config::new(limit, Micros(seconds * 1_000_000), 4).unwrap();
        let asked = (&before[..], &after[..]);
        match kinds {
            0 => of_windows((fixed(old_limit, old_seconds), fixed(limit, seconds)), asked)?,
            1 => of_windows((fixed(old_limit, old_seconds), sliding(limit, seconds)), asked)?,
            2 => of_windows((sliding(old_limit, old_seconds), fixed(limit, seconds)), asked)?,
            _ => of_windows((sliding(old_limit, old_seconds), sliding(limit, seconds)), asked)?,
        }
    }

    #[test]
    fn of_a_log(
        (old_limit, old_seconds) in (1..40_u64, 1..9_u64),
        (limit, seconds) in (1..40_u64, 1..9_u64),
        (before, after) in (asked(20), asked(20)),
    ) {
        let of = |limit, seconds: u64| {
            let window = log::Window { limit, period: Micros(seconds * 1_000_000) };
            log::Config::new(&[window], Micros::ZERO, log::Denied::Forgotten).unwrap().beside_holds()
        };
        let (old, new) = (of(old_limit, old_seconds), of(limit, seconds));
        let carry = |words: &mut [u64], counted: &[u64]| {
            let counted = old.state(counted.to_vec()).unwrap();
            new.adopt(&mut new.state(words).unwrap(), &counted, (1, 1));
            (old.used(&counted) <= new.capacity()).then_some(Times::Kept)
        };
        if let Ok(left) = edited((old, new), (&before, &after), carry) {
            let [found, expected] = left.used;
            prop_assert!(found >= expected, "{} is less than {}", found, expected);
            prop_assert!(!left.went_on || found == expected, "{} for {}", found, expected);
        }
    }
}

/// The limits are the same, only the terms change: every word of the limiter is kept.
#[test]
fn of_the_terms_alone() {
    let counter = calendar::Config::new(20, calendar::Instants::new(MONTHS).unwrap()).unwrap();
    let old = Config::new(counter, TERMS).unwrap();
    let new = Config::new(counter, Terms { most: 2, longest: Micros(9_000_000), ..TERMS }).unwrap();
    let mut held = old.state(vec![0; old.words()]).unwrap();
    for (id, cost) in [(1, 3), (2, 4), (3, 5)] {
        let _ = old.reserve(&mut held, Timestamp(START), Id([0, id]), cost, Micros(60_000_000));
    }
    let mut state = new.state(vec![0; new.words()]).unwrap();
    assert!(new.take_over(&mut state, &old, &mut held, |_, _| None));
    assert_eq!(new.accepts(&state), Ok(()));
    // there are places for two: the oldest stays charged and is forgotten, so that its commit is a late one
    assert_eq!(new.held(&state), 9);
    assert_eq!(new.decide(&mut state, Timestamp(START), 0).unwrap().remaining(), 8);
    let at = |seconds: u64| Timestamp(START + seconds * 1_000_000);
    let first = new.commit(&mut state, at(1), Id([0, 1]), 2);
    assert_eq!((first.charged, first.late), (2, true));
    assert_eq!(new.commit(&mut state, at(1), Id([0, 2]), 1).charged, 1);
    assert_eq!(new.decide(&mut state, at(1), 0).unwrap().remaining(), 9);
    // the other one ends when its new time to live is over
    assert_eq!(new.find(&state, Id([0, 3])), Some((5, at(9))));
}

/// A hold that a window counts no longer, or a bucket that becomes a window: the units stay charged.
#[test]
fn what_cannot_go_on_ends() {
    let at = |seconds: u64| Timestamp(START + seconds * 1_000_000);
    let window = |seconds: u64| fixed::Config::new(10, Micros(seconds * 1_000_000)).unwrap();
    let old = Config::new(window(10), TERMS).unwrap();
    let mut held = old.state(vec![0; old.words()]).unwrap();
    let _ = old.reserve(&mut held, at(0), Id([0, 1]), 4, TERMS.longest);
    let _ = old.reserve(&mut held, at(10), Id([0, 2]), 5, TERMS.longest); // the next window
    let new = Config::new(window(20), TERMS).unwrap();
    let mut state = new.state(vec![0; new.words()]).unwrap();
    let carry = |words: &mut [u64], counted: &[u64]| {
        words.copy_from_slice(counted);
        Some(Times::Newest)
    };
    assert!(new.take_over(&mut state, &old, &mut held, carry));
    assert_eq!((new.held(&state), new.find(&state, Id([0, 1]))), (5, None));
    assert_eq!(new.commit(&mut state, at(10), Id([0, 1]), 4).charged, 4);
    assert_eq!(new.decide(&mut state, at(10), 0).unwrap().remaining(), 5, "nothing was added");

    let bucket = Config::new(tokens(10, 1, 1), TERMS).unwrap();
    let mut held = old.state(vec![0; old.words()]).unwrap();
    let _ = old.reserve(&mut held, at(0), Id([0, 1]), 4, TERMS.longest);
    let mut state = bucket.state(vec![0; bucket.words()]).unwrap();
    assert!(!bucket.take_over(&mut state, &old, &mut held, |_, _| Some(Times::Newest)));
}

/// A shorter window takes over the hold whose units it still counts in full.
#[test]
fn a_hold_goes_on_while_its_units_count() {
    let at = |seconds: u64| Timestamp(START + seconds * 1_000_000);
    let log = |seconds: u64| {
        let window = log::Window { limit: 10, period: Micros(seconds * 1_000_000) };
        log::Config::new(&[window], Micros::ZERO, log::Denied::Forgotten).unwrap().beside_holds()
    };
    let sliding = |seconds: u64| sliding::Config::new(10, Micros(seconds * 1_000_000), 4).unwrap();
    fn check<L: RateLimiter + Into<Counter>>(
        (long, short): (L, L),
        times: [Timestamp; 2],
        carry: impl FnOnce(&mut [u64], &[u64]) -> Option<Times>,
    ) {
        let (old, new) = (Config::new(long, TERMS).unwrap(), Config::new(short, TERMS).unwrap());
        let mut held = old.state(vec![0; old.words()]).unwrap();
        for (id, time) in (1..).zip(times) {
            let said = old.reserve(&mut held, time, Id([0, id]), 3, TERMS.longest).unwrap();
            assert!(matches!(said, Reserved::Decided(decision) if decision.is_allowed()));
        }
        let mut state = new.state(vec![0; new.words()]).unwrap();
        assert!(new.take_over(&mut state, &old, &mut held, carry));
        assert_eq!(new.find(&state, Id([0, 1])), None, "its units count no more");
        assert_eq!(new.find(&state, Id([0, 2])).map(|(units, _)| units), Some(3));
    }
    check((log(20), log(10)), [at(0), at(10)], |words, counted| {
        let held = log(20).state(counted.to_vec()).unwrap();
        log(10).adopt(&mut log(10).state(words).unwrap(), &held, (1, 1));
        Some(Times::Kept)
    });
    check((sliding(20), sliding(10)), [at(0), at(10)], |words, counted| {
        let newest = sliding(20).state(counted.to_vec()).unwrap().newest();
        sliding(10).charge(&mut sliding(10).state(words).unwrap(), newest, 3);
        Some(Times::Kept)
    });
}

/// The holds would then be charged twice.
#[test]
fn what_counts_more_than_before_does_not_go_on() {
    let window = |limit| fixed::Config::new(limit, Micros(10_000_000)).unwrap();
    let old = Config::new(window(10), TERMS).unwrap();
    let mut held = old.state(vec![0; old.words()]).unwrap();
    let _ = old.reserve(&mut held, Timestamp(START), Id([0, 1]), 4, TERMS.longest);
    let new = Config::new(window(20), TERMS).unwrap();
    for more in [0, 1] {
        let carry = |words: &mut [u64], counted: &[u64]| {
            let mut state = window(20).state(words).unwrap();
            window(20).charge(&mut state, window(10).state(counted).unwrap().newest(), 4 + more);
            Some(Times::Kept)
        };
        let mut state = new.state(vec![0; new.words()]).unwrap();
        assert_eq!(new.take_over(&mut state, &old, &mut held, carry), more == 0);
        assert_eq!(new.held(&state), if more == 0 { 4 } else { 0 });
    }
}

#[test]
fn no_hold_goes_on_to_or_from_a_bucket_that_starts_empty() {
    let (old, new) = (tokens(10, 1, 1), tokens(20, 1, 1));
    for (old, new, goes_on) in [
        (old, new, true),
        (old.starting_empty(), new, false),
        (old, new.starting_empty(), false),
        (old.starting_empty(), new.starting_empty(), false),
    ] {
        let (old, new) = (Config::new(old, TERMS).unwrap(), Config::new(new, TERMS).unwrap());
        let mut held = old.state(vec![0; old.words()]).unwrap();
        old.advance(&mut held, Timestamp(START));
        let later = Timestamp(START + 10_000_000);
        let _ = old.reserve(&mut held, later, Id([0, 1]), 4, TERMS.longest);
        assert_eq!(old.held(&held), 4);
        let mut state = new.state(vec![0; new.words()]).unwrap();
        assert_eq!(new.take_over(&mut state, &old, &mut held, |_, _| None), goes_on);
    }
}
