//! The checks of a request, and what becomes of the request by their outcomes.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_gate::{
    Ask, Asked, Bounded, Chance, CheckForm, Draw, Effect, Kind, Metering, Operation, Policy,
    ReserveForm, Resolved, Route, Timestamp,
};

use crate::answer::headers::OlderForm;
use crate::answer::problem::{self, Problem, answer_json, internal_error, invalid_request};
use crate::answer::{CheckResult, Outcome, forms, headers};
use crate::head::{BodyError, Head};
use crate::meter::Estimate;
use crate::response::Response;
use crate::served::{Lease, Pass, Reservation, Served};

/// The checks to decide, and the form of the answer.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) checks: Vec<Check>,
    pub(crate) form: Form,
    /// How the true cost of the check is known, which is then a reservation.
    pub(crate) metering: Option<Arc<Metering>>,
}

/// One operation on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub(crate) asked: Asked,
    pub(crate) now: Option<Timestamp>,
    pub(crate) draw: Option<Draw>,
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
    metering: Option<Arc<Metering>>,
    /// In place of the cost.
    estimate: Option<Estimate>,
}

/// A request whose policy and key are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keyed<'k> {
    /// The key.
    pub key: &'k str,
    /// The cost, whatever the headers of the request say; `None` for that of the policy.
    pub cost: Option<u64>,
    /// The name of the class; `None` for the least important one.
    pub class: Option<&'k str>,
    /// The form of the header fields; `None` for the newest.
    pub form: Option<OlderForm>,
    /// Whether the cost is an estimate, which the request reserves.
    pub reserves: bool,
}

impl Keyless {
    /// `GET /v1/gate`
    pub(crate) fn of_gate(policy: &Arc<Policy>, cost: u64, class: Option<String>) -> Self {
        Self::new(policy, cost, class, Form::Gate)
    }

    fn new(policy: &Arc<Policy>, cost: u64, class: Option<String>, form: Form) -> Self {
        Self { policy: Arc::clone(policy), cost, class, form, metering: None, estimate: None }
    }

    /// A request that passes to an upstream by a route.
    pub(crate) fn of_route(
        policy: &Arc<Policy>,
        route: &Route,
        head: &Head<'_>,
        pass: Box<Pass>,
    ) -> Self {
        let cost = route.cost().unwrap_or(policy.cost().stated());
        let (class, form) = (route.class().map(String::from), Form::Pass(pass, None));
        let metering = route.metering().cloned();
        let estimate = metering.as_ref().and_then(|metering| Estimate::of(metering, head));
        Self { metering, estimate, ..Self::new(policy, cost, class, form) }
    }

    /// A request that passes to the rest of its process.
    pub(crate) fn of_middleware(policy: &Arc<Policy>, asked: &Keyed<'_>) -> Self {
        let Keyed { cost, class, form, reserves, .. } = *asked;
        let cost = cost.unwrap_or(policy.cost().stated());
        let metering = reserves.then(Arc::default); // the middleware has its own
        let form = Form::Pass(Box::default(), form);
        Self { metering, ..Self::new(policy, cost, class.map(String::from), form) }
    }

    /// Whether the cost depends on the body of the request.
    pub(crate) fn reads_body(&self) -> bool {
        self.estimate.as_ref().is_some_and(Estimate::reads)
    }

    /// Takes the body, or the reason why it is not known.
    pub(crate) fn read(&mut self, body: Result<Vec<u8>, BodyError>) {
        if let Some(estimate) = &mut self.estimate {
            estimate.read(body);
        }
    }

    pub(crate) fn plan(self, key: Option<&str>, random: Chance<'_>) -> Result<Plan, Response> {
        let Self { policy, cost, class, form, metering, estimate } = self;
        let Some(key) = key else { return Err(without_key(&policy, &form)) };
        let cost = Some(Bounded::clamped(estimate.map_or(cost, |estimate| estimate.units())));
        let ask = match metering {
            Some(_) => Ask::Reserve(ReserveForm { cost, class, ..ReserveForm::default() }),
            None => Ask::Check(CheckForm { cost, class, ..CheckForm::default() }),
        };
        let asked = ask.resolve(&policy, key, random);
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
        Ok(Plan { checks: [Check { asked, now: None, draw: None }].into(), form, metering })
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

impl Check {
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

    /// What the caller is told of an outcome.
    fn said(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Decided(verdict) => Outcome::Decided(self.asked.said(verdict)),
            unavailable => unavailable,
        }
    }
}

impl Plan {
    /// What becomes of the request, given the outcome of each check.
    pub(crate) fn serve(self, outcomes: Vec<Outcome>) -> Served {
        let Self { checks, form, metering } = self;
        if outcomes.len() != checks.len() {
            return Served::Response(internal_error("not every check was decided".to_string()));
        }
        let outcomes = checks.iter().zip(outcomes).map(|(check, outcome)| check.said(outcome));
        let outcomes: Vec<Outcome> = outcomes.collect();
        let is_of_another = |outcome: &Outcome| matches!(outcome, Outcome::Decided(verdict) if verdict.effect == Effect::OtherRequest);
        if outcomes.iter().any(is_of_another) {
            let detail = "`idempotency-key`: expected the request for which this key was used first, or a new key; found \
                          another request";
            return Served::Response(Problem::IdempotencyKeyReused.response(detail.to_string()));
        }
        let results = checks.iter().zip(&outcomes);
        let results: Vec<_> =
            results.map(|(Check { asked, .. }, outcome)| CheckResult { asked, outcome }).collect();
        match (form, results.as_slice()) {
            (Form::Pass(pass, older), [result]) => pass_on(*pass, result, older, metering.as_ref()),
            (Form::Gate, [result]) => Served::Response(gate(result, None)),
            (Form::Single, [result]) => Served::Response(single(result)),
            (_, results) => Served::Response(answer_json(200, forms::batch(results))),
        }
    }
}

fn single(result: &CheckResult<'_>) -> Response {
    match result.outcome {
        // `on_error` is for requests: a key that is not blocked or reset must not look as if it were
        Outcome::Unavailable(reason)
            if matches!(result.asked.operation(), Operation::Block(_) | Operation::Reset(_)) =>
        {
            Problem::ReducedCapacity.response(reason.clone())
        }
        outcome => {
            let mut response = answer_json(200, forms::single(result));
            if let Outcome::Decided(verdict) = outcome {
                headers::add(&mut response.headers, result, verdict, None);
            }
            response
        }
    }
}

fn gate(result: &CheckResult<'_>, form: Option<OlderForm>) -> Response {
    let mut response = match result.outcome {
        _ if result.passes() => problem::no_content(),
        Outcome::Decided(verdict) => {
            problem::refused(result.limits(), verdict, headers::retry_after(result, verdict))
        }
        Outcome::Unavailable(reason) => Problem::ReducedCapacity.response(reason.clone()),
    };
    if let Outcome::Decided(verdict) = result.outcome {
        headers::add(&mut response.headers, result, verdict, form);
    }
    response
}

fn pass_on(
    mut pass: Pass,
    result: &CheckResult<'_>,
    form: Option<OlderForm>,
    metering: Option<&Arc<Metering>>,
) -> Served {
    if !result.passes() {
        return Served::Response(gate(result, form));
    }
    if let Outcome::Decided(verdict) = result.outcome {
        headers::add(&mut pass.headers, result, verdict, form);
        pass.lease = Lease::of(result.asked, verdict);
    }
    pass.reservation =
        metering.and_then(|metering| Reservation::of(metering, result.asked, result.outcome));
    Served::Pass(pass)
}
