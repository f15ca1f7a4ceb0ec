//! The checks of a request, and what becomes of the request by their outcomes.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_gate::{Ask, Bounded, Chance, CheckForm, Kind, Operation, Policy};

use crate::answer::headers::OlderForm;
use crate::answer::problem::{self, Problem, answer_json, internal_error, invalid_request};
use crate::answer::{Answer, forms, headers};
use crate::check::{Check, Outcome};
use crate::response::Response;
use crate::served::{Lease, Pass, Served};

/// The checks to decide, and the form of the answer.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) checks: Vec<Check>,
    pub(crate) form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One check in JSON.
    Single,
    /// Several checks in JSON.
    Batch,
    /// A status and header fields.
    Gate,
    /// The request passes, with the header fields in this form, or gets a refusal.
    Pass(Box<Pass>, Option<OlderForm>),
}

/// A request that lacks only its key.
#[derive(Clone, Debug)]
pub(crate) struct Keyless {
    policy: Arc<Policy>,
    cost: u64,
    class: Option<String>,
    form: Form,
}

impl Keyless {
    /// `GET /v1/gate`
    pub(crate) fn of_gate(policy: &Arc<Policy>, cost: u64, class: Option<String>) -> Self {
        Self { policy: Arc::clone(policy), cost, class, form: Form::Gate }
    }

    /// A request that passes to an upstream by a route.
    pub(crate) fn of_route(policy: &Arc<Policy>, pass: Box<Pass>) -> Self {
        let (cost, form) = (policy.cost().stated(), Form::Pass(pass, None));
        Self { policy: Arc::clone(policy), cost, class: None, form }
    }

    /// A request that passes to the rest of its process.
    pub(crate) fn of_middleware(
        policy: &Arc<Policy>,
        cost: Option<u64>,
        form: Option<OlderForm>,
    ) -> Self {
        let (cost, form) =
            (cost.unwrap_or(policy.cost().stated()), Form::Pass(Box::default(), form));
        Self { policy: Arc::clone(policy), cost, class: None, form }
    }

    pub(crate) fn plan(self, key: Option<&str>, random: Chance<'_>) -> Result<Plan, Response> {
        let Self { policy, cost, class, form } = self;
        let Some(key) = key else { return Err(without_key(&policy, &form)) };
        let check = CheckForm { cost: Some(Bounded::clamped(cost)), class, ..CheckForm::default() };
        let asked = Ask::Check(check).resolve(&policy, key, random);
        let asked = asked.map_err(|error| problem::of(&error, ""))?;
        if form == Form::Gate && asked.resolved().has(Kind::Lease) {
            // the answer has no body to name the lease in, so only its time to live would end it
            let name = policy.name();
            let detail = alloc::format!(
                "`policy`: expected a policy without leases, found {name:?}; nobody could release a lease \
                 that is acquired here, so use POST /v1/leases"
            );
            return Err(invalid_request(detail));
        }
        Ok(Plan { checks: [Check { asked, now: None, draw: None }].into(), form })
    }
}

fn without_key(policy: &Policy, form: &Form) -> Response {
    if *form == Form::Gate {
        let sources = "or a header or address that the policy finds the key in";
        return invalid_request(alloc::format!(
            "expected `key` in the query, {sources}; found none of them"
        ));
    }
    crate::key::without_key(policy)
}

impl Plan {
    pub(crate) fn of_one(check: Check) -> Self {
        Self { checks: [check].into(), form: Form::Single }
    }

    /// What becomes of the request, given the outcome of each check.
    pub(crate) fn serve(self, outcomes: Vec<Outcome>) -> Served {
        let Self { checks, form } = self;
        if outcomes.len() != checks.len() {
            return Served::Response(internal_error("not every check was decided".to_string()));
        }
        let outcomes = checks.iter().zip(outcomes).map(|(check, outcome)| check.said(outcome));
        let outcomes: Vec<Outcome> = outcomes.collect();
        let answers = checks.iter().zip(&outcomes);
        let answers: Vec<_> =
            answers.map(|(Check { asked, .. }, outcome)| Answer { asked, outcome }).collect();
        match (form, answers.as_slice()) {
            (Form::Pass(pass, older), [answer]) => pass_on(*pass, answer, older),
            (Form::Gate, [answer]) => Served::Response(gate(answer, None)),
            (Form::Single, [answer]) => Served::Response(single(answer)),
            (_, answers) => Served::Response(answer_json(200, forms::batch(answers))),
        }
    }
}

fn single(answer: &Answer<'_>) -> Response {
    match answer.outcome {
        // `on_error` is for requests: a key that is not blocked or reset must not look as if it were
        Outcome::Unavailable(reason)
            if matches!(answer.asked.operation(), Operation::Block(_) | Operation::Reset(_)) =>
        {
            Problem::ReducedCapacity.response(reason.clone())
        }
        outcome => {
            let mut response = answer_json(200, forms::single(answer));
            if let Outcome::Decided(verdict) = outcome {
                headers::add(&mut response.headers, answer, verdict, None);
            }
            response
        }
    }
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

fn pass_on(mut pass: Pass, answer: &Answer<'_>, form: Option<OlderForm>) -> Served {
    if !answer.passes() {
        return Served::Response(gate(answer, form));
    }
    if let Outcome::Decided(verdict) = answer.outcome {
        headers::add(&mut pass.headers, answer, verdict, form);
        pass.lease = Lease::of(answer.asked, verdict);
    }
    Served::Pass(pass)
}
