//! The reasons that a limit has to shed load. It may refuse only if there is one.

use std::collections::BTreeMap;

use tidegate_core::shed::{penalty, suppression, utilization};
use tidegate_gate::{Class, Decision, Operation, Probability};

use super::done::Done;

#[derive(Debug, Default)]
pub(super) struct Shed {
    /// The time of the last operation.
    last: Option<u64>,
    /// Since when the signal may have been high: a signal tells of the time since the operation before.
    high_since: Option<u64>,
    /// The load that was offered in each part.
    offered: BTreeMap<u64, u64>,
    /// How many requests were refused.
    refused: u64,
}

impl Shed {
    /// Nothing is shed before the signal was high for the delay, and the most important class never.
    pub(super) fn count_signal(
        &mut self,
        config: &utilization::Config,
        done: &Done<'_>,
        said: &Decision,
    ) -> Result<(), String> {
        let since = self.last.replace(done.now()).unwrap_or(done.now());
        let Operation::Decide(request) = done.operation else { return Ok(()) };
        if request.signal.is_some_and(|signal| signal > config.thresholds().bad) {
            self.high_since.get_or_insert(since);
        }
        let delay = config.timing().delay.0;
        let may_shed = request.class != Class::CRITICAL
            && self.high_since.is_some_and(|since| done.now() >= since + delay);
        match said.is_allowed() || may_shed {
            true => Ok(()),
            false => Err(format!("{request:?} is shed; the signal is high since {self:?}")),
        }
    }

    /// Nothing is suppressed unless more than the limit was offered in one of the last parts.
    pub(super) fn count_load(
        &mut self,
        config: &suppression::Config,
        done: &Done<'_>,
        said: &Decision,
    ) -> Result<(), String> {
        let part = |at: u64| at / suppression::PART.0;
        let now = part(done.now());
        let first = now.saturating_sub(u64::try_from(suppression::PARTS).unwrap_or(u64::MAX) - 1);
        self.offered.retain(|part, _| *part >= first);
        let (of, units, counts_first) = match done.operation {
            Operation::Decide(request) => (now, request.cost, false),
            Operation::Report(load) => {
                let at = load.at.map_or(done.now(), |at| at.0.min(done.now()));
                (part(at), load.admitted + load.suppressed, true)
            }
            _ => (now, 0, true),
        };
        let is_above = |offered: &BTreeMap<u64, u64>| {
            offered.values().any(|units| *units > config.units_per_part())
        };
        // a request does not count for its own decision
        let was_above = is_above(&self.offered);
        *self.offered.entry(of).or_default() += units;
        let is_above = is_above(&self.offered);
        let may_suppress = was_above || counts_first && is_above;
        let factor = done.verdict.factor.unwrap_or(Probability::NEVER);
        let is_blocked = factor == Probability::CERTAIN;
        let may_refuse = factor == Probability::NEVER || is_blocked || is_above;
        match (said.is_allowed() || may_suppress) && may_refuse {
            true => Ok(()),
            false => Err(format!("{said:?} with {factor:?}, although within the limit: {self:?}")),
        }
    }

    /// A penalty needs refusals, and lasts no longer than the longest one.
    pub(super) fn count_refusal(
        &mut self,
        terms: penalty::Terms,
        done: &Done<'_>,
        said: &Decision,
    ) -> Result<(), String> {
        if matches!(done.operation, Operation::Decide(_)) && !done.verdict.decision.is_allowed() {
            self.refused += 1;
        }
        let refusals = self.refused;
        let may_refuse = refusals >= terms.refusals && said.retry_after() <= terms.max;
        match said.is_allowed() || may_refuse {
            true => Ok(()),
            false => Err(format!("{said:?} after {refusals} refusals")),
        }
    }
}
