//! The calls without a body, whose fields are in the query or the path.

use alloc::string::String;
use alloc::sync::Arc;

use percent_encoding::percent_decode_str;
use tidegate_core::MAX_QUANTITY;

use super::call::Target;
use super::problem::Problem;
use super::{Check, Form, Head, Plan, Response, Server, find};
use crate::ask::{self, Ask, Chance, CheckForm};
use crate::limit::Kind;
use crate::policy::{Cost, Policies, Policy, Whole};
use crate::quote::Quoted;
use crate::source::{self, FoundKey};

/// `GET /v1/gate`
#[derive(Debug)]
pub(super) struct Gate {
    policy: Arc<Policy>,
    key: FoundKey,
    cost: u64,
    class: Option<String>,
}

impl Gate {
    pub(super) fn read(policies: &Policies, head: &Head<'_>) -> Result<Self, Response> {
        let [name, key, cost, class] = fields(head, ["policy", "key", "cost", "class"])?;
        let name = name.ok_or_else(|| missing("policy"))?;
        let policy = find(policies, &name, "")?;
        let key = match key {
            Some(key) => FoundKey::Known(Some(key)),
            None => source::find(policies.gateway(), policy, head),
        };
        let cost = match (cost, policy.cost()) {
            (Some(cost), _) => whole("the query field `cost`", &cost, 0)?,
            (None, Cost::Fixed(cost)) => *cost,
            (None, Cost::Header { name, default }) => match (head.header)(name) {
                // at least 1: clients can often set a header, and a peek always passes
                Some(cost) => whole(&alloc::format!("the header `{name}`"), &cost, 1)?,
                None => *default,
            },
        };
        Ok(Self { policy: Arc::clone(policy), key, cost, class })
    }

    pub(super) async fn plan(self, server: &mut impl Server) -> Result<Plan, Response> {
        let Self { policy, key, cost, class } = self;
        let key = key.key(server).await?.ok_or_else(|| {
            let sources = "or a header or address that the policy finds the key in";
            invalid(alloc::format!("expected `key` in the query, {sources}; found none of them"))
        })?;
        let check = Check::of_cost(&policy, &key, cost, class, &mut || server.random())?;
        if ask::has_kind(check.asked.resolved(), Kind::Lease) {
            // the answer has no body to name the lease in, so only its time to live would end it
            let name = policy.name();
            let detail = alloc::format!(
                "`policy`: expected a policy without leases, found {name:?}; nobody could release a lease \
                 that is acquired here, so use POST /v1/leases"
            );
            return Err(invalid(detail));
        }
        Ok(Plan { checks: [check].into(), form: Form::Gate })
    }
}

/// `DELETE /v1/leases/{id}`
pub(super) fn release(policies: &Policies, head: &Head<'_>, lease: &str) -> Result<Plan, Response> {
    let [policy, key, now_us] = fields(head, ["policy", "key", "now_us"])?;
    let policy = policy.ok_or_else(|| missing("policy"))?;
    let key = key.ok_or_else(|| missing("key"))?;
    let target = Target { policy, key, now_us: time(now_us)? };
    target.plan(policies, Ask::Release { lease: lease.into() }, &mut || None)
}

/// `GET` and `DELETE /v1/keys/{policy}/{key}`
pub(super) fn key(
    policies: &Policies,
    head: &Head<'_>,
    (policy, key): (String, String),
    chance: Chance<'_>,
) -> Result<Plan, Response> {
    if head.method == "DELETE" {
        let [now_us] = fields(head, ["now_us"])?;
        let target = Target { policy, key, now_us: time(now_us)? };
        return target.plan(policies, Ask::Reset {}, chance);
    }
    let [cost, class, now_us] = fields(head, ["cost", "class", "now_us"])?;
    let cost = cost.map(|cost| whole("the query field `cost`", &cost, 0)).transpose()?;
    let cost = Some(Whole(cost.unwrap_or(0)));
    let target = Target { policy, key, now_us: time(now_us)? };
    target.plan(policies, Ask::Peek(CheckForm { cost, class, ..CheckForm::default() }), chance)
}

fn time(now_us: Option<String>) -> Result<Option<Whole<0>>, Response> {
    let now_us = now_us.map(|now_us| whole("the query field `now_us`", &now_us, 0)).transpose()?;
    Ok(now_us.map(Whole))
}

/// The values of these fields of the query. Another field is an error, and so is a field that occurs
/// twice.
pub(super) fn fields<const N: usize>(
    head: &Head<'_>,
    names: [&str; N],
) -> Result<[Option<String>; N], Response> {
    let mut values = [const { None }; N];
    for pair in head.query.split('&').filter(|pair| !pair.is_empty()) {
        let (field, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(field), Some(value)) = (decoded(field), decoded(value)) else {
            let found = Quoted(pair);
            return Err(invalid(alloc::format!("the query: expected UTF-8, found {found}")));
        };
        let slot = names.iter().zip(&mut values).find(|(name, _)| **name == field);
        let Some((name, slot)) = slot else {
            let (allowed, found) = (names.join("`, `"), Quoted(&field));
            return Err(invalid(alloc::format!(
                "the query: expected one of `{allowed}`; found {found}"
            )));
        };
        if slot.replace(value).is_some() {
            return Err(invalid(alloc::format!(
                "the query: expected `{name}` once, found it twice"
            )));
        }
    }
    Ok(values)
}

/// Decodes a name or value of `application/x-www-form-urlencoded`; `None` if it is not UTF-8. A lossy
/// decoding would turn different bytes into one text, and count them as one key.
pub(crate) fn decoded(encoded: &str) -> Option<String> {
    let spaced = encoded.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(String::from)
}

fn missing(field: &str) -> Response {
    invalid(alloc::format!("the query: expected `{field}`, found no such field"))
}

fn invalid(detail: String) -> Response {
    Problem::InvalidRequest.response(detail)
}

pub(super) fn whole(what: &str, text: &str, least: u64) -> Result<u64, Response> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { text.parse().ok() } else { None };
    number.filter(|number| (least..=MAX_QUANTITY).contains(number)).ok_or_else(|| {
        let expected = alloc::format!("expected a whole number from {least} to {MAX_QUANTITY}");
        invalid(alloc::format!("{what}: {expected}, found {}", Quoted(text)))
    })
}
