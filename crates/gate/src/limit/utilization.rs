//! `utilization`: sheds classes of requests by a measured signal, whatever the cost of a request. `limit` is
//! 1, and `remaining` is 1 or 0. `retry_after` is a hint.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::ConfigError;
use tidegate_core::shed::Share;
use tidegate_core::shed::utilization::{Config, State, Verdict};
use tidegate_core::shed::utilization::{Thresholds, Timing};
use tidegate_core::{Decision, Limiter, Micros, Timestamp, WordsMut};

use super::Kind;
use super::algorithm::{Algorithm, Decided, asks_a_shedder, peeked};
use super::build::text;
use super::describe::{percent, span};
use super::form::LimitForm;
use super::parameters::{invalid, unfit};
use super::request::{OperationError, Request};

impl Algorithm for Config {
    const NAME: &'static str = "utilization";
    const NUMBER: u64 = 9;
    const FIELDS: &'static [&'static str] = &["good", "bad", "delay", "full"];

    /// The policy sets the number of classes later.
    fn read(form: &LimitForm) -> Result<Self, String> {
        let thresholds = Thresholds {
            good: form.good.map_or(Thresholds::DEFAULT.good, |share| share.0),
            bad: form.bad.map_or(Thresholds::DEFAULT.bad, |share| share.0),
        };
        let timing = Timing {
            delay: form.delay.map_or(Timing::DEFAULT.delay, |span| span.0),
            full: form.full.map_or(Timing::DEFAULT.full, |span| span.0),
        };
        Self::new(thresholds, timing, 1).map_err(text)
    }

    fn set_classes(&mut self, shed: u16) -> Result<(), ConfigError> {
        *self = Self::new(self.thresholds(), self.timing(), shed)?;
        Ok(())
    }

    fn numbers(&self) -> Vec<u64> {
        let (thresholds, timing) = (self.thresholds(), self.timing());
        let [good, bad] = [thresholds.good, thresholds.bad].map(|share| share.ppm().into());
        [good, bad, timing.delay.0, timing.full.0, self.classes().into()].into()
    }

    fn of_numbers(numbers: &[u64]) -> Result<Self, ConfigError> {
        let [good, bad, delay, full, classes] = *numbers else { return Err(unfit(numbers)) };
        let share = |found: u64| {
            let share = u32::try_from(found).ok().and_then(Share::from_ppm);
            share.ok_or_else(|| invalid("parameters", found))
        };
        let thresholds = Thresholds { good: share(good)?, bad: share(bad)? };
        let timing = Timing { delay: Micros(delay), full: Micros(full) };
        let classes = classes.try_into().map_err(|_| invalid("classes", classes))?;
        Self::new(thresholds, timing, classes)
    }

    fn describe(&self) -> String {
        let (thresholds, timing) = (self.thresholds(), self.timing());
        let [good, bad] = [thresholds.good, thresholds.bad].map(percent);
        let [delay, full] = [timing.delay, timing.full].map(span);
        format!(
            "sheds above {bad}: a signal of 100 % sheds first after {delay}, and {full} later all but the \
             most important class; a signal nearer to {bad} takes longer in proportion; below {good} \
             shedding recedes"
        )
    }

    asks_a_shedder!(decide);

    /// The signal counts, even if another limit refused.
    fn note_refusal(
        &self,
        state: &mut State<&mut [u64]>,
        now: Timestamp,
        request: &Request,
    ) -> Micros {
        let _ = decide(self, state, now, request);
        Micros::ZERO
    }
}

fn decide(
    config: &Config,
    state: &mut State<impl WordsMut>,
    now: Timestamp,
    request: &Request,
) -> Decision {
    let verdict = config.decide(state, now, request.signal, request.class, request.draw);
    let (limit, reset_after) = (1, config.reset_after(state));
    match verdict {
        Verdict::Admitted => Decision::Allow { limit, remaining: 1, reset_after },
        Verdict::Shed { retry_after } => {
            Decision::Deny { limit, remaining: 0, retry_after, reset_after }
        }
    }
}
