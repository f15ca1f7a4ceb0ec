//! `suppression`: refuses a fraction of the load that is offered beyond a rate. The limiter is a reporter
//! and the master in one: it also counts the requests that it decides. `limit` is the limit of a part of
//! 6 s, `remaining` is what the part in progress has left, and `retry_after` is a hint: the end of this
//! part.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::lease::budget::Refundable;
use tidegate_core::shed::Probability;
use tidegate_core::shed::suppression::Estimator;
pub use tidegate_core::shed::suppression::{Config, PART, REPORT_EVERY, Report, State};
use tidegate_core::{ConfigError, Rate};
use tidegate_core::{Decision, Limiter, Micros, Timestamp, Words, WordsMut, never};

use super::Kind;
use super::algorithm::{Algorithm, Decided, asks_a_shedder, peeked};
use super::build::{required, text};
use super::describe::span;
use super::form::{EstimatorForm, LimitForm};
use super::parameters::{invalid, unfit};
use super::request::{OperationError, Request};

impl Algorithm for Config {
    const NAME: &'static str = "suppression";
    const NUMBER: u64 = 10;
    const FIELDS: &'static [&'static str] = &["rate", "estimator", "ramp"];

    fn read(form: &LimitForm) -> Result<Self, String> {
        let rate = required("rate", form.rate)?.0;
        let estimator = match (form.estimator, form.ramp) {
            (Some(EstimatorForm::LinearAdmitted), ramp) => {
                let ramp = ramp.map_or(DEFAULT_RAMP, |ramp| ramp.get());
                let ramp = ramp
                    .try_into()
                    .map_err(|_| format!("`ramp`: expected 1 to {}, found {ramp}", u16::MAX))?;
                Estimator::LinearAdmitted { ramp }
            }
            (_, Some(_)) => {
                return Err(
                    "expected `ramp` only beside the estimator `linear_admitted`, found it beside \
                            another"
                        .into(),
                );
            }
            (Some(EstimatorForm::ModifiedMean), None) => Estimator::ModifiedMean,
            (Some(EstimatorForm::NewestPart) | None, None) => Estimator::NewestPart,
        };
        Self::new(rate, estimator).map_err(text)
    }

    fn numbers(&self) -> Vec<u64> {
        let estimator = match self.estimator() {
            Estimator::LinearAdmitted { ramp } => ramp.into(),
            Estimator::ModifiedMean => MODIFIED_MEAN,
            _ => NEWEST_PART,
        };
        [self.limit().units(), self.limit().period().0, estimator].into()
    }

    fn of_numbers(numbers: &[u64]) -> Result<Self, ConfigError> {
        let [units, period, estimator] = *numbers else { return Err(unfit(numbers)) };
        let estimator = match estimator {
            NEWEST_PART => Estimator::NewestPart,
            MODIFIED_MEAN => Estimator::ModifiedMean,
            ramp => Estimator::LinearAdmitted {
                ramp: ramp.try_into().map_err(|_| invalid("estimator", ramp))?,
            },
        };
        Self::new(Rate::new(units, Micros(period))?, estimator)
    }

    fn describe(&self) -> String {
        let estimator = match self.estimator() {
            Estimator::LinearAdmitted { ramp } => {
                let all = u32::from(ramp).saturating_add(1);
                format!("linear on the admitted rate, all at {all} times the limit")
            }
            Estimator::ModifiedMean => "modified mean of the offered rate".into(),
            _ => String::from("newest part of the offered rate"),
        };
        let (units, period) = (self.limit().units(), span(self.limit().period()));
        format!("suppresses what is offered beyond {units} every {period}; {estimator}")
    }

    asks_a_shedder!(decide);

    /// The request was offered, even if another limit refused it.
    fn note_refusal(
        &self,
        state: &mut State<&mut [u64]>,
        now: Timestamp,
        request: &Request,
    ) -> Micros {
        count(self, state, now, (0, request.cost));
        Micros::ZERO
    }

    fn charge(&self, state: &mut State<&mut [u64]>, now: Timestamp, cost: u64) {
        count(self, state, now, (cost, 0));
    }

    fn refund(&self, state: &mut State<&mut [u64]>, now: Timestamp, unused: &Refundable) {
        self.advance(state, now);
        self.refund(state, unused.to_window());
    }

    fn factor(&self, state: &State<&[u64]>, now: Timestamp) -> Option<Probability> {
        Some(Self::factor(self, state, now))
    }

    fn report(&self, state: &mut State<&mut [u64]>, now: Timestamp, report: Report) {
        Self::report(self, state, now, report);
    }
}

fn decide(
    config: &Config,
    state: &mut State<impl WordsMut>,
    now: Timestamp,
    request: &Request,
) -> Decision {
    let passes = config.decide(state, now, request.cost, request.draw);
    said(config, state, passes)
}

/// What the limit says of a request that was counted last in this state, and that passed or not.
pub fn said(config: &Config, state: &State<impl Words>, passes: bool) -> Decision {
    let limit = config.units_per_part();
    let remaining = limit.saturating_sub(state.offered_in_part());
    let reset_after = config.reset_after(state);
    if passes {
        return Decision::Allow { limit, remaining, reset_after };
    }
    let into = state.newest().0.checked_rem(PART.0).unwrap_or_else(|| never(0));
    let retry_after = Micros(PART.0.saturating_sub(into));
    Decision::Deny { limit, remaining, retry_after, reset_after }
}

/// Counts units that passed and units that did not, at the newest time.
fn count(
    config: &Config,
    state: &mut State<&mut [u64]>,
    now: Timestamp,
    (admitted, suppressed): (u64, u64),
) {
    config.advance(state, now);
    let offered_at = state.newest();
    config.report(state, offered_at, Report { offered_at, admitted, suppressed });
}

/// At 1 + 2 = 3 times the limit every request is refused, as in the source.
const DEFAULT_RAMP: u64 = 2;

/// The numbers of the estimators. A smaller number is the ramp of `linear_admitted`.
const NEWEST_PART: u64 = 1 << 32;
const MODIFIED_MEAN: u64 = 2 << 32;
