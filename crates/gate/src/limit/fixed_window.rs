//! `fixed_window`: a number of units in every window, aligned or from a key's first grant on.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::lease::budget::Refundable;
use tidegate_core::window::fixed::{Config, State};
use tidegate_core::{Ahead, Limiter, RateLimiter, Timestamp};
use tidegate_core::{ConfigError, Micros};

use super::Kind;
use super::algorithm::{Algorithm, Decided, asks_a_rate_limiter, charges_ahead, scaled};
use super::build::{required, text};
use super::describe::span;
use super::form::{LimitForm, Start};
use super::parameters::unfit;
use super::request::Request;

impl Algorithm for Config {
    const NAME: &'static str = "fixed_window";
    const NUMBER: u64 = 2;
    const FIELDS: &'static [&'static str] = &["limit", "period", "start"];

    fn read(form: &LimitForm) -> Result<Self, String> {
        let limit = required("limit", form.limit)?.get();
        let period = required("period", form.period)?.span(Self::NAME)?;
        let window = Self::new(limit, period).map_err(text)?;
        match form.start {
            Some(Start::First) => Ok(window.starting_at_first()),
            Some(Start::Aligned) | None => Ok(window),
            Some(other) => Err(other.unfit("\"aligned\" or \"first\"", Self::NAME)),
        }
    }

    fn numbers(&self) -> Vec<u64> {
        let mut numbers = Vec::from([self.limit(), self.period().0]);
        numbers.extend(self.starts_at_first().then_some(1));
        numbers
    }

    fn of_numbers(numbers: &[u64]) -> Result<Self, ConfigError> {
        match *numbers {
            [limit, period] => Self::new(limit, Micros(period)),
            [limit, period, 1] => Ok(Self::new(limit, Micros(period))?.starting_at_first()),
            _ => Err(unfit(numbers)),
        }
    }

    fn count(&self) -> Vec<u64> {
        [self.period().0, self.starts_at_first().into()].into()
    }

    fn describe(&self) -> String {
        let (limit, period) = (self.limit(), span(self.period()));
        let (every, from) = match self.starts_at_first() {
            false => ("every aligned ", ""),
            true => ("", " from a key's first request on"),
        };
        format!("{limit} in {every}{period}{from}")
    }

    fn adopt(
        &self,
        own: &mut State<&mut [u64]>,
        old: &Self,
        held: &State<&[u64]>,
        ratio: (u64, u64),
    ) -> bool {
        Self::adopt(self, own, old, held, scaled(RateLimiter::used(old, held), ratio))
    }

    asks_a_rate_limiter!();

    charges_ahead!();
}
