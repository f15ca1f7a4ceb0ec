//! A reporter of the suppression limiter: what a process knows of one account.

use tidegate_core::shed::Probability;
use tidegate_core::shed::reporter::{Config, LocalCap, State, Verdict};
use tidegate_gate::{Limit, MAX_QUANTITY, Policy, Rate};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::chance::Chance;
use crate::failure::Failure;
use crate::limiter::timestamp;
use crate::number::{from_quantity, to_quantity};

/// Refuses the fraction that it was told to, and counts what is to be reported.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Reporter {
    config: Config,
    state: State,
    chance: Chance,
    retry_after: Option<f64>,
}

#[wasm_bindgen]
impl Reporter {
    /// Of an account with the limit of this policy, which is one of `suppression` alone: so its rate
    /// is written here as it is there.
    ///
    /// # Errors
    /// A `RangeError` if it is no rate.
    #[wasm_bindgen(constructor)]
    pub fn new(policy: &str, local_cap: bool) -> Result<Self, JsValue> {
        let cap = if local_cap { LocalCap::On } else { LocalCap::Off };
        let config = Config::new(limit(policy)?, cap);
        Ok(Self { config, state: State::default(), chance: Chance::default(), retry_after: None })
    }

    /// Whether a request of so many units may pass.
    ///
    /// # Errors
    /// A `RangeError` for units or a time that are none, or for units that can never pass.
    pub fn decide(&mut self, units: f64, now: f64) -> Result<bool, JsValue> {
        let units = to_quantity(units).ok_or(Failure::Number {
            field: "units",
            code: "INVALID_COST",
            found: units,
            least: 0,
            most: MAX_QUANTITY,
        })?;
        let now = timestamp(now)?;
        let verdict = self
            .config
            .decide(&mut self.state, now, units, self.chance.draw())
            .map_err(Failure::Units)?;
        self.retry_after = match verdict {
            Verdict::Capped { retry_after } => Some(from_quantity(retry_after.0)),
            Verdict::Admitted | Verdict::Suppressed { .. } => None,
        };
        Ok(verdict.is_admitted())
    }

    /// If the cap refused the last request: until it leaves room again.
    #[wasm_bindgen(js_name = cappedForUs)]
    #[must_use]
    pub fn capped_for(&self) -> Option<f64> {
        self.retry_after
    }

    /// What is to be reported now, and then counts as reported: `offeredAtUs`, `admitted` and
    /// `suppressed` of each report.
    ///
    /// # Errors
    /// A `RangeError` if `now` is no time.
    #[wasm_bindgen(js_name = dueReports)]
    pub fn due_reports(&mut self, now: f64) -> Result<Vec<f64>, JsValue> {
        let reports = self.config.take_reports(&mut self.state, timestamp(now)?);
        let numbers = reports.iter().flatten();
        let numbers = numbers.flat_map(|due| [due.offered_at.0, due.admitted, due.suppressed]);
        Ok(numbers.map(from_quantity).collect())
    }

    /// Takes the factor that a report was answered with, in units of 2^-32.
    ///
    /// # Errors
    /// A `RangeError` if it is none or `now` is no time.
    pub fn apply(&mut self, units: f64, now: f64) -> Result<(), JsValue> {
        let factor = to_quantity(units).and_then(Probability::from_units).ok_or({
            let most = Probability::CERTAIN.units();
            let (field, code) = ("factor", "INVALID_REQUEST");
            Failure::Number { field, code, found: units, least: 0, most }
        })?;
        self.config.apply(&mut self.state, timestamp(now)?, factor);
        Ok(())
    }
}

fn limit(policy: &str) -> Result<Rate, Failure> {
    let policy = Policy::parse("reporter", policy)
        .map_err(|error| Failure::Option(format!("`options.limit`: {}", error.message)))?;
    match policy.limits().iter().map(|each| each.limit).next() {
        Some(Limit::Suppression(config)) => Ok(config.limit()),
        _ => Err(Failure::Option("`options.limit`: expected a rate, found none".into())),
    }
}
