//! The fields of a `calendar` limit in the policy file: its period, and where windows begin.

use alloc::format;
use alloc::string::String;

use tidegate_core::Micros;
use tidegate_core::window::calendar::Every;
use tidegate_form::{Error, Form, Node, Quoted, Value};

use super::super::build::text;
use super::super::form::LimitForm;
use crate::units::Span;

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

/// A day of the week: 0 is Monday.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weekday(u8);

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

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday(0)),
    ("tuesday", Weekday(1)),
    ("wednesday", Weekday(2)),
    ("thursday", Weekday(3)),
    ("friday", Weekday(4)),
    ("saturday", Weekday(5)),
    ("sunday", Weekday(6)),
];

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
                let start = form.week_start.map_or(0, |day| day.0);
                return Every::week(start).map_err(text);
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

impl Weekday {
    /// The first day of these weeks. 1970-01-01 was a Thursday.
    pub(super) fn first_of(weeks: Every) -> Self {
        let [_, _, first, _] = weeks.numbers();
        Self(u8::try_from(first.saturating_add(3) % 7).unwrap_or_default())
    }

    pub(super) fn name(self) -> &'static str {
        WEEKDAYS.get(usize::from(self.0)).map_or("", |(name, _)| name)
    }
}

impl Form for Weekday {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.one_of(&WEEKDAYS)
    }
}

impl Form for Anchor {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let small = |number: u64| u8::try_from(number).unwrap_or_default();
        if let Value::Natural(_) = node.value {
            return node.whole(1, 31).map(|day| Self { month: None, day: small(day) });
        }
        node.parse(|text| {
            let date = text.split_once('-').and_then(|(month, day)| {
                let two = |digits: &str| (digits.len() == 2).then(|| digits.parse().ok()).flatten();
                Some((two(month)?, two(day)?))
            });
            match date {
                Some((month, day)) if Every::months(12, month, day).is_ok() => {
                    Ok(Self { month: Some(month), day })
                }
                _ => Err(format!(
                    "expected a day from 1 to 31, or a month and a day such as \"04-06\"; found {}",
                    Quoted(text)
                )),
            }
        })
    }
}
