//! The answers to callers, and what they say if the store has not decided.

use tidegate_gate::{Asked, Limits, OnError, Operation, Softness, TableError, TransactionError};
use tidegate_http::Outcome;
use tidegate_tier::authority::Failure as TierFailure;

use super::caller::{Answer, Caller, MOST_DEADLINES};
use super::{Authority, Said, Tier};
use crate::answer::{self, Extras};
use crate::failure::Failure;
use crate::middleware::Next;

/// What an error of the store begins with.
const STORE: &str = Tier::STORE;

/// What a client of middleware is told of an outage.
const AWAY: &str = "the store is unavailable";

impl Authority {
    pub(super) fn say(&mut self, caller: Caller, answer: Answer) -> Said {
        let Caller { resolved, asked, operation, asking, .. } = caller;
        if let Some(mut asking) = asking {
            let degraded = match &answer {
                Ok(verdict) => verdict.degraded.then(|| self.share()),
                Err(failure) => Some(self.why(failure.clone())),
            };
            let away = |_| Outcome::Unavailable(AWAY.into());
            asking.decided(answer.map_or_else(away, Outcome::Decided));
            let served = match asking.next() {
                Next::Done(fields) => fields,
                Next::Decide(..) => String::new(), // a key asks for one decision
            };
            return Said { served, degraded, ..Said::default() };
        }
        let lease = asked.as_ref().and_then(Asked::lease).map(String::from);
        let renew_every = resolved.limits().and_then(Limits::renew_every);
        let mut said = Said { lease, renew_every, ..Said::default() };
        match answer {
            Ok(verdict) if verdict.degraded => {
                said.degraded = Some(self.share());
                said.passes = verdict.decision.is_allowed();
            }
            Ok(verdict) => {
                let mut verdict = verdict;
                if let Some(asked) = &asked {
                    verdict = asked.said(verdict);
                    verdict.effect = asked.effect(&verdict);
                }
                said.explained = asked.and_then(|asked| answer::in_words(&asked, &verdict));
                let soft = resolved.limits().filter(|_| self.policy.is_soft());
                let soft = soft.map_or_else(Softness::default, |limits| limits.softness(&verdict));
                let (rule, has_lease) = (resolved.rule_number(), said.lease.is_some());
                answer::write(&mut self.numbers, &verdict, Extras { rule, has_lease }, soft);
                said.passes = verdict.decision.is_allowed();
            }
            Err(TierFailure::Transaction(TransactionError::Operation(error))) => {
                said.failure = Some(Failure::Table(TableError::Operation(error)));
            }
            Err(failure) => {
                said.is_overloaded = matches!(failure, TierFailure::Overloaded { .. });
                let why = self.why(failure);
                // `on_error` is for requests: a key that is not blocked or reset must not look as if it were
                match operation {
                    Operation::Block(_) | Operation::Reset(_) => {
                        said.failure = Some(Failure::Unavailable(why));
                    }
                    _ => said.degraded = Some(why),
                }
                said.passes = self.policy.on_error() == OnError::Open;
            }
        }
        said
    }

    /// Why the limiter has decided by its share.
    fn share(&self) -> String {
        format!("{}; decided by a share of the limits", self.why(self.tier.cause()))
    }

    /// Why the store has not decided. The text has no key.
    fn why(&self, failure: TierFailure<String>) -> String {
        let milliseconds = self.deadline.as_millis_ceil();
        match failure {
            TierFailure::Transaction(TransactionError::Blob { error, .. }) => {
                format!("{STORE}: the stored bytes are not a state of this policy: {error}")
            }
            TierFailure::Transaction(error) => error.to_string(),
            TierFailure::Overloaded { most } => {
                format!("{STORE}: {most} operations are already waiting")
            }
            TierFailure::TooLate => {
                format!(
                    "{STORE}: the operation has waited for {MOST_DEADLINES} deadlines of {milliseconds} ms"
                )
            }
            TierFailure::Contended => {
                format!("{STORE}: other writers kept changing the same state for {milliseconds} ms")
            }
            TierFailure::Store(error) => format!("{STORE}: {error}"),
        }
    }
}
