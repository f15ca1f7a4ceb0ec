//! A reporter of a `suppression` limit: what a process knows about one account.

use std::sync::Arc;

use tidegate_core::shed::Probability;
use tidegate_core::shed::reporter::{Config, LocalCap, State, Verdict};
use tidegate_gate::{Limit, MAX_QUANTITY, Policy, Rate};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::chance::Chance;
use crate::failure::Failure;
use crate::input::timestamp;
use crate::number::{from_quantity, to_quantity};

/// Refuses the fraction of requests that the last factor says, and counts what to report.
#[wasm_bindgen(js_name = NativeReporter)]
#[derive(Debug)]
pub struct Reporter {
    config: Config,
    state: State,
    chance: Chance,
    retry_after: Option<f64>,
}

#[wasm_bindgen(js_class = NativeReporter)]
impl Reporter {
    /// A reporter for an account with the limit of this policy, whose only limit is `suppression`. The rate
    /// of a reporter is thus written as in a policy file.
    ///
    /// # Errors
    /// Throws a `RangeError` if the policy has no valid rate.
    #[wasm_bindgen(constructor)]
    pub fn new(policy: &str, local_cap: bool) -> Result<Self, JsValue> {
        let cap = if local_cap { LocalCap::On } else { LocalCap::Off };
        let config = Config::new(limit(policy)?, cap);
        Ok(Self { config, state: State::default(), chance: Chance::default(), retry_after: None })
    }

    /// Decides whether a request of this many units may pass.
    ///
    /// # Errors
    /// Throws a `RangeError` for invalid units, for an invalid time, or for units that can never pass.
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

    /// How long the cap has no room for the last request; `None` if the cap did not refuse it.
    #[wasm_bindgen(js_name = cappedForUs)]
    #[must_use]
    pub fn capped_for(&self) -> Option<f64> {
        self.retry_after
    }

    /// The reports to send now, with `offeredAtUs`, `admitted` and `suppressed` of each. They then count as
    /// sent.
    ///
    /// # Errors
    /// Throws a `RangeError` if `now` is not a time.
    #[wasm_bindgen(js_name = dueReports)]
    pub fn due_reports(&mut self, now: f64) -> Result<Vec<f64>, JsValue> {
        let reports = self.config.take_reports(&mut self.state, timestamp(now)?);
        let numbers = reports.iter().flatten();
        let numbers = numbers.flat_map(|due| [due.offered_at.0, due.admitted, due.suppressed]);
        Ok(numbers.map(from_quantity).collect())
    }

    /// Applies the factor of the answer to a report, in units of 2^-32.
    ///
    /// # Errors
    /// Throws a `RangeError` if the factor is out of range or `now` is not a time.
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
    let policy = Arc::new(policy); // limiters have it so too: the code that drops a policy is long, and exists once
    match policy.limits().iter().map(|each| &each.limit).next() {
        Some(Limit::Suppression(config)) => Ok(config.limit()),
        _ => Err(Failure::Option("`options.limit`: expected a rate, found none".into())),
    }
}
