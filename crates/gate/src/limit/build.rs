//! Builds the limiter of a form.

use alloc::format;
use alloc::string::{String, ToString};

use tidegate_core::shed::Share;
use tidegate_core::{ConfigError, Micros, lease};

use super::algorithm::Algorithm;
use super::form::{AlgorithmName, LimitForm};
use super::{Limit, algorithms};
use crate::units::{Percent, Span};

macro_rules! limit_of {
    ([$($(#[$about:meta])* $name:ident($config:ty),)*] $form:ident) => {
        match required("algorithm", $form.algorithm)? {
            $(AlgorithmName::$name => $form.made(Limit::$name),)*
        }
    };
}

impl LimitForm {
    pub(super) fn limit(&self) -> Result<Limit, String> {
        algorithms!(named limit_of self)
    }

    fn made<A: Algorithm>(&self, limit: fn(A) -> Limit) -> Result<Limit, String> {
        self.has_no_other(A::NAME, A::FIELDS)?;
        A::read(self).map(limit)
    }

    /// The file's `max_leases`; by default the capacity, or the most leases that a state may have.
    pub(crate) fn max_leases(&self, capacity: u64) -> u64 {
        self.max_leases.map_or(capacity.min(lease::MAX_ENTRIES), |leases| leases.get())
    }

    fn has_no_other(&self, algorithm: &str, allowed: &[&str]) -> Result<(), String> {
        match self.given().find(|field| !allowed.contains(field)) {
            Some(field) => Err(format!(
                "expected only fields of `{algorithm}` (`{}`), found `{field}`",
                allowed.join("`, `")
            )),
            None => Ok(()),
        }
    }
}

/// The text of an error, with quantities in the units of the file rather than in µs and millionths.
pub(crate) fn text(error: ConfigError) -> String {
    match error {
        ConfigError::OutOfRange { field, found, least, most } => {
            let [found, least, most] = [found, least, most].map(|it| as_written(field, it));
            format!("`{field}`: expected {least} to {most}, found {found}")
        }
        ConfigError::ScaleTooFine { field, found, nearest } => {
            let [found, nearest] = [found, nearest].map(|it| as_written(field, it));
            format!(
                "`{field}`: expected at most {nearest}, because exact 64-bit arithmetic cannot hold more \
                 beside the other values; found {found}"
            )
        }
        ConfigError::UnevenSegments { period, segments, nearest } => {
            let [period, nearest] = [period, nearest].map(Span);
            format!(
                "`segments`: expected a number that divides the period {period} into whole \
                 microseconds, found {segments}; the nearest period that {segments} divides is {nearest}"
            )
        }
        ConfigError::UnorderedThresholds { good_ppm, bad_ppm } => {
            let [good, bad] = [good_ppm, bad_ppm].map(|ppm| as_written("good", ppm.into()));
            format!("`good`: expected 0% < good ≤ bad < 100%, found good = {good} and bad = {bad}")
        }
        other => other.to_string(),
    }
}

fn as_written(field: &str, value: u64) -> String {
    match field {
        "reserve" | "good" | "bad" => {
            let share = u32::try_from(value).ok().and_then(Share::from_ppm);
            share.map_or_else(|| value.to_string(), |share| Percent(share).to_string())
        }
        "period" | "min_gap" | "time_to_live" | "expiry" | "time" | "delay" | "full" | "within"
        | "duration" | "max" | "forgive_after" | "longest" | "remember" => {
            Span(Micros(value)).to_string()
        }
        _ => value.to_string(),
    }
}

pub(crate) fn required<T>(field: &str, value: Option<T>) -> Result<T, String> {
    value.ok_or_else(|| format!("missing field `{field}`"))
}
