use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_reference::{Oracle, Rule, calendar as reference};

use super::{Boundaries, Calendar, Config, Every, Instants, Shift, Zone};
use crate::exhaustive::every_sequence;
use crate::properties::{self, Crash, Listed, Subject, listed};
use crate::window::Refund;
use crate::{Limiter, MAX_QUANTITY, Micros, RateLimiter, Timestamp};

const HOUR: u64 = 3_600_000_000;
const DAY: u64 = 24 * HOUR;

fn utc() -> Zone<&'static [Shift]> {
    Zone::new(&[][..], Timestamp(MAX_QUANTITY)).unwrap()
}

/// Offsets in minutes, from these hours after the epoch on.
fn zone(shifts: &[(u64, i32)], until: u64) -> Zone<Vec<Shift>> {
    let shift = |&(hours, minutes): &(u64, i32)| Shift {
        from: Timestamp(hours * HOUR),
        offset_s: minutes * 60,
    };
    Zone::new(shifts.iter().map(shift).collect(), Timestamp(until)).unwrap()
}

impl Subject for Listed {
    type Oracle = Oracle;
    fn oracle(self) -> Oracle {
        let sorted = self.boundaries().sorted();
        let boundaries: Vec<u64> = sorted.iter().map(|boundary| boundary.0).collect();
        Oracle::new(Rule::Calendar { limit: self.limit(), boundaries: boundaries.leak() })
    }
}

#[test]
fn decides_as_worked_out_by_hand() {
    // 5 in [0, 10), [10, 40), [40, 45) and from 45 on. Rows: time, cost, (allowed, remaining, retry after, reset after)
    let config = listed(5, &[10, 40, 45]);
    let mut state = config.fresh();
    let never = MAX_QUANTITY;
    for (now, cost, expected) in [
        (3, 0, (true, 5, 0, 0)),
        (3, 3, (true, 2, 0, 7)),
        (4, 3, (false, 2, 6, 6)),
        (9, 2, (true, 0, 0, 1)),
        (8, 1, (false, 0, 1, 1)), // back in time: taken as at 9
        (10, 5, (true, 0, 0, 30)),
        (9, 1, (false, 0, 30, 30)), // the earlier window does not come back
        (39, 1, (false, 0, 1, 1)),
        (8, 1, (false, 0, 2, 2)), // the clock is believed again, and used units count in its window
        (44, 5, (true, 0, 0, 1)),
        (45, 4, (true, 1, 0, never)), // the last window does not end
        (46, 2, (false, 1, never, never)),
        (u64::MAX, 1, (true, 0, 0, never)),
        (u64::MAX, 1, (false, 0, never, never)),
    ] {
        let decision = config.decide(&mut state, Timestamp(now), cost).unwrap();
        assert_eq!(properties::tuple(decision), expected, "at {now}, cost {cost}");
    }
}

#[test]
fn every_sequence_equals_the_oracle() {
    for limit in 1..=3 {
        for boundaries in [&[][..], &[4], &[1, 2, 3], &[2, 5, 6], &[3, 4, 8], &[1, 7, 20]] {
            every_sequence(listed(limit, boundaries));
        }
    }
}

#[test]
fn boundaries_that_do_not_ascend_are_no_boundaries() {
    let made = |all: &[u64]| Instants::new(all.iter().copied().map(Timestamp).collect::<Vec<_>>());
    for wrong in [&[0][..], &[5, 5], &[5, 4], &[5, MAX_QUANTITY + 1]] {
        assert!(made(wrong).is_err(), "{wrong:?}");
    }
    assert_eq!(made(&[5, 12, 13]).unwrap().longest(), Micros(7));
    assert!(Config::new(0, made(&[5]).unwrap()).is_err());
    assert!(Config::new(MAX_QUANTITY + 1, made(&[5]).unwrap()).is_err());
}

#[test]
fn zones_and_windows_that_are_none_are_refused() {
    let shift = |from, offset_s| Shift { from: Timestamp(from), offset_s };
    let most = i32::try_from(Zone::<&[Shift]>::MOST_OFFSET_S).unwrap();
    for (shifts, until) in [
        (vec![shift(5, 0), shift(5, 1)], 9),
        (vec![shift(5, most)], 9),
        (vec![shift(5, -most)], 9),
        (vec![shift(5, i32::MIN)], 9),
        (vec![shift(5, 0)], 5),
        (vec![shift(5, 0)], MAX_QUANTITY + 1),
        (vec![shift(MAX_QUANTITY + 1, 0)], MAX_QUANTITY),
    ] {
        assert!(Zone::new(shifts.clone(), Timestamp(until)).is_err(), "{shifts:?} until {until}");
    }
    assert!(Zone::new([shift(5, 1 - most)], Timestamp(6)).is_ok());
    assert!(Every::week(7).is_err() && Every::week(6).is_ok());
    for (count, month, day) in
        [(2, 1, 1), (1, 13, 1), (1, 0, 1), (1, 1, 0), (1, 1, 32), (12, 2, 30)]
    {
        assert!(Every::months(count, month, day).is_err(), "{count} {month} {day}");
    }
    assert!(Every::months(12, 2, 29).is_ok() && Every::months(1, 2, 31).is_ok());
}

/// The boundaries of the calendar after `from`, up to the last known one.
fn walked<S: AsRef<[Shift]> + Clone + core::fmt::Debug + Eq>(
    calendar: &Calendar<S>,
    until: u64,
) -> Vec<i128> {
    let (mut at, mut found) = (Timestamp(0), Vec::new());
    while let Some(end) = calendar.window(at).end.filter(|end| end.0 < until) {
        let window = calendar.window(at);
        assert!(window.begin <= at && at < end, "{at:?} {window:?}");
        let last = Timestamp(end.0 - 1);
        assert_eq!(calendar.window(last), window, "the window of its last instant");
        if found.len() > 1 {
            let length = end.saturating_since(window.begin);
            assert!(length <= calendar.longest(), "{length:?} {calendar:?}");
        }
        found.push(end.0.into());
        at = end;
    }
    found
}

fn named(every: reference::Every) -> Every {
    let byte = |number: i64| u8::try_from(number).unwrap();
    match every {
        reference::Every::Day => Every::day(),
        reference::Every::Week { first_day } => Every::week(byte(first_day)).unwrap(),
        reference::Every::Months { count, month, day } => {
            Every::months(byte(count), byte(month), byte(day)).unwrap()
        }
    }
}

fn every_kind() -> Vec<reference::Every> {
    let mut all = vec![reference::Every::Day];
    all.extend((0..7).map(|first_day| reference::Every::Week { first_day }));
    for (count, month, day) in [
        (1, 1, 1),
        (1, 1, 15),
        (1, 1, 28),
        (1, 1, 29),
        (1, 1, 30),
        (1, 1, 31),
        (3, 1, 1),
        (3, 2, 29),
        (3, 8, 31),
        (12, 1, 1),
        (12, 2, 28),
        (12, 2, 29),
        (12, 12, 31),
    ] {
        all.push(reference::Every::Months { count, month, day });
    }
    all
}

#[test]
fn utc_until_2110_has_the_boundaries_that_a_walk_from_day_to_day_finds() {
    for every in every_kind() {
        let expected = reference::boundaries(every, &[], 2110);
        let calendar = Calendar::new(named(every), utc());
        assert_eq!(walked(&calendar, 4_417_977_600_000_000), expected, "{every:?}"); // 2110-01-01
    }
}

#[test]
fn windows_are_told_by_their_numbers() {
    for every in every_kind().into_iter().map(named) {
        let numbers = every.numbers();
        assert_eq!(Every::of_numbers(numbers), Ok(every));
        for place in 0..4 {
            for other in [numbers[place] + 1, numbers[place] + 7 * 256, u64::MAX] {
                let mut others = numbers;
                others[place] = other;
                assert!(
                    Every::of_numbers(others).is_ok_and(|other| other.numbers() == others)
                        || Every::of_numbers(others).is_err()
                );
                assert_ne!(Every::of_numbers(others), Ok(every));
            }
        }
    }
}

#[test]
fn the_longest_window_is_told_with_its_changes_of_the_clock() {
    let months = |count| Every::months(count, 1, 1).unwrap();
    for (every, days) in [
        (Every::day(), 1),
        (Every::week(3).unwrap(), 7),
        (months(1), 31),
        (months(3), 92),
        (months(12), 366),
    ] {
        assert_eq!(Calendar::new(every, utc()).longest(), Micros(days * DAY));
        let changing = zone(&[(24, -60), (48, 90)], 100 * DAY);
        let expected = Micros(days * DAY + 2 * HOUR + HOUR / 2);
        assert_eq!(Calendar::new(every, changing).longest(), expected);
    }
}

#[test]
fn an_anchor_is_never_taken_from_a_shorter_month() {
    let monthly = Calendar::new(Every::months(1, 1, 31).unwrap(), utc());
    let mut at = Timestamp(1_706_659_200_000_000); // 2024-01-31
    for days in [29, 31, 30, 31, 30, 31, 31, 30] {
        // until 29 February, 31 March, 30 April, 31 May, 30 June, 31 July, 31 August, 30 September
        let end = monthly.window(at).end.unwrap();
        assert_eq!((monthly.window(at).begin, end.saturating_since(at).0 / DAY), (at, days));
        at = end;
    }
}

#[test]
fn a_calendar_reaches_as_far_as_its_zone_is_known_and_is_strict_beyond() {
    let monthly = Calendar::new(Every::months(1, 1, 1).unwrap(), zone(&[(24, 60)], 100 * DAY));
    let february = 31 * DAY - HOUR;
    let april = 90 * DAY - HOUR;
    assert_eq!(monthly.reach(), (Timestamp(DAY), Timestamp(april)));
    let window = |at| monthly.window(Timestamp(at));
    let first = window(0);
    assert_eq!((first.begin, first.end), (Timestamp(0), Some(Timestamp(february))));
    for at in [april, 100 * DAY, 101 * DAY, 1_000 * DAY, u64::MAX] {
        assert_eq!((window(at).begin, window(at).end), (Timestamp(april), None), "at {at}");
    }
    let listed = Instants::new([Timestamp(3), Timestamp(10)]).unwrap();
    assert_eq!(listed.reach(), (Timestamp(0), Timestamp(10)));
    let config = Config::new(2, monthly.clone()).unwrap();
    let mut state = config.fresh();
    for (at, allowed) in [(april, true), (150 * DAY, true), (900 * DAY, false), (u64::MAX, false)] {
        let decision = config.decide(&mut state, Timestamp(at), 1).unwrap();
        assert_eq!(decision.is_allowed(), allowed, "at {at}");
    }
}

#[test]
fn a_skipped_day_has_no_window_and_a_repeated_one_has_one() {
    // a day is skipped after ten days, as Apia did, and comes twice after twenty
    let shifts = [(0, -600), (10 * 24 + 10, 840), (20 * 24, -600)];
    let daily = Calendar::new(Every::day(), zone(&shifts, 40 * DAY));
    let walk = walked(&daily, 39 * DAY);
    let lengths: Vec<u64> =
        walk.windows(2).map(|pair| u64::try_from(pair[1] - pair[0]).unwrap() / HOUR).collect();
    assert_eq!(lengths.iter().filter(|hours| **hours != 24).collect::<Vec<_>>(), [&48]);
    assert_eq!(lengths.len(), 37);
    for hour in 200..600 {
        let (at, window) = (Timestamp(hour * HOUR), daily.window(Timestamp(hour * HOUR)));
        assert!(window.begin <= at && window.end.is_some_and(|end| at < end), "{hour}: {window:?}");
    }
}

/// Shifts of up to a day, now and then several on one day.
fn shifts() -> impl Strategy<Value = Vec<(u64, i32)>> {
    let gap = prop_oneof![1_u64..30, 1_u64..5_000];
    proptest::collection::vec((gap, -50_i32..=50), 0..12).prop_map(|all| {
        let mut hour = 0;
        let quarters = |(gap, quarters): (u64, i32)| {
            hour += gap;
            (hour, quarters * 15)
        };
        all.into_iter().map(quarters).collect()
    })
}

proptest! {
    #[test]
    fn any_zone_has_the_boundaries_that_a_walk_from_day_to_day_finds(
        shifts in shifts(), which in 0..21_usize
    ) {
        let every = every_kind()[which];
        let year_1976 = 189_302_400_000_000;
        let calendar = Calendar::new(named(every), zone(&shifts, MAX_QUANTITY));
        let naive: Vec<(i128, i128)> = shifts
            .iter()
            .map(|(hours, minutes)| (i128::from(hours * HOUR), i128::from(minutes * 60)))
            .collect();
        let first = naive.first().map_or(0, |first| first.0);
        let mut expected = reference::boundaries(every, &naive, 1977);
        expected.retain(|at| *at > first && *at < i128::from(year_1976));
        prop_assert_eq!(walked(&calendar, year_1976), expected);
    }

    #[test]
    fn every_answer_is_the_oracles((limit, gaps, steps) in limits_and(|most| properties::history(40, most).boxed())) {
        properties::equals_the_oracle(starting_late(limit, &gaps), steps)?;
    }

    #[test]
    fn a_calendars_answers_are_those_of_its_boundaries_in_a_list(
        shifts in shifts(), which in 0..21_usize, limit in 1_u64..6,
        steps in proptest::collection::vec((0..40 * DAY, 0..2 * DAY, 0_u64..6, any::<bool>()), 1..60),
    ) {
        let until = Timestamp(2_000 * DAY);
        let calendar = Calendar::new(named(every_kind()[which]), zone(&shifts, until.0));
        let all: Vec<u64> =
            walked(&calendar, u64::MAX).into_iter().map(|at| u64::try_from(at).unwrap()).collect();
        let (dated, listed) = (Config::new(limit, calendar).unwrap(), listed(limit, &all));
        let (mut one, mut other) = (dated.fresh(), listed.fresh());
        let mut now = 0_u64;
        for (ahead, back, cost, charges) in steps {
            now = (now + ahead).saturating_sub(back);
            let at = Timestamp(now);
            // before its first boundary a list has a longer window, so its clock may fall further back
            let behind = one.newest().saturating_since(at);
            if (behind <= dated.period()) != (behind <= listed.period()) {
                now = one.newest().0;
                continue;
            }
            if charges {
                dated.charge(&mut one, at, cost);
                listed.charge(&mut other, at, cost);
                dated.refund(&mut one, Refund { granted_at: at, cost: 1 });
                listed.refund(&mut other, Refund { granted_at: at, cost: 1 });
            }
            prop_assert_eq!(dated.decide(&mut one, at, cost), listed.decide(&mut other, at, cost));
            prop_assert_eq!(one.words(), other.words());
            prop_assert_eq!(dated.reset_after(&one), listed.reset_after(&other));
        }
    }

    #[test]
    fn retry_after_is_exact((limit, gaps, requests) in limits_and(|most| properties::requests(9, most).boxed())) {
        properties::retry_after_is_the_first_microsecond_that_grants(regular(limit, &gaps), requests)?;
    }

    #[test]
    fn refusals_consume_nothing((limit, gaps, requests) in limits_and(|most| properties::requests(9, most).boxed())) {
        properties::a_refusal_consumes_nothing(regular(limit, &gaps), requests)?;
    }

    #[test]
    fn an_expired_state_is_fresh(
        (limit, gaps, requests) in limits_and(|most| properties::requests(9, most).boxed()),
        later in 0_u64..100,
    ) {
        properties::from_expires_at_on_it_equals_a_fresh_one(regular(limit, &gaps), requests, Micros(later))?;
    }

    #[test]
    fn at_most_the_limit_is_granted_in_a_window((limit, gaps, requests) in limits_and(|most| properties::requests(9, most).boxed())) {
        let config = regular(limit, &gaps);
        let grants = properties::grants(config, requests);
        for &(at, _) in &grants {
            let window = config.boundaries().window(Timestamp(at));
            let within = grants.iter().filter(|grant| config.boundaries().window(Timestamp(grant.0)) == window);
            prop_assert!(within.map(|grant| grant.1).sum::<u64>() <= limit);
        }
    }

    #[test]
    fn what_is_charged_ahead_is_never_granted_twice(
        (limit, gaps, (steps, crash)) in limits_and(|most| (properties::history(40, most), properties::crash(40, most)).boxed()),
    ) {
        let _: &Crash = &crash;
        properties::what_is_charged_ahead_is_never_granted_twice(late(limit, &gaps), steps, &crash)?;
    }
}

/// A limit, gaps between boundaries, and something that depends on the limit.
fn limits_and<T: core::fmt::Debug>(
    others: impl Fn(u64) -> BoxedStrategy<T>,
) -> impl Strategy<Value = (u64, Vec<u64>, T)> {
    let gaps = proptest::collection::vec(1_u64..40, 1..8);
    (1_u64..6, gaps).prop_flat_map(move |(limit, gaps)| (Just(limit), Just(gaps), others(limit)))
}

/// Boundaries that repeat these gaps.
fn repeated(limit: u64, first: u64, gaps: &[u64]) -> Listed {
    let mut at = first;
    let next = |gap: &u64| {
        at += gap;
        at
    };
    let boundaries: Vec<u64> = gaps.iter().cycle().take(5_000).map(next).collect();
    listed(limit, &boundaries)
}

fn regular(limit: u64, gaps: &[u64]) -> Listed {
    repeated(limit, 0, gaps)
}

/// The histories of the oracle begin at this time.
fn starting_late(limit: u64, gaps: &[u64]) -> Listed {
    let mut all = vec![500_000, 999_000];
    all.extend(repeated(limit, 999_900, gaps).boundaries().sorted().iter().map(|at| at.0));
    listed(limit, &all)
}

fn late(limit: u64, gaps: &[u64]) -> Listed {
    repeated(limit, 1_700_000_000_000_000 - 300, gaps)
}
