//! The boundaries of a calendar, found by walking from day to day.

/// What a window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the configuration's")]
pub enum Every {
    Day,
    /// Weeks that begin with this day; 0 is Monday.
    Week {
        first_day: i64,
    },
    /// `count` months, one of which begins in this month on this day.
    Months {
        count: i64,
        month: i64,
        day: i64,
    },
}

/// A date, and its number since 1970-01-01, which was a Thursday.
#[derive(Clone, Copy)]
struct Date {
    year: i64,
    month: i64,
    day: i64,
    number: i64,
}

impl Date {
    fn is_last_of_month(self) -> bool {
        let leap = self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0);
        let february = if leap { 29 } else { 28 };
        let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        (1..).zip(lengths).any(|each| each == (self.month, self.day))
    }

    fn next(self) -> Self {
        let number = self.number + 1;
        match (self.is_last_of_month(), self.month) {
            (false, _) => Self { day: self.day + 1, number, ..self },
            (true, 12) => Self { year: self.year + 1, month: 1, day: 1, number },
            (true, _) => Self { month: self.month + 1, day: 1, number, ..self },
        }
    }

    fn begins(self, every: Every) -> bool {
        match every {
            Every::Day => true,
            Every::Week { first_day } => (self.number + 3) % 7 == first_day,
            Every::Months { count, month, day } => {
                (self.month + 12 - month) % count == 0
                    && (self.day == day || self.day < day && self.is_last_of_month())
            }
        }
    }
}

/// The boundaries from 1970 up to the begin of `end_year`, in microseconds since the epoch, without those before it. Each shift is
/// the instant, in microseconds, from which local time is ahead of UTC by some seconds. Each date begins at the first
/// instant that shows this date or a later one.
#[must_use]
pub fn boundaries(every: Every, shifts: &[(i128, i128)], end_year: i64) -> Vec<i128> {
    let mut found = Vec::new();
    let mut date = Date { year: 1970, month: 1, day: 1, number: 0 };
    while date.year < end_year {
        if date.begins(every) {
            found.push(start(i128::from(date.number) * 86_400_000_000, shifts));
        }
        date = date.next();
    }
    found.retain(|instant| *instant > 0);
    found.dedup();
    found
}

/// The first instant whose local time is `midnight` or later: it is a change of the offset, or its local time is midnight.
fn start(midnight: i128, shifts: &[(i128, i128)]) -> i128 {
    let offset = |at: i128| {
        let past = shifts.iter().rfind(|shift| shift.0 <= at);
        past.or(shifts.first()).map_or(0, |shift| shift.1 * 1_000_000)
    };
    let exact = shifts.iter().map(|shift| midnight - shift.1 * 1_000_000).chain([midnight]);
    let all = exact.chain(shifts.iter().map(|shift| shift.0));
    let first = all.filter(|at| at + offset(*at) >= midnight).min();
    first.unwrap_or(midnight)
}
