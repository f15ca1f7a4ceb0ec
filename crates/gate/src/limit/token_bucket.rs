//! `token_bucket`: bursts up to a capacity, refilled at a rate.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::bucket::{Config, State};
use tidegate_core::lease::budget::Refundable;
use tidegate_core::window::Refund;
use tidegate_core::{Ahead, Limiter, RateLimiter, Timestamp};
use tidegate_core::{ConfigError, Micros, Rate};

use super::Kind;
use super::algorithm::{Algorithm, Decided, asks_a_rate_limiter, charges_ahead};
use super::build::{required, text};
use super::describe::span;
use super::form::{LimitForm, Start};
use super::parameters::unfit;
use super::request::Request;

impl Algorithm for Config {
    const NAME: &'static str = "token_bucket";
    const NUMBER: u64 = 1;
    const FIELDS: &'static [&'static str] = &["capacity", "rate", "start"];

    fn read(form: &LimitForm) -> Result<Self, String> {
        let capacity = required("capacity", form.capacity)?.get();
        let rate = required("rate", form.rate)?.0;
        let bucket = Self::new(capacity, rate).map_err(text)?;
        match form.start {
            Some(Start::Empty) => Ok(bucket.starting_empty()),
            Some(Start::Full) | None => Ok(bucket),
            Some(other) => Err(other.unfit("\"full\" or \"empty\"", Self::NAME)),
        }
    }

    fn numbers(&self) -> Vec<u64> {
        let (units, period) = self.rate();
        [RateLimiter::capacity(self), units, period.0, self.starts_empty().into()].into()
    }

    fn of_numbers(numbers: &[u64]) -> Result<Self, ConfigError> {
        let [capacity, units, period, starts_empty @ (0 | 1)] = *numbers else {
            return Err(unfit(numbers));
        };
        let bucket = Self::new(capacity, Rate::new(units, Micros(period))?)?;
        Ok(if starts_empty == 1 { bucket.starting_empty() } else { bucket })
    }

    fn count(&self) -> Vec<u64> {
        let (span, parts) = self.exact_fill_time();
        [span, parts, self.starts_empty().into()].into()
    }

    fn go_on_from(&self, state: &mut State<&mut [u64]>, old: &Self) {
        Self::go_on_from(self, state, old);
    }

    fn describe(&self) -> String {
        let (units, period) = self.rate();
        let each = if units == 1 { String::new() } else { format!("{units} ") };
        let start = if self.starts_empty() { "; empty at first" } else { "" };
        let (capacity, period, full) =
            (RateLimiter::capacity(self), span(period), span(self.period()));
        format!("bursts of {capacity}, then {each}every {period}; full after {full}{start}")
    }

    asks_a_rate_limiter!();

    fn come_back(&self, unused: &Refundable) -> Refund {
        unused.to_bucket(self)
    }

    charges_ahead!();
}
