//! `POST /v1/admit` tells middleware, in JSON, whether its request passes and what the request was granted.

use alloc::string::String;
use alloc::sync::Arc;

use tidegate_gate::{Asked, Operation, Timestamp};

use crate::answer::headers::OlderForm;
use crate::answer::json::{Object, object};
use crate::answer::problem::answer_json;
use crate::answer::{CheckResult, Outcome};
use crate::plan::pass_on;
use crate::response::{Headers, Response};
use crate::served::Pass;

/// What a request behind middleware was granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// The time of the grant.
    pub at: Timestamp,
    /// The units that a refund can return; 0 if none can come back, or if the request reserves its units.
    pub units: u64,
    /// The units that remain.
    pub remaining: u64,
}

impl Granted {
    /// The grant of a request with this outcome; all fields are 0 if the store did not answer.
    #[must_use]
    pub fn of(asked: &Asked, outcome: &Outcome) -> Self {
        let Outcome::Decided(verdict) = outcome else { return Self::default() };
        let undone = asked.undone(Some(verdict));
        let undone = undone.iter().filter(|_| !asked.keeps_units());
        let units = undone.map(Asked::operation).find_map(|operation| match operation {
            Operation::RefundOf(grant, _) => Some(grant.units),
            _ => None,
        });
        let (at, remaining) = (verdict.at, verdict.decision.remaining());
        Self { at, units: units.unwrap_or_default(), remaining }
    }
}

/// Answers a call of `POST /v1/admit`.
pub(crate) fn answer(result: &CheckResult<'_>, form: Option<OlderForm>) -> Response {
    let metering = result.asked.is_of_reservation().then(Arc::default); // middleware has its own
    let mut pass = Pass::default();
    let refused = pass_on(&mut pass, result, form, metering.as_ref()).err();
    let admitted = refused.as_ref().map_or(Ok(&pass), Err);
    answer_json(200, json(result, Granted::of(result.asked, result.outcome), admitted))
}

fn json(result: &CheckResult<'_>, granted: Granted, admitted: Result<&Pass, &Response>) -> String {
    object(|it| {
        it.field("policy", result.policy().name());
        match admitted {
            Err(response) => {
                headers(&response.headers, it);
                it.object("refusal", |it| {
                    it.field("status", u64::from(response.status));
                    it.field("body", response.body.as_str());
                });
            }
            Ok(pass) => {
                headers(&pass.headers, it);
                if let Some(lease) = pass.leases.first() {
                    it.object("lease", |it| {
                        it.field("name", lease.name.as_str());
                        it.field("renew_every_us", lease.renew_every.0);
                    });
                }
                if let Some(reservation) = pass.reservations.first() {
                    it.object("reservation", |it| {
                        it.field("id", reservation.id.as_str());
                        it.field("units", reservation.meter.estimate());
                    });
                }
                if granted.units > 0 {
                    it.object("grant", |it| {
                        it.field("at_us", granted.at.0);
                        it.field("units", granted.units);
                    });
                }
            }
        }
        if let Outcome::Decided(_) = result.outcome {
            it.field("remaining", granted.remaining);
        }
    })
}

fn headers(all: &Headers, it: &mut Object<'_>) {
    it.objects("headers", all, |(name, value), it| {
        it.field("name", *name);
        it.field("value", &**value);
    });
}
