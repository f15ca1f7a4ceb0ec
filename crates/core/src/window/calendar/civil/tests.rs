use super::{DAY_US, Every, Shift, Zone, day_of, days_of, month_of};
use crate::Timestamp;

#[test]
fn every_day_of_a_month_belongs_to_it() {
    for month in -9_600_i64..9_600 {
        let (year, of_year) = (1970 + month.div_euclid(12), 1 + month.rem_euclid(12));
        let first = day_of(year, of_year, 1);
        let next = first + days_of(year, of_year);
        assert_eq!(month_of(first), month, "the first of {year}-{of_year}");
        assert_eq!(month_of(next - 1), month, "the last of {year}-{of_year}");
        assert_eq!(month_of(next), month + 1, "the day after {year}-{of_year}");
    }
}

/// From elsewhere it would find the same window after many steps.
#[test]
fn the_search_for_a_window_begins_at_it_or_at_the_next() {
    let months = |count, month, day| Every::months(count, month, day).unwrap();
    for every in [
        Every::day(),
        Every::week(0).unwrap(),
        Every::week(6).unwrap(),
        months(1, 1, 1),
        months(1, 1, 31),
        months(3, 2, 29),
        months(12, 4, 6),
    ] {
        for day in (-300_000..300_000).step_by(97).chain(-800..800) {
            let index = every.index(day);
            assert!(every.first_day(index - 1) <= day, "{every:?} begins too late for {day}");
            assert!(every.first_day(index + 1) > day, "{every:?} begins too early for {day}");
        }
    }
}

#[test]
fn a_date_is_that_of_local_time() {
    let hours = |hours: u64| Timestamp(hours * 3_600_000_000);
    let shift = |from, offset_h: i32| Shift { from: hours(from), offset_s: offset_h * 3_600 };
    let zone = Zone::new([shift(48, -5), shift(480, 2)], hours(960)).unwrap();
    for (at, day) in [(0, -1), (5, 0), (48, 1), (53, 2), (479, 19), (480, 20), (501, 20), (502, 21)]
    {
        assert_eq!(zone.day_at(at * DAY_US / 24), day, "{at} hours after the epoch");
    }
}
