//! The JSON of answers.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use tidegate_core::lease::budget::Allowance;
use tidegate_core::shed::Probability;
use tidegate_core::{Decision, Micros, Timestamp};

use super::{Answer, Outcome};
use crate::decide::{Effect, Verdict};
use crate::limits::Limits;

/// A decision in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of Decision, spans in microseconds")]
pub struct DecisionForm {
    pub allowed: bool,
    pub limit: u64,
    pub remaining: u64,
    pub retry_after_us: u64,
    pub reset_after_us: u64,
}

impl From<Decision> for DecisionForm {
    fn from(decision: Decision) -> Self {
        Self {
            allowed: decision.is_allowed(),
            limit: decision.limit(),
            remaining: decision.remaining(),
            retry_after_us: decision.retry_after().0,
            reset_after_us: decision.reset_after().0,
        }
    }
}

impl From<DecisionForm> for Decision {
    fn from(form: DecisionForm) -> Self {
        let DecisionForm { limit, remaining, .. } = form;
        let reset_after = Micros(form.reset_after_us);
        if form.allowed {
            Self::Allow { limit, remaining, reset_after }
        } else {
            Self::Deny { limit, remaining, retry_after: Micros(form.retry_after_us), reset_after }
        }
    }
}

/// A verdict in JSON, between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of Verdict")]
pub struct VerdictForm {
    pub at_us: u64,
    pub decision: DecisionForm,
    pub limits: Vec<DecisionForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<bool>,
    /// In units of 2^-32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<AllowanceForm>,
}

/// The units of a budget that a holder may spend without asking, in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowanceForm {
    /// The number of units.
    pub granted: u64,
    /// The time of the grant, in µs since the epoch.
    pub granted_at_us: u64,
    /// The time from which the units must not be spent, in µs since the epoch.
    pub expires_at_us: u64,
}

impl From<Allowance> for AllowanceForm {
    fn from(allowance: Allowance) -> Self {
        let Allowance { left, granted_at, expires_at } = allowance;
        Self { granted: left, granted_at_us: granted_at.0, expires_at_us: expires_at.0 }
    }
}

impl From<AllowanceForm> for Allowance {
    fn from(form: AllowanceForm) -> Self {
        let (granted_at, expires_at) =
            (Timestamp(form.granted_at_us), Timestamp(form.expires_at_us));
        Self { left: form.granted, granted_at, expires_at }
    }
}

impl From<&Verdict> for VerdictForm {
    fn from(verdict: &Verdict) -> Self {
        let limits = verdict.limits.iter().copied().map(DecisionForm::from).collect();
        let factor = verdict.factor.map(Probability::units);
        let budget = verdict.effect.allowance().map(AllowanceForm::from);
        let (decision, live) = (verdict.decision.into(), verdict.effect.live());
        Self { at_us: verdict.at.0, decision, limits, live, factor, budget }
    }
}

impl From<VerdictForm> for Verdict {
    fn from(form: VerdictForm) -> Self {
        let limits = form.limits.into_iter().map(Decision::from).collect();
        let at = Timestamp(form.at_us);
        let factor = form.factor.and_then(Probability::from_units);
        let effect = Effect::of(form.live, form.budget.map(Allowance::from));
        Self { at, decision: form.decision.into(), limits, factor, effect }
    }
}

/// The answer to one check.
#[derive(Serialize)]
#[serde(untagged)]
enum AnswerForm<'a> {
    Decided {
        policy: &'a str,
        #[serde(flatten)]
        decision: DecisionForm,
        at_us: u64,
        /// The lease that the operation concerns.
        #[serde(skip_serializing_if = "Option::is_none")]
        lease: Option<&'a str>,
        /// Whether that lease was live when it was renewed or released.
        #[serde(skip_serializing_if = "Option::is_none")]
        live: Option<bool>,
        /// The fraction to refuse, in units of 2^-32.
        #[serde(skip_serializing_if = "Option::is_none")]
        factor: Option<u64>,
        /// In shadow mode: the `factor` without shadow mode.
        #[serde(skip_serializing_if = "Option::is_none")]
        would_factor: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        budget: Option<AllowanceForm>,
        /// In shadow mode: `allowed` without shadow mode.
        #[serde(skip_serializing_if = "Option::is_none")]
        would_allow: Option<bool>,
        limits: Vec<LimitAnswer<'a>>,
    },
    Unavailable {
        policy: &'a str,
        allowed: bool,
        /// Why the store did not answer, so that the policy's `on_error` decided.
        degraded: &'a str,
    },
}

#[derive(Serialize)]
struct LimitAnswer<'a> {
    name: &'a str,
    #[serde(flatten)]
    decision: DecisionForm,
}

impl<'a> From<&Answer<'a>> for AnswerForm<'a> {
    fn from(answer: &Answer<'a>) -> Self {
        let (policy, allowed) = (answer.asked.resolved().policy(), answer.passes());
        let (policy, shadow) = (policy.name(), policy.is_shadow());
        match answer.outcome {
            Outcome::Decided(verdict) => {
                let decision = DecisionForm { allowed, ..verdict.decision.into() };
                let limits = answer.asked.resolved().limits();
                let limits = limits.into_iter().flat_map(Limits::iter).zip(&verdict.limits);
                let factor = verdict.factor.map(Probability::units);
                Self::Decided {
                    policy,
                    decision,
                    at_us: verdict.at.0,
                    lease: answer.asked.lease(),
                    live: verdict.effect.live(),
                    factor: factor.map(|units| if shadow { 0 } else { units }),
                    would_factor: factor.filter(|_| shadow),
                    budget: verdict.effect.allowance().map(AllowanceForm::from),
                    would_allow: shadow.then(|| verdict.decision.is_allowed()),
                    limits: limits
                        .map(|(limit, &decision)| LimitAnswer {
                            name: &limit.name,
                            decision: decision.into(),
                        })
                        .collect(),
                }
            }
            Outcome::Unavailable(reason) => Self::Unavailable { policy, allowed, degraded: reason },
        }
    }
}

pub(super) fn single(answer: &Answer<'_>) -> String {
    to_json(&AnswerForm::from(answer))
}

pub(super) fn batch(answers: &[Answer<'_>]) -> String {
    #[derive(Serialize)]
    struct Batch<'a> {
        decisions: Vec<AnswerForm<'a>>,
    }
    to_json(&Batch { decisions: answers.iter().map(AnswerForm::from).collect() })
}

/// Serializes a value of strings, integers and lists, which cannot fail.
pub(super) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
