//! JSON in and out.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use tidegate_core::{Decision, Micros, Timestamp};

use super::problem::Problem;
use super::{Answer, Form, MAX_CHECKS, Outcome, Response};
use crate::decide::Verdict;
use crate::policy::Whole;

/// One check as a request writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckForm {
    pub(super) policy: String,
    pub(super) key: String,
    pub(super) cost: Option<Whole<0>>,
    pub(super) now_us: Option<Whole<0>>,
}

/// A single check or a batch. Not an untagged enum: its error would say only that neither fits.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BodyForm {
    policy: Option<String>,
    key: Option<String>,
    cost: Option<Whole<0>>,
    now_us: Option<Whole<0>>,
    checks: Option<Vec<CheckForm>>,
}

pub(super) fn checks(body: &[u8]) -> Result<(Form, Vec<CheckForm>), Response> {
    let invalid = |detail: String| Problem::InvalidRequest.response(detail);
    let mut json = serde_json::Deserializer::from_slice(body);
    let form: BodyForm = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let (path, error) = (error.path().to_string(), error.into_inner());
        invalid(if path == "." { error.to_string() } else { alloc::format!("{path}: {error}") })
    })?;
    json.end().map_err(|error| invalid(error.to_string()))?;
    match form {
        BodyForm { policy: None, key: None, cost: None, now_us: None, checks: Some(checks) } => {
            if checks.is_empty() || checks.len() > MAX_CHECKS {
                let found = checks.len();
                return Err(invalid(alloc::format!(
                    "checks: found {found}, allowed are 1 to {MAX_CHECKS}"
                )));
            }
            Ok((Form::Batch, checks))
        }
        BodyForm { policy: Some(policy), key: Some(key), cost, now_us, checks: None } => {
            Ok((Form::Single, [CheckForm { policy, key, cost, now_us }].into()))
        }
        _ => Err(invalid("allowed are `policy`, `key` and `cost`, or `checks` alone".to_string())),
    }
}

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
}

impl From<&Verdict> for VerdictForm {
    fn from(verdict: &Verdict) -> Self {
        let limits = verdict.limits.iter().copied().map(DecisionForm::from).collect();
        Self { at_us: verdict.at.0, decision: verdict.decision.into(), limits }
    }
}

impl From<VerdictForm> for Verdict {
    fn from(form: VerdictForm) -> Self {
        let limits = form.limits.into_iter().map(Decision::from).collect();
        Self { at: Timestamp(form.at_us), decision: form.decision.into(), limits }
    }
}

/// What a caller reads of one check.
#[derive(Serialize)]
#[serde(untagged)]
enum AnswerForm<'a> {
    Decided {
        policy: &'a str,
        #[serde(flatten)]
        decision: DecisionForm,
        at_us: u64,
        /// In shadow mode: what `allowed` would be without it.
        #[serde(skip_serializing_if = "Option::is_none")]
        would_allow: Option<bool>,
        limits: Vec<LimitAnswer<'a>>,
    },
    Unavailable {
        policy: &'a str,
        allowed: bool,
        /// Why the store could not be asked; the policy's `on_error` decided.
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
        let (policy, allowed) = (answer.policy.name(), answer.passes());
        match answer.outcome {
            Outcome::Decided(verdict) => {
                let decision = DecisionForm { allowed, ..verdict.decision.into() };
                let limits = answer.limits.iter().zip(&verdict.limits);
                Self::Decided {
                    policy,
                    decision,
                    at_us: verdict.at.0,
                    would_allow: answer.policy.is_shadow().then(|| verdict.decision.is_allowed()),
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

/// Of strings, integers and lists of them alone: these always serialize.
pub(super) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
