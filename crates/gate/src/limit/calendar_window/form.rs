//! The fields of a `calendar` limit in the policy file: its period, and where windows begin.

use alloc::format;
use alloc::string::String;

use tidegate_core::Micros;
use tidegate_core::window::calendar::Every;
use tidegate_form::{Error, Form, Node, Quoted, Value};

use super::super::build::text;
use super::super::form::LimitForm;
use crate::units::{Span, whole};

/// The period of a window: a span of time, or a unit of the calendar.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Period {
    Span(Micros),
    Unit(Unit),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Day,
    Week,
    Month,
    Quarter,
    Year,
}

/// The day on which a window begins: a day of the month, or of a month of the year.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anchor {
    month: Option<u8>,
    day: u8,
}

const UNITS: [(&str, Unit); 5] = [
    ("day", Unit::Day),
    ("week", Unit::Week),
    ("month", Unit::Month),
    ("quarter", Unit::Quarter),
    ("year", Unit::Year),
];

const WEEKDAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

impl Form for Period {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let named = |text: &str| UNITS.iter().find(|(name, _)| *name == text);
        match node.text().ok().and_then(named) {
            Some((_, unit)) => Ok(Self::Unit(*unit)),
            None => node.read().map(|span: Span| Self::Span(span.0)),
        }
    }
}

impl Period {
    /// The span of a limit whose windows are no calendar's.
    pub(crate) fn span(self, algorithm: &str) -> Result<Micros, String> {
        match self {
            Self::Span(span) => Ok(span),
            Self::Unit(unit) => Err(format!(
                "`period`: expected a span of time such as \"1d\" for `{algorithm}`, found \"{}\"; `calendar` has such \
                 periods",
                unit.name()
            )),
        }
    }

    pub(super) fn unit(self) -> Result<Unit, String> {
        match self {
            Self::Unit(unit) => Ok(unit),
            Self::Span(span) => Err(format!(
                "`period`: expected \"day\", \"week\", \"month\", \"quarter\" or \"year\" for `calendar`, found \"{}\"",
                Span(span)
            )),
        }
    }
}

impl Unit {
    pub(super) fn name(self) -> &'static str {
        UNITS.iter().find(|(_, unit)| *unit == self).map_or("", |(name, _)| name)
    }

    pub(super) fn of(every: Every) -> Self {
        match every.numbers() {
            [0, 1, ..] => Self::Day,
            [0, ..] => Self::Week,
            [_, 1, ..] => Self::Month,
            [_, 3, ..] => Self::Quarter,
            _ => Self::Year,
        }
    }

    /// The windows that these fields describe.
    pub(super) fn every(self, form: &LimitForm) -> Result<Every, String> {
        let unfit = |field: &str, expected: &str| {
            let unit = self.name();
            Err(format!(
                "`{field}`: expected {expected} with `period = \"{unit}\"`, found another value"
            ))
        };
        if form.week_start.is_some() && self != Self::Week {
            return unfit("week_start", "no such field");
        }
        let first = Anchor { month: None, day: 1 };
        let (count, month, day) = match (self, form.anchor.unwrap_or(first)) {
            (Self::Day | Self::Week, _) if form.anchor.is_some() => {
                return unfit("anchor", "no such field");
            }
            (Self::Day, _) => return Ok(Every::day()),
            (Self::Week, _) => {
                let start = form.week_start.as_deref().unwrap_or("monday");
                let found = (0..).zip(WEEKDAYS).find(|(_, name)| *name == start);
                return found.and_then(|(day, _)| Every::week(day).ok()).ok_or_else(|| {
                    let found = Quoted(start);
                    format!("`week_start`: expected a day such as \"monday\", found {found}")
                });
            }
            (Self::Month, Anchor { month: None, day }) => (1, 1, day),
            (Self::Month, _) => return unfit("anchor", "a day from 1 to 31"),
            (Self::Quarter | Self::Year, Anchor { month: None, .. }) if form.anchor.is_some() => {
                return unfit("anchor", "a month and a day such as \"04-06\"");
            }
            (Self::Quarter, Anchor { month, day }) => (3, month.unwrap_or(1), day),
            (Self::Year, Anchor { month, day }) => (12, month.unwrap_or(1), day),
        };
        Every::months(count, month, day).map_err(text)
    }
}

/// The name of a day of the week: 0 is Monday.
pub(super) fn weekday(day: u64) -> &'static str {
    usize::try_from(day).ok().and_then(|day| WEEKDAYS.get(day)).unwrap_or(&"")
}

impl Form for Anchor {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let date = match &node.value {
            Value::Natural(day) => Some((None, *day)),
            Value::Text(text) if text.len() == 5 => text
                .split_once('-')
                .and_then(|(month, day)| Some((Some(small(whole(month)?)), whole(day)?))),
            _ => None,
        };
        let anchor = date.map(|(month, day)| Self { month, day: small(day) });
        let is_date = |anchor: &Self| match anchor.month {
            Some(month) => Every::months(12, month, anchor.day).is_ok(),
            None => (1..=31).contains(&anchor.day),
        };
        let expected = "a day from 1 to 31, or a month and a day such as \"04-06\"";
        anchor.filter(is_date).ok_or_else(|| node.refused(expected))
    }
}

fn small(number: u64) -> u8 {
    u8::try_from(number).unwrap_or_default()
}
