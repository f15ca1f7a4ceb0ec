//! `penalty`: refuses every request for a time after a number of refusals by the other limits, whatever the
//! cost of the request.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::ConfigError;
use tidegate_core::shed::penalty::Terms;
use tidegate_core::shed::penalty::{Config, State};
use tidegate_core::{Decision, Micros, Timestamp};

use super::Kind;
use super::algorithm::{Algorithm, Cause, Decided, peeked};
use super::build::{required, text};
use super::describe::span;
use super::form::LimitForm;
use super::parameters::unfit;
use super::request::{OperationError, Request};

impl Algorithm for Config {
    const NAME: &'static str = "penalty";
    const NUMBER: u64 = 5;
    const FIELDS: &'static [&'static str] =
        &["refusals", "within", "duration", "max", "forgive_after"];

    fn read(form: &LimitForm) -> Result<Self, String> {
        let duration = required("duration", form.duration)?.0;
        let terms = Terms {
            refusals: required("refusals", form.refusals)?.get(),
            within: required("within", form.within)?.0,
            duration,
            max: form.max.map_or(duration, |span| span.0),
            forgive_after: form.forgive_after.map_or(duration, |span| span.0),
        };
        Self::new(terms).map_err(text)
    }

    fn numbers(&self) -> Vec<u64> {
        let Terms { refusals, within, duration, max, forgive_after } = self.terms();
        [refusals, within.0, duration.0, max.0, forgive_after.0].into()
    }

    fn of_numbers(numbers: &[u64]) -> Result<Self, ConfigError> {
        let [refusals, ref spans @ ..] = *numbers else { return Err(unfit(numbers)) };
        let spans: [u64; 4] = spans.try_into().map_err(|_| unfit(numbers))?;
        let [within, duration, max, forgive_after] = spans.map(Micros);
        Self::new(Terms { refusals, within, duration, max, forgive_after })
    }

    fn describe(&self) -> String {
        let Terms { refusals, within, duration, max, forgive_after } = self.terms();
        let [within, duration, max, forgive_after] =
            [within, duration, max, forgive_after].map(span);
        format!(
            "after {refusals} refusals within {within} refuses everything for {duration}, twice as long \
             each time up to {max}; forgives after {forgive_after}"
        )
    }

    const KIND: Kind = Kind::Shed;
    const CAUSE: Cause = Cause::AbnormalUsage;
    const PUNISHES_REFUSALS: bool = true;

    fn decide(&self, state: &mut State<&mut [u64]>, now: Timestamp, request: &Request) -> Decided {
        if request.cost == 0 {
            return Ok(peeked(self.peek(state, now)));
        }
        Ok(self.decide(state, now))
    }

    fn peek(&self, state: &State<&[u64]>, now: Timestamp, request: &Request) -> Decided {
        let decision = self.peek(state, now);
        Ok(if request.cost == 0 { peeked(decision) } else { decision })
    }

    fn remembers_refusals(&self) -> bool {
        true
    }

    fn refuse(
        &self,
        state: &mut State<&mut [u64]>,
        now: Timestamp,
        _: &Request,
        _grants: bool,
    ) -> Result<(Decision, Micros), OperationError> {
        self.refused(state, now);
        let said = self.peek(state, now); // this refusal may have begun the penalty
        Ok((said, said.retry_after()))
    }
}
