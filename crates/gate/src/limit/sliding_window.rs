//! `sliding_window`: a number of units in a window of weighted segments.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::lease::budget::Refundable;
use tidegate_core::window::sliding::{Config, State};
use tidegate_core::{Ahead, Limiter, RateLimiter, Timestamp};
use tidegate_core::{ConfigError, Micros};

use super::Kind;
use super::algorithm::{Algorithm, Decided, asks_a_rate_limiter, charges_ahead};
use super::build::{required, text};
use super::describe::span;
use super::form::LimitForm;
use super::parameters::{unfit, wide};
use super::request::Request;

impl Algorithm for Config {
    const NAME: &'static str = "sliding_window";
    const NUMBER: u64 = 3;
    const FIELDS: &'static [&'static str] = &["limit", "period", "segments"];

    fn read(form: &LimitForm) -> Result<Self, String> {
        let limit = required("limit", form.limit)?.get();
        let period = required("period", form.period)?.span(Self::NAME)?;
        let segments = form.segments.map_or(1, |segments| segments.get());
        Self::new(limit, period, segments).map_err(text)
    }

    fn numbers(&self) -> Vec<u64> {
        [self.limit(), self.period().0, wide(self.segments())].into()
    }

    fn of_numbers(numbers: &[u64]) -> Result<Self, ConfigError> {
        let [limit, period, segments] = *numbers else { return Err(unfit(numbers)) };
        Self::new(limit, Micros(period), segments)
    }

    fn count(&self) -> Vec<u64> {
        [self.period().0, wide(self.segments())].into()
    }

    fn describe(&self) -> String {
        let (limit, period, segments) = (self.limit(), self.period(), wide(self.segments()));
        let segment = Micros(period.0.checked_div(segments).unwrap_or(period.0));
        let [period, segment] = [period, segment].map(span);
        format!("{limit} in {period}, slid by {segments} segments of {segment}")
    }

    asks_a_rate_limiter!();

    charges_ahead!();
}
