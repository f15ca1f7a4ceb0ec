//! The checks of a request, and its response out of their outcomes.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_core::Timestamp;
use tidegate_core::shed::Draw;

use super::headers::OlderForm;
use super::problem::{self, Problem, answer_json};
use super::{Response, forms, headers, internal_error};
use crate::ask::{Ask, Asked, Chance, CheckForm};
use crate::decide::Verdict;
use crate::limits::Limits;
use crate::policy::{OnError, Policy, Whole};
use crate::request::Operation;
use crate::resolved::Resolved;

/// The checks to decide, and the form of the answer.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) checks: Vec<Check>,
    pub(super) form: Form,
}

/// One operation on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub(super) asked: Asked,
    pub(super) now: Option<Timestamp>,
    pub(super) draw: Option<Draw>,
}

impl Check {
    /// A request with this cost.
    pub(crate) fn of_cost(
        policy: &Arc<Policy>,
        key: &str,
        cost: u64,
        class: Option<String>,
        chance: Chance<'_>,
    ) -> Result<Self, Response> {
        let form = CheckForm { cost: Some(Whole(cost)), class, ..CheckForm::default() };
        let asked = Ask::Check(form).resolve(policy, key, chance);
        let asked = asked.map_err(|error| error.response(""))?;
        Ok(Self { asked, now: None, draw: None })
    }

    pub(crate) const fn asked(&self) -> &Asked {
        &self.asked
    }

    /// The policy, limits and canonical key of the check.
    #[must_use]
    pub const fn resolved(&self) -> &Resolved {
        self.asked.resolved()
    }

    /// The operation to do.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        self.asked.operation()
    }

    /// The operation with the caller's own draw, if it gave one. Only a test environment may use it.
    #[must_use]
    pub fn operation_with_draw(&self) -> Operation {
        match self.draw {
            Some(draw) => self.asked.clone().with_draw(draw).operation(),
            None => self.operation(),
        }
    }

    /// The caller's own time, if it gave one. Only a test environment may use it.
    #[must_use]
    pub const fn caller_time(&self) -> Option<Timestamp> {
        self.now
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Single,
    Batch,
    Gate,
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store decided the check.
    Decided(Verdict),
    /// The store did not answer, for this reason. The policy's `on_error` decides.
    Unavailable(String),
}

impl Plan {
    /// The response, given the outcome of each check.
    pub(super) fn respond(&self, outcomes: Vec<Outcome>) -> Response {
        if outcomes.len() != self.checks.len() {
            return internal_error("not every check was decided".to_string());
        }
        let told = self.checks.iter().zip(outcomes).map(|(check, outcome)| match outcome {
            Outcome::Decided(verdict) => Outcome::Decided(check.asked.said(verdict)),
            unavailable => unavailable,
        });
        let told: Vec<Outcome> = told.collect();
        let answers = self.checks.iter().zip(&told);
        let answers: Vec<_> =
            answers.map(|(Check { asked, .. }, outcome)| Answer { asked, outcome }).collect();
        match (self.form, answers.as_slice()) {
            (Form::Gate, [answer]) => gate(answer, None),
            // `on_error` is for requests: a key that is not blocked or reset must not look as if it were
            (Form::Single, [Answer { asked, outcome: Outcome::Unavailable(reason) }])
                if matches!(asked.operation(), Operation::Block(_) | Operation::Reset(_)) =>
            {
                Problem::ReducedCapacity.response(reason.clone())
            }
            (Form::Single, [answer]) => {
                let mut response = answer_json(200, forms::single(answer));
                if let Outcome::Decided(verdict) = answer.outcome {
                    headers::add(&mut response.headers, answer, verdict, None);
                }
                response
            }
            (_, answers) => answer_json(200, forms::batch(answers)),
        }
    }
}

/// An operation that a caller asked for, and its outcome.
#[derive(Clone, Copy)]
pub(super) struct Answer<'a> {
    pub(super) asked: &'a Asked,
    pub(super) outcome: &'a Outcome,
}

impl Answer<'_> {
    pub(super) fn policy(&self) -> &Policy {
        self.asked.resolved().policy()
    }

    /// The limits on the key; `None` if the key is listed.
    pub(super) fn limits(&self) -> Option<&Limits> {
        self.asked.resolved().limits()
    }

    /// Whether the request passes, given the decision, `shadow` and `on_error`.
    pub(super) fn passes(&self) -> bool {
        match self.outcome {
            Outcome::Decided(verdict) => verdict.decision.is_allowed() || self.policy().is_shadow(),
            Outcome::Unavailable(_) => {
                self.policy().on_error() == OnError::Open || self.policy().is_shadow()
            }
        }
    }
}

/// The verdict on an operation in JSON, as the HTTP API answers it.
#[must_use]
pub fn answer(asked: &Asked, verdict: Verdict) -> String {
    let outcome = &Outcome::Decided(asked.said(verdict));
    forms::single(&Answer { asked, outcome })
}

/// The headers that an answer to a request gets if it passes.
///
/// # Errors
/// The response refuses the request.
pub(crate) fn gate_headers(
    check: &Check,
    outcome: &Outcome,
    form: Option<OlderForm>,
) -> Result<Vec<(&'static str, String)>, Response> {
    let told = match outcome {
        Outcome::Decided(verdict) => Outcome::Decided(check.asked.said(verdict.clone())),
        unavailable => unavailable.clone(),
    };
    let answer = Answer { asked: &check.asked, outcome: &told };
    if !answer.passes() {
        return Err(gate(&answer, form));
    }
    let mut headers = Vec::new();
    if let Outcome::Decided(verdict) = &told {
        headers::add(&mut headers, &answer, verdict, form);
    }
    Ok(headers)
}

fn gate(answer: &Answer<'_>, form: Option<OlderForm>) -> Response {
    let mut response = match answer.outcome {
        _ if answer.passes() => problem::no_content(),
        Outcome::Decided(verdict) => problem::refused(answer.limits(), verdict),
        Outcome::Unavailable(reason) => Problem::ReducedCapacity.response(reason.clone()),
    };
    if let Outcome::Decided(verdict) = answer.outcome {
        headers::add(&mut response.headers, answer, verdict, form);
    }
    response
}
