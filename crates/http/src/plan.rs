//! The checks of a request, and what becomes of the request by their outcomes.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_gate::{
    Ask, Asked, Bounded, Chance, CheckForm, Draw, Effect, Kind, Metering, Operation, Policy, Ppm,
    ReserveForm, Resolved, Route, RoutePolicy, Timestamp,
};

use crate::answer::headers::OlderForm;
use crate::answer::problem::{self, Problem, answer_json, internal_error, invalid_request};
use crate::answer::{CheckResult, Outcome, forms, headers};
use crate::head::{BodyError, Head};
use crate::key::FoundKey;
use crate::meter::Estimate;
use crate::response::Response;
use crate::served::{Lease, Pass, Reservation, Served};
use crate::several::Several;

/// The checks to decide, and the form of the answer.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) checks: Vec<Check>,
    pub(crate) form: Form,
    /// How the true cost of the check is known, which is then a reservation.
    pub(crate) metering: Option<Arc<Metering>>,
}

/// How the checks of a request are decided.
#[derive(Debug)]
pub(crate) enum Planned {
    /// At once.
    Once(Plan),
    /// One after another.
    Several(Box<Several>),
}

/// One operation on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub(crate) asked: Asked,
    pub(crate) now: Option<Timestamp>,
    pub(crate) draw: Option<Draw>,
}

#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// One check in JSON.
    Single,
    /// One check that acquires a lease, in JSON.
    Lease,
    /// Several checks in JSON.
    Batch,
    /// Several checks in JSON, which are decided one after another.
    AllOrNothing,
    /// A status and header fields.
    Gate,
    /// What becomes of a request behind middleware, in JSON.
    Admission {
        form: FieldForm,
        /// Other policies decide on the request later, so the caller may have to return the grant.
        may_come_back: bool,
        /// Words the answer. A function, because a program without the API then has no JSON of admissions in it.
        answer: fn(&CheckResult<'_>, Option<OlderForm>) -> Response,
    },
    /// The request passes, with the header fields in this form, or gets a refusal.
    Pass(Box<Pass>, FieldForm),
}

/// The form of the fields about limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldForm {
    pub(crate) older: Option<OlderForm>,
    pub(crate) is_one_of_several: bool,
}

/// A request that lacks only its keys.
#[derive(Clone, Debug)]
pub(crate) struct Keyless {
    /// What the request asks of the policy whose key comes next.
    wants: Wants,
    form: Form,
    metering: Option<Arc<Metering>>,
    /// In place of the cost, of what is reserved.
    estimate: Option<Estimate>,
    /// What the request asks of other policies; `None` if there are none.
    others: Option<Box<Others>>,
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
    /// The signal of a limit `utilization`, in parts per million; `None` if the last one holds.
    pub signal_ppm: Option<u32>,
    /// The form of the header fields; `None` for the newest.
    pub form: Option<OlderForm>,
    /// Whether the cost is an estimate, which the request reserves.
    pub reserves: bool,
    /// Whether other policies decide on the request too. Names of limits then begin with the name of the policy.
    pub is_one_of_several: bool,
}

/// What a request asks of one policy.
#[derive(Clone, Debug)]
struct Wants {
    policy: Arc<Policy>,
    ask: Ask,
}

/// What a request asks of the policies beside the one whose key comes next, in the order in which they decide.
#[derive(Clone, Debug)]
struct Others {
    /// Of those before it, with their keys.
    keyed: Vec<(Wants, String)>,
    /// Of those after it, with what the head of the request says of their keys.
    unkeyed: VecDeque<(Wants, FoundKey)>,
}

impl Keyless {
    /// `GET /v1/gate`
    pub(crate) fn of_gate(policy: &Arc<Policy>, cost: u64, class: Option<String>) -> Self {
        let ask = ask_of(false, Some(Bounded::clamped(cost)), class, None);
        let wants = Wants { policy: Arc::clone(policy), ask };
        Self { wants, form: Form::Gate, metering: None, estimate: None, others: None }
    }

    /// A request that passes to an upstream by a route. `found` finds its key under a policy.
    pub(crate) fn of_route(
        (first, rest): (&RoutePolicy, &[RoutePolicy]),
        route: &Route,
        head: &Head<'_>,
        pass: Box<Pass>,
        found: impl Fn(&Policy) -> FoundKey,
    ) -> Self {
        let metering = route.metering().cloned();
        let estimate = metering.as_ref().and_then(|metering| Estimate::of(metering, head));
        let wants = |each: &RoutePolicy| {
            let policy = Arc::clone(each.policy());
            let reserves = metering.is_some() && policy.reservations().is_some();
            let cost = route.cost().map(Bounded::clamped);
            let ask = ask_of(reserves, cost, each.class().map(String::from), None);
            Wants { policy, ask }
        };
        let others = (!rest.is_empty()).then(|| {
            let unkeyed = rest.iter().map(|each| (wants(each), found(each.policy()))).collect();
            Box::new(Others { keyed: Vec::new(), unkeyed })
        });
        Self {
            wants: wants(first),
            form: Form::Pass(pass, FieldForm::default()),
            metering,
            estimate,
            others,
        }
    }

    /// A request that passes to the rest of its process if each of these policies grants it.
    pub(crate) fn plan_of_all(
        all: &[(&Arc<Policy>, Keyed<'_>)],
        random: Chance<'_>,
    ) -> Result<Planned, Response> {
        if let [(policy, asked)] = all {
            return Plan::of_middleware(policy, asked, random).map(Planned::Once);
        }
        let older = all.first().and_then(|(_, asked)| asked.form);
        let form = Form::Pass(Box::default(), FieldForm { older, is_one_of_several: true });
        let checks =
            all.iter().map(|(policy, asked)| Check::of_middleware(policy, asked, &mut *random));
        let checks: Vec<Check> = checks.collect::<Result<_, _>>()?;
        Ok(Planned::Several(Several::new(checks, form, Some(Arc::default()))))
    }

    /// Takes the key of the policy whose key comes next, if another policy follows. Returns what is known of that one's key, or
    /// gives the key back.
    pub(crate) fn next(&mut self, key: String) -> Result<FoundKey, String> {
        let Some(others) = &mut self.others else { return Err(key) };
        let Some((wants, found)) = others.unkeyed.pop_front() else { return Err(key) };
        others.keyed.push((core::mem::replace(&mut self.wants, wants), key));
        Ok(found)
    }

    /// Whether the cost depends on the body of the request.
    ///
    /// # Errors
    /// Returns the response to a request whose body cannot be read.
    pub(crate) fn reads_body(&self) -> Result<bool, Response> {
        self.estimate.as_ref().map_or(Ok(false), Estimate::reads)
    }

    /// Takes the body, or the reason why it is not known.
    ///
    /// # Errors
    /// Returns the response to a request whose cost the body does not tell.
    pub(crate) fn read(&mut self, body: Result<Vec<u8>, BodyError>) -> Result<(), Response> {
        self.estimate.as_mut().map_or(Ok(()), |estimate| estimate.read(body))
    }

    /// The checks of the request, given the last key.
    pub(crate) fn plan(self, key: Option<&str>, random: Chance<'_>) -> Result<Planned, Response> {
        let Self { wants, form, metering, estimate, others } = self;
        let Some(key) = key else { return Err(without_key(&wants.policy, &form)) };
        let estimate = estimate.map(|estimate| estimate.units());
        if let Some(others) = others {
            let mut checks = Vec::new();
            for (wants, key) in others.keyed {
                checks.push(wants.check(&key, estimate, random)?);
            }
            checks.push(wants.check(key, estimate, random)?);
            return Ok(Planned::Several(Several::new(checks, form, metering)));
        }
        let check = wants.check(key, estimate, random)?;
        if matches!(form, Form::Gate) && check.asked.resolved().has(Kind::Lease) {
            // the answer has no body to name the lease in, so only its time to live would end it
            let name = check.asked.resolved().policy().name();
            let detail = alloc::format!(
                "`policy`: expected a policy without leases, found {name:?}; nobody could release a lease \
                 that is acquired here, so use POST /v1/leases"
            );
            return Err(invalid_request(detail));
        }
        Ok(Planned::Once(Plan { checks: [check].into(), form, metering }))
    }
}

impl Wants {
    fn check(
        self,
        key: &str,
        estimate: Option<u64>,
        random: Chance<'_>,
    ) -> Result<Check, Response> {
        let Self { policy, mut ask } = self;
        if let (Ask::Reserve(form), Some(estimate)) = (&mut ask, estimate) {
            form.cost = Some(Bounded::clamped(estimate));
        }
        Check::of(ask, &policy, key, random)
    }
}

/// What a request asks. Its cost is an estimate if it `reserves`, and that of the policy by default.
pub(crate) fn ask_of(
    reserves: bool,
    cost: Option<Bounded<0>>,
    class: Option<String>,
    signal_ppm: Option<Ppm>,
) -> Ask {
    match reserves {
        true => Ask::Reserve(ReserveForm { cost, class, signal_ppm, ..ReserveForm::default() }),
        false => Ask::Check(CheckForm { cost, class, signal_ppm, ..CheckForm::default() }),
    }
}

fn without_key(policy: &Policy, form: &Form) -> Response {
    if matches!(form, Form::Gate) {
        let sources = "or a header or address that the policy finds the key in";
        return invalid_request(alloc::format!(
            "expected `key` in the query, {sources}; found none of them"
        ));
    }
    crate::key::without_key(policy)
}

impl Check {
    fn of(ask: Ask, policy: &Arc<Policy>, key: &str, random: Chance<'_>) -> Result<Self, Response> {
        let asked = ask.resolve(policy, key, random).map_err(|error| problem::of(&error, ""))?;
        Ok(Self { asked, now: None, draw: None })
    }

    pub(crate) fn of_middleware(
        policy: &Arc<Policy>,
        asked: &Keyed<'_>,
        random: Chance<'_>,
    ) -> Result<Self, Response> {
        let Keyed { key, cost, class, signal_ppm, reserves, .. } = *asked;
        let signal_ppm = signal_ppm.map(|signal| Bounded::clamped(signal.into()));
        let ask = ask_of(reserves, cost.map(Bounded::clamped), class.map(String::from), signal_ppm);
        Self::of(ask, policy, key, random)
    }

    /// What becomes of a request that passes to the rest of its process, given the outcome of its only check. It is not that of an
    /// earlier request, because a [`Keyed`] has no idempotency key.
    ///
    /// # Errors
    /// Returns the response to a request that does not pass.
    pub(crate) fn serve(&self, asked: &Keyed<'_>, mut outcome: Outcome) -> Result<Pass, Response> {
        let Keyed { form, reserves, is_one_of_several, .. } = *asked;
        self.say(&mut outcome);
        let result = CheckResult { asked: &self.asked, outcome: &outcome, is_one_of_several };
        let metering = reserves.then(Arc::default); // the middleware has its own
        let mut pass = Pass::default();
        pass_on(&mut pass, &result, form, metering.as_ref())?;
        Ok(pass)
    }

    /// The policy, limits and canonical key of the check.
    #[must_use]
    pub const fn resolved(&self) -> &Resolved {
        self.asked.resolved()
    }

    /// What was asked.
    #[must_use]
    pub const fn asked(&self) -> &Asked {
        &self.asked
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

    /// The operations that give back what the check was granted, in their order: of an [`Outcome`] that is not known, only the end
    /// of a lease or reservation.
    #[must_use]
    pub fn undone(&self, outcome: &Outcome) -> Vec<Self> {
        let verdict = match outcome {
            Outcome::Decided(verdict) => Some(verdict),
            Outcome::Unavailable(_) | Outcome::Unreadable(_) => None,
        };
        let undone = self.asked.undone(verdict).into_iter();
        undone.map(|asked| Self { asked, now: self.now, draw: None }).collect()
    }

    /// The same check as a peek.
    pub(crate) fn looked(&self) -> Self {
        Self { asked: self.asked.looked(), ..self.clone() }
    }

    /// The caller's own time, if it gave one. Only a test environment may use it.
    #[must_use]
    pub const fn caller_time(&self) -> Option<Timestamp> {
        self.now
    }

    /// What the caller is told of an outcome.
    pub(crate) fn said<'o>(&self, outcome: &'o Outcome) -> Cow<'o, Outcome> {
        let mut said = Cow::Borrowed(outcome);
        if self.asked.costs_too_much() {
            self.say(said.to_mut());
        }
        said
    }

    /// Makes of an outcome what the caller is told.
    pub(crate) fn say(&self, outcome: &mut Outcome) {
        if let Outcome::Decided(verdict) = outcome
            && self.asked.costs_too_much()
        {
            *verdict = self.asked.said(verdict.clone());
        }
    }
}

impl Plan {
    /// A request that passes to the rest of its process.
    pub(crate) fn of_middleware(
        policy: &Arc<Policy>,
        asked: &Keyed<'_>,
        random: Chance<'_>,
    ) -> Result<Self, Response> {
        let Keyed { form: older, reserves, is_one_of_several, .. } = *asked;
        let check = Check::of_middleware(policy, asked, random)?;
        let form = Form::Pass(Box::default(), FieldForm { older, is_one_of_several });
        let metering = reserves.then(Arc::default); // the middleware has its own
        Ok(Self { checks: [check].into(), form, metering })
    }

    /// What becomes of the request, given the outcome of each check.
    pub(crate) fn serve(self, mut outcomes: Vec<Outcome>) -> Served {
        let Self { checks, form, metering } = self;
        if outcomes.len() != checks.len() {
            return Served::Response(internal_error("not every check was decided".to_string()));
        }
        outcomes.iter_mut().zip(&checks).for_each(|(outcome, check)| check.say(outcome));
        let is_of_another = |outcome: &Outcome| matches!(outcome, Outcome::Decided(verdict) if verdict.effect == Effect::OtherRequest);
        if outcomes.iter().any(is_of_another) {
            let detail = "`idempotency-key`: expected the request for which this key was used first, or a new key; found \
                          another request";
            return Served::Response(Problem::IdempotencyKeyReused.response(detail.to_string()));
        }
        let is_one_of_several = matches!(&form, Form::Pass(_, form) | Form::Admission { form, .. } if form.is_one_of_several);
        let results = checks.iter().zip(&outcomes).map(|(Check { asked, .. }, outcome)| {
            CheckResult { asked, outcome, is_one_of_several }
        });
        let result = if results.len() == 1 { results.clone().next() } else { None };
        match (form, result) {
            (Form::Pass(mut pass, form), Some(result)) => {
                let passes = pass_on(&mut pass, &result, form.older, metering.as_ref());
                passes.map_or_else(Served::Response, |()| Served::Pass(pass))
            }
            (Form::Admission { form, answer, .. }, Some(result)) => {
                Served::Response(answer(&result, form.older))
            }
            (Form::Gate, Some(result)) => Served::Response(gate(&result, None)),
            (Form::Single, Some(result)) => Served::Response(single(&result, forms::single)),
            (Form::Lease, Some(result)) => Served::Response(single(&result, forms::lease)),
            _ => Served::Response(answer_json(200, forms::batch(results))),
        }
    }
}

fn single(result: &CheckResult<'_>, json: fn(&CheckResult<'_>) -> String) -> Response {
    match result.outcome {
        // `on_error` is for requests: a key that is not blocked or reset must not look as if it were
        Outcome::Unavailable(reason) | Outcome::Unreadable(reason)
            if matches!(result.asked.operation(), Operation::Block(_) | Operation::Reset(_)) =>
        {
            Problem::ReducedCapacity.response(reason.clone())
        }
        outcome => {
            let mut response = answer_json(200, json(result));
            if let Outcome::Decided(verdict) = outcome {
                headers::add(&mut response.headers, result, verdict, None);
            }
            response
        }
    }
}

pub(crate) fn gate(result: &CheckResult<'_>, form: Option<OlderForm>) -> Response {
    let mut response = match result.outcome {
        _ if result.passes() => problem::no_content(),
        Outcome::Decided(verdict) => {
            problem::refused(result, verdict, headers::retry_after(result, verdict))
        }
        Outcome::Unavailable(reason) | Outcome::Unreadable(reason) => {
            problem::unavailable(result, reason.clone())
        }
    };
    if let Outcome::Decided(verdict) = result.outcome {
        headers::add(&mut response.headers, result, verdict, form);
    }
    response
}

/// Notes what the request is granted.
///
/// # Errors
/// Returns the response to a request that does not pass.
pub(crate) fn pass_on(
    pass: &mut Pass,
    result: &CheckResult<'_>,
    form: Option<OlderForm>,
    metering: Option<&Arc<Metering>>,
) -> Result<(), Response> {
    if !result.passes() {
        return Err(gate(result, form));
    }
    if let Outcome::Decided(verdict) = result.outcome {
        headers::add(&mut pass.headers, result, verdict, form);
        pass.leases.extend(Lease::of(result.asked, verdict));
    }
    let reservation =
        metering.and_then(|metering| Reservation::of(metering, result.asked, result.outcome));
    pass.reservations.extend(reservation);
    Ok(())
}
