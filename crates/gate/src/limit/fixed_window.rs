//! `fixed_window`: a number of units in every aligned window.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::lease::budget::Refundable;
use tidegate_core::window::fixed::{Config, State};
use tidegate_core::{Ahead, Limiter, RateLimiter, Timestamp};
use tidegate_core::{ConfigError, Micros};

use super::Kind;
use super::algorithm::{Algorithm, Answer};
use super::describe::span;
use super::parameters::unfit;
use super::shared::{asks_a_rate_limiter, charges_ahead};
use crate::policy::limit::{LimitForm, required, text};
use crate::request::Request;

impl Algorithm for Config {
    const NAME: &'static str = "fixed_window";
    const NUMBER: u64 = 2;
    const FIELDS: &'static [&'static str] = &["limit", "period"];

    fn read(form: &LimitForm) -> Result<Self, String> {
        let limit = required("limit", form.limit)?.0;
        let period = required("period", form.period)?.0;
        Self::new(limit, period).map_err(text)
    }

    fn numbers(&self) -> Vec<u64> {
        [self.limit(), self.period().0].into()
    }

    fn of_numbers(numbers: &[u64]) -> Result<Self, ConfigError> {
        let [limit, period] = *numbers else { return Err(unfit(numbers)) };
        Self::new(limit, Micros(period))
    }

    fn describe(&self) -> String {
        format!("{} in every aligned {}", self.limit(), span(self.period()))
    }

    asks_a_rate_limiter!(|_window, unused| unused.to_window());

    charges_ahead!();
}
