//! `calendar`: a number of units in each day, week, month, quarter or year of a time zone.
//!
//! `core` counts between sorted instants. Where the clocks of a zone change comes from outside: [`zone`] reads it from the
//! policy (`zone_data`), or [`tzdb`] takes it from the time zone database. So a Worker and the npm package, for which the
//! database is too large, need nothing but the text of the policy.

pub(super) mod form;
#[cfg(test)]
mod tests;
#[cfg(feature = "timezones")]
mod tzdb;
pub(super) mod zone;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::hold::Counter;
use tidegate_core::lease::budget::Refundable;
use tidegate_core::window::calendar::{self, Boundaries, Calendar, Every, State as StateOf};
use tidegate_core::{Ahead, Limiter, RateLimiter, Timestamp};
use tidegate_core::{ConfigError, Micros};

use super::algorithm::{Algorithm, Decided, asks_a_rate_limiter, charges_ahead};
use super::build::{required, text};
use super::form::LimitForm;
use super::parameters::unfit;
use super::request::Request;
use super::{Kind, Limit};
use form::Unit;
use zone::Shifts;
pub use zone::Timezone;

pub type Config = calendar::Config<Calendar<Shifts>>;
type State<W> = StateOf<Calendar<Shifts>, W>;

impl Algorithm for Config {
    const NAME: &'static str = "calendar";
    const NUMBER: u64 = 12;
    const FIELDS: &'static [&'static str] =
        &["limit", "period", "timezone", "anchor", "week_start", "zone_data"];

    fn read(form: &LimitForm) -> Result<Self, String> {
        let limit = required("limit", form.limit)?.get();
        let every = required("period", form.period)?.unit()?.every(form)?;
        let zone = zone::of(form.timezone.as_deref(), form.zone_data.as_deref())?;
        Self::new(limit, Calendar::new(every, zone)).map_err(text)
    }

    fn numbers(&self) -> Vec<u64> {
        let mut numbers = self.identity();
        zone::write_data(self.boundaries().zone(), &mut numbers);
        numbers
    }

    /// The rules of a time zone may change while its counts stay, so only its name counts.
    fn identity(&self) -> Vec<u64> {
        let mut numbers = Vec::from([self.limit()]);
        numbers.extend(self.count());
        numbers
    }

    fn of_numbers(numbers: &[u64]) -> Result<Self, ConfigError> {
        let (&[limit, months, count, start, day], zone) =
            numbers.split_first_chunk().ok_or(unfit(numbers))?;
        let every = Every::of_numbers([months, count, start, day])?;
        let zone = zone::of_numbers(zone).ok_or(unfit(numbers))?;
        Self::new(limit, Calendar::new(every, zone))
    }

    fn count(&self) -> Vec<u64> {
        let mut numbers = Vec::from(self.boundaries().every().numbers());
        numbers.push(zone::hash(self.boundaries().zone()));
        numbers
    }

    fn describe(&self) -> String {
        let (limit, calendar) = (self.limit(), self.boundaries());
        let (unit, [_, _, start, day]) = (Unit::of(calendar.every()), calendar.every().numbers());
        let from = match unit {
            Unit::Day => String::new(),
            Unit::Week => format!(" from {} on", form::weekday(start)),
            _ if (start, day) == (1, 1) => String::new(),
            Unit::Month => format!(" from day {day} on"),
            Unit::Quarter | Unit::Year => format!(" from {start:02}-{day:02} on"),
        };
        format!("{limit} every calendar {}{from}, {}", unit.name(), zone::name(calendar.zone()))
    }

    asks_a_rate_limiter!();

    charges_ahead!();
}

/// The windows of a `calendar` limit.
#[derive(Clone, Copy, Debug)]
pub struct CalendarFacts<'a>(&'a Config);

impl<'a> CalendarFacts<'a> {
    /// The time zone, and how far its data reach.
    #[must_use]
    pub fn timezone(&self) -> Timezone<'a> {
        zone::facts(self.0.boundaries().zone())
    }

    /// The instant from which all windows are known, and the last known boundary. The window that begins there does not end: a
    /// key gets its limit once more, and is then refused until the zone has newer data. An error would let everything pass
    /// under a policy with `on_error = "open"`.
    #[must_use]
    pub fn reach(&self) -> (Timestamp, Timestamp) {
        self.0.boundaries().reach()
    }

    /// The field `zone_data` of a policy that knows the zone between these instants, as far as this one knows it. A `calendar`
    /// limit that has it needs no time zone database. `None` for UTC, which needs no data.
    #[must_use]
    pub fn zone_data(&self, from: Timestamp, until: Timestamp) -> Option<String> {
        zone::data(self.0.boundaries().zone(), from, until)
    }

    /// The instants after `now` at which a window begins, in ascending order.
    pub fn boundaries_after(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> + use<'a> {
        let calendar = self.0.boundaries();
        let next = |at: &Timestamp| calendar.window(*at).end;
        core::iter::successors(next(&now), next)
    }
}

impl Limit {
    /// The windows of a `calendar` limit; `None` for any other limit.
    ///
    /// ```
    /// use tidegate_gate::{Policy, Timestamp};
    /// let policy = Policy::parse("api", r#"
    ///     limits = [{ algorithm = "calendar", limit = 10_000, period = "month", anchor = 31 }]
    /// "#).unwrap();
    /// let calendar = policy.limits().iter().next().unwrap().limit.calendar().unwrap();
    /// let january_31 = Timestamp(1_706_659_200_000_000); // 2024
    /// let mut boundaries = calendar.boundaries_after(january_31);
    /// assert_eq!(boundaries.next(), Some(Timestamp(1_709_164_800_000_000))); // 29 February
    /// assert_eq!(boundaries.next(), Some(Timestamp(1_711_843_200_000_000))); // 31 March
    /// ```
    #[must_use]
    pub fn calendar(&self) -> Option<CalendarFacts<'_>> {
        match self {
            Self::Calendar(config) => Some(CalendarFacts(config)),
            Self::Holding(holding) => match holding.counter() {
                Counter::Calendar(config) => Some(CalendarFacts(config)),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Limit {
    /// The version of the time zone database by which a `calendar` limit counts; `None` for UTC and for other limits, which need none.
    #[must_use]
    pub fn zone_version(&self) -> Option<&str> {
        let version = self.calendar()?.timezone().version;
        (!version.is_empty()).then_some(version)
    }
}

/// The field `zone_data` for a time zone between two instants; `None` for UTC, which needs none, and for a zone that the time
/// zone database does not have.
#[cfg(feature = "timezones")]
#[must_use]
pub fn zone_data(name: &str, from: Timestamp, until: Timestamp) -> Option<String> {
    zone::data(&zone::of_database(name)?, from, until)
}
