//! A limiter in numbers: for fingerprints, for states that outlive an edit of their policy, and for
//! callers that pass limits over a plain ABI.

use alloc::vec::Vec;

use tidegate_core::{ConfigError, MAX_QUANTITY};

use super::algorithm::Algorithm;
use super::{Limit, NamedLimit, algorithms, ask};
use crate::key::Depth;

/// In the numbers of a limit in shadow, this comes before the algorithm's number, which it must not be.
const SHADOW: u64 = 200;

/// In the numbers of a payer, this and its place among the payers come before the algorithm's number, which they must not be.
const PAYER: u64 = 201;

/// As many as a rule may have limits.
const MOST_PAYERS: u64 = 16;

/// Writes for each limit the count of its numbers and then its [`parameters`](Limit::parameters).
pub(crate) fn write<'a>(limits: impl IntoIterator<Item = &'a NamedLimit>) -> Vec<u64> {
    let parameters = |each: &NamedLimit| {
        let shadow = each.shadow.then_some(SHADOW);
        let payer = each.payer.map(|place| PAYER.saturating_add(place.into()));
        shadow.into_iter().chain(payer).chain(each.limit.parameters()).collect()
    };
    counted(limits.into_iter().map(parameters))
}

/// Does the same with the [`identity`](Limit::identity) of each limit, in shadow or not. [`read`] reads it, too.
pub(crate) fn write_identity<'a>(limits: impl IntoIterator<Item = &'a Limit>) -> Vec<u64> {
    counted(limits.into_iter().map(Limit::identity))
}

fn counted(all: impl Iterator<Item = Vec<u64>>) -> Vec<u64> {
    let mut words = Vec::new();
    for numbers in all {
        words.push(wide(numbers.len()));
        words.extend(numbers);
    }
    words
}

/// Reads what [`write()`] wrote: limits that count by the whole key.
///
/// # Errors
/// Fails with [`ConfigError`] for anything else.
pub(crate) fn read(mut words: &[u64]) -> Result<Vec<NamedLimit>, ConfigError> {
    let mut limits = Vec::new();
    while let Some((&length, rest)) = words.split_first() {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let unfit = invalid("parameters", wide(rest.len()));
        let (parameters, rest) = rest.split_at_checked(length).ok_or(unfit)?;
        let (parameters, shadow, payer) = match parameters {
            [SHADOW, parameters @ ..] => (parameters, true, None),
            [place, parameters @ ..] if (PAYER..PAYER + MOST_PAYERS).contains(place) => {
                (parameters, false, place.checked_sub(PAYER).and_then(|it| it.try_into().ok()))
            }
            parameters => (parameters, false, None),
        };
        let limit = NamedLimit::unnamed(Limit::from_parameters(parameters)?, Depth::Whole);
        limits.push(NamedLimit { shadow, payer, ..limit });
        words = rest;
    }
    Ok(limits)
}

macro_rules! of_number {
    ([$($(#[$about:meta])* $name:ident($config:ty),)*] $number:expr, $numbers:expr) => {
        match $number {
            $(<$config as Algorithm>::NUMBER => of($numbers, Limit::$name),)*
            found => Err(invalid("algorithm", found)),
        }
    };
}

impl Limit {
    /// The configuration in numbers, which no other configuration has. The first number is the algorithm's.
    #[must_use]
    pub fn parameters(&self) -> Vec<u64> {
        ask!(self, |limiter| parameters_of(limiter))
    }

    /// The algorithm's number, and the numbers that tell states of the limit from those of other limits.
    pub(super) fn identity(&self) -> Vec<u64> {
        ask!(self, |limiter| identity_of(limiter))
    }

    /// The algorithm's number, and the numbers that a count belongs to.
    pub(crate) fn count(&self) -> Vec<u64> {
        ask!(self, |limiter| count_of(limiter))
    }

    /// The limiter with these [`parameters`](Self::parameters).
    ///
    /// # Errors
    /// Fails with [`ConfigError`] for numbers that no configuration has.
    pub fn from_parameters(parameters: &[u64]) -> Result<Self, ConfigError> {
        let [number, numbers @ ..] = parameters else { return Err(invalid("parameters", 0)) };
        algorithms!(of_number * number, numbers)
    }
}

fn parameters_of<A: Algorithm>(limiter: &A) -> Vec<u64> {
    [A::NUMBER].into_iter().chain(limiter.numbers()).collect()
}

fn identity_of<A: Algorithm>(limiter: &A) -> Vec<u64> {
    [A::NUMBER].into_iter().chain(limiter.identity()).collect()
}

fn count_of<A: Algorithm>(limiter: &A) -> Vec<u64> {
    [A::NUMBER].into_iter().chain(limiter.count()).collect()
}

fn of<A: Algorithm>(numbers: &[u64], limit: fn(A) -> Limit) -> Result<Limit, ConfigError> {
    A::of_numbers(numbers).map(limit)
}

pub(super) const fn invalid(field: &'static str, found: u64) -> ConfigError {
    ConfigError::OutOfRange { field, found, least: 1, most: MAX_QUANTITY }
}

/// The error for too many or too few numbers, or for numbers that no configuration has.
pub(super) fn unfit(numbers: &[u64]) -> ConfigError {
    invalid("parameters", wide(numbers.len()))
}

/// Converts a length in memory, which always fits.
pub(super) fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
