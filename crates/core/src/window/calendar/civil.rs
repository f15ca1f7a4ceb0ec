//! The boundaries of calendar windows: dates of the Gregorian calendar, and the instants at which they begin in a time zone.
//!
//! Days are counted from 1970-01-01. The conversions between days and dates are those of Howard Hinnant, "chrono-Compatible
//! Low-Level Date Algorithms". A date begins at the first instant whose local time is its midnight or later: where a clock
//! is put forward over midnight, at the end of that gap; where midnight comes twice, at the first one.
#![expect(
    clippy::arithmetic_side_effects,
    reason = "a time is at most 2^53 µs and an offset less than two days, so no sum or product comes near 2^63"
)]

use core::fmt::Debug;

use super::{Boundaries, Window, sealed_boundaries, split};
use crate::never::never;
use crate::quantity::{ConfigError, MAX_QUANTITY, in_bounds};
use crate::time::{Micros, Timestamp};

/// From this instant on, local time is this many seconds ahead of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shift {
    /// The instant of the change.
    pub from: Timestamp,
    /// Seconds to add to UTC, less than [`Zone::MOST_OFFSET_S`] to either side.
    pub offset_s: i32,
}

/// A time zone: the instants at which its offset from UTC changes, in ascending order, and the instant until which they are
/// known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Zone<S> {
    shifts: S,
    until: Timestamp,
    /// The least and the greatest offset.
    offsets_s: (i32, i32),
}

/// What the windows of a calendar are: days, weeks, months, quarters or years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Every {
    /// Whether windows are counted in months; otherwise in days.
    months: bool,
    /// The months or days of a window.
    count: i64,
    /// The day of the week (0 is Monday) or the month (1 to 12) in which some window begins.
    start: i64,
    /// The day of the month on which a window begins. In a shorter month it begins on the last day.
    day: i64,
}

/// The windows of a calendar in a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Calendar<S> {
    every: Every,
    zone: Zone<S>,
    /// The last known boundary.
    last: Timestamp,
}

impl<S: AsRef<[Shift]>> Zone<S> {
    /// No local time is this many seconds ahead of UTC or behind it.
    pub const MOST_OFFSET_S: u32 = 26 * 3_600;

    /// A zone without a shift is UTC. Otherwise the zone is known from the first shift on.
    ///
    /// # Errors
    /// Returns [`ConfigError::OutOfRange`] if the instants do not ascend from 0 to `until`, if `until` is above 2^53 − 1, or if an
    /// offset is too large.
    pub fn new(shifts: S, until: Timestamp) -> Result<Self, ConfigError> {
        let mut least = 0;
        let first = shifts.as_ref().first().map_or(0, |first| first.offset_s);
        let mut offsets_s = (first, first);
        for shift in shifts.as_ref() {
            in_bounds("from", shift.from.0, least, MAX_QUANTITY)?;
            let offset = shift.offset_s.unsigned_abs().into();
            in_bounds("offset", offset, 0, (Self::MOST_OFFSET_S - 1).into())?;
            offsets_s = (offsets_s.0.min(shift.offset_s), offsets_s.1.max(shift.offset_s));
            least = shift.from.0 + 1;
        }
        in_bounds("until", until.0, least, MAX_QUANTITY)?;
        Ok(Self { shifts, until, offsets_s })
    }

    /// What the zone was made of.
    #[must_use]
    pub const fn table(&self) -> &S {
        &self.shifts
    }

    /// The instants at which the offset changes.
    #[must_use]
    pub fn shifts(&self) -> &[Shift] {
        self.shifts.as_ref()
    }

    /// The instant until which the changes are known.
    #[must_use]
    pub const fn until(&self) -> Timestamp {
        self.until
    }

    /// The instant from which the changes are known.
    fn first(&self) -> Timestamp {
        self.shifts().first().map_or(Timestamp::EPOCH, |first| first.from)
    }

    /// The first instant whose local time is that of this date's midnight or later.
    #[cfg_attr(target_arch = "wasm32", inline(never))] // one copy of the code is enough
    fn start_of(&self, day: i64) -> i64 {
        let midnight = day * DAY_US;
        // what ends that early shows an earlier local time until its end
        let begun = micros(midnight - i64::from(Self::MOST_OFFSET_S) * 1_000_000);
        let (past, mut coming) = split(self.shifts(), |shift| shift.from <= begun);
        let mut from = i64::MIN;
        let mut offset = past.last().or(coming.first()).map_or(0, offset_us);
        loop {
            let start = from.max(midnight - offset);
            match coming {
                [next, rest @ ..] if signed(next.from) <= start => {
                    (from, offset) = (signed(next.from), offset_us(next));
                    coming = rest;
                }
                _ => return start,
            }
        }
    }

    /// The date at an instant.
    #[cfg_attr(target_arch = "wasm32", inline(never))] // one copy of the code is enough
    fn day_at(&self, at: i64) -> i64 {
        let (past, coming) = split(self.shifts(), |shift| signed(shift.from) <= at);
        let offset = past.last().or(coming.first()).map_or(0, offset_us);
        (at + offset).div_euclid(DAY_US)
    }
}

impl Every {
    /// Days.
    #[must_use]
    pub const fn day() -> Self {
        Self { months: false, count: 1, start: 0, day: 1 }
    }

    /// Weeks that begin with this day: 0 is Monday, and 6 is Sunday.
    ///
    /// # Errors
    /// Returns [`ConfigError::OutOfRange`] for another number.
    pub fn week(first_day: u8) -> Result<Self, ConfigError> {
        in_bounds("week_start", first_day.into(), 0, 6)?;
        Ok(Self { months: false, count: 7, start: first_day.into(), day: 1 })
    }

    /// One month (`count` is 1), a quarter (3) or a year (12) from this day of this month on. In a month that has no such day,
    /// a window begins on the month's last day; later windows begin on this day again.
    ///
    /// # Errors
    /// Returns [`ConfigError::OutOfRange`] for another count, for a month beyond 12, or for a day that the month never has. If
    /// windows begin in each month, the month does not matter.
    pub fn months(count: u8, month: u8, day: u8) -> Result<Self, ConfigError> {
        if !matches!(count, 1 | 3 | 12) {
            return Err(not_one("count", count));
        }
        in_bounds("month", month.into(), 1, 12)?;
        let longest = if count == 1 { 31 } else { days_of(LEAP_YEAR, month.into()) };
        in_bounds("anchor", day.into(), 1, longest.unsigned_abs())?;
        // each month begins a window
        let start = if count == 1 { 1 } else { month.into() };
        Ok(Self { months: true, count: count.into(), start, day: day.into() })
    }

    /// The numbers that no other `Every` has, for fingerprints: whether windows are counted in months; how many months or days; the
    /// first day of a week, or the month in which a window begins; and the day of that month.
    #[must_use]
    pub fn numbers(&self) -> [u64; 4] {
        let Self { months, count, start, day } = *self;
        [months.into(), count.unsigned_abs(), start.unsigned_abs(), day.unsigned_abs()]
    }

    /// What has these [`numbers`](Self::numbers).
    ///
    /// # Errors
    /// Returns [`ConfigError::OutOfRange`] for other numbers.
    pub fn of_numbers(numbers: [u64; 4]) -> Result<Self, ConfigError> {
        let [months, count, start, day] =
            numbers.map(|number| u8::try_from(number).unwrap_or(u8::MAX));
        match (months, count, day) {
            (0, 1, 1) if start == 0 => Ok(Self::day()),
            (0, 7, 1) => Self::week(start),
            (1, 1, _) if start > 1 => Err(not_one("month", start)),
            (1, ..) => Self::months(count, start, day),
            _ => Err(not_one("count", count)),
        }
    }

    /// The month (from January 1970) or the day with which the window of the number 0 begins.
    fn phase(&self) -> i64 {
        match self.count {
            7 => self.start + 4, // 5 January 1970 was the first Monday
            _ => self.start - i64::from(self.months),
        }
    }

    /// The number of the window to which a date belongs, or of the next one if the window of its month begins later.
    fn index(&self, day: i64) -> i64 {
        let at = if self.months { month_of(day) } else { day };
        (at - self.phase()).div_euclid(self.count)
    }

    /// The date with which a window begins.
    #[cfg_attr(target_arch = "wasm32", inline(never))] // one copy of the code is enough
    fn first_day(&self, index: i64) -> i64 {
        let first = index * self.count + self.phase();
        if !self.months {
            return first;
        }
        let (year, month) = (1970 + first.div_euclid(12), 1 + first.rem_euclid(12));
        day_of(year, month, self.day.min(days_of(year, month)))
    }

    /// The length of the longest window, if no clock is changed.
    const fn longest_us(&self) -> i64 {
        match (self.months, self.count) {
            (false, days) => days * DAY_US,
            (true, 1) => 31 * DAY_US,
            (true, 3) => 92 * DAY_US,
            _ => 366 * DAY_US,
        }
    }
}

impl<S: AsRef<[Shift]>> Calendar<S> {
    /// The windows of the zone's calendar.
    #[must_use]
    pub fn new(every: Every, zone: Zone<S>) -> Self {
        let mut calendar = Self { every, zone, last: Timestamp::EPOCH };
        calendar.last = calendar.around(calendar.zone.until).begin;
        calendar
    }

    /// What a window is.
    #[must_use]
    pub const fn every(&self) -> Every {
        self.every
    }

    /// The time zone.
    #[must_use]
    pub const fn zone(&self) -> &Zone<S> {
        &self.zone
    }

    /// No boundary lies before the known part of the zone, and none after the last known boundary.
    #[cfg_attr(target_arch = "wasm32", inline(never))] // one copy of the code is enough
    fn around(&self, at: Timestamp) -> Window {
        let (first, last) = (signed(self.zone.first()), signed(self.zone.until));
        let at = signed(at.min(self.zone.until)).max(first);
        let mut index = self.every.index(self.zone.day_at(at)) + 1;
        let mut end = self.start_of(index);
        while end <= at {
            index += 1; // the zone skipped a day, or put its clock back over the midnight that has been
            end = self.start_of(index);
        }
        let mut begin = self.start_of(index - 1);
        while begin > at {
            index -= 1; // the month's window begins later
            (begin, end) = (self.start_of(index - 1), begin);
        }
        let begin = if begin <= first { Timestamp::EPOCH } else { micros(begin) };
        Window { begin, end: (end <= last).then(|| micros(end)) }
    }

    fn start_of(&self, index: i64) -> i64 {
        self.zone.start_of(self.every.first_day(index))
    }
}

impl<S> sealed_boundaries::Sealed for Calendar<S> {}

impl<S: AsRef<[Shift]> + Clone + Debug + Eq> Boundaries for Calendar<S> {
    fn window(&self, at: Timestamp) -> Window {
        self.around(at)
    }

    fn longest(&self) -> Micros {
        let (least, most) = self.zone.offsets_s;
        let spread = u64::from(most.abs_diff(least)) * 1_000_000;
        Micros(self.every.longest_us().unsigned_abs() + spread)
    }

    fn reach(&self) -> (Timestamp, Timestamp) {
        (self.zone.first(), self.last)
    }
}

fn not_one(field: &'static str, found: u8) -> ConfigError {
    ConfigError::OutOfRange { field, found: found.into(), least: 1, most: 12 }
}

const LEAP_YEAR: i64 = 1972;
const DAY_US: i64 = 86_400_000_000;

/// The month of a date, counted from January 1970.
#[cfg_attr(target_arch = "wasm32", inline(never))] // one copy of the code is enough
const fn month_of(day: i64) -> i64 {
    let shifted = day + 719_468; // from 0000-03-01
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    (era * 400 + year_of_era - 1970) * 12 + month_from_march + 2
}

/// The day of a date of the Gregorian calendar.
#[cfg_attr(target_arch = "wasm32", inline(never))] // one copy of the code is enough
const fn day_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The number of days of a month.
const fn days_of(year: i64, month: i64) -> i64 {
    let next = if month == 12 { day_of(year + 1, 1, 1) } else { day_of(year, month + 1, 1) };
    next - day_of(year, month, 1)
}

fn offset_us(shift: &Shift) -> i64 {
    i64::from(shift.offset_s) * 1_000_000
}

/// Times of a zone are at most 2^53 − 1.
fn signed(time: Timestamp) -> i64 {
    i64::try_from(time.0).unwrap_or_else(|_| never(i64::MAX))
}

/// The instant, or the epoch if it comes before it.
fn micros(at: i64) -> Timestamp {
    Timestamp(u64::try_from(at).unwrap_or_default())
}

#[cfg(test)]
mod tests;
