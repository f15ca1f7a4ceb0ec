//! The calls without a body, whose fields are in the query or the path.

use alloc::string::String;

use tidegate_gate::{Ask, Bounded, Chance, CheckForm, MAX_QUANTITY, Policies, Quoted};

use super::call::Target;
use super::policies::actor;
use crate::answer::problem::invalid_request as invalid;
use crate::head::{Head, decoded};
use crate::plan::Plan;
use crate::response::Response;

/// `DELETE /v1/leases/{id}`
pub(super) fn release(policies: &Policies, head: &Head<'_>, lease: &str) -> Result<Plan, Response> {
    let [policy, key, now_us] = fields(head, ["policy", "key", "now_us"])?;
    let policy = policy.ok_or_else(|| missing("policy"))?;
    let key = key.ok_or_else(|| missing("key"))?;
    let target = target((policy, key), now_us)?;
    target.plan(policies, Ask::Release { lease: lease.into() }, &mut || None)
}

/// `GET` and `DELETE /v1/keys/{policy}/{key}`
pub(super) fn key(
    policies: &Policies,
    head: &Head<'_>,
    (policy, key): (String, String),
    random: Chance<'_>,
) -> Result<Plan, Response> {
    if head.method == "DELETE" {
        actor(head.header)?; // for the log of the server
        let [now_us] = fields(head, ["now_us"])?;
        let target = target((policy, key), now_us)?;
        return target.plan(policies, Ask::Reset {}, random);
    }
    let [cost, class, now_us] = fields(head, ["cost", "class", "now_us"])?;
    let cost = cost.map(|cost| whole("the query field `cost`", &cost, 0)).transpose()?;
    let cost = Some(Bounded::clamped(cost.unwrap_or(0)));
    let target = target((policy, key), now_us)?;
    target.plan(policies, Ask::Peek(CheckForm { cost, class, ..CheckForm::default() }), random)
}

/// `GET /v1/top` and `GET /v1/status`: whether keys are named as they are.
pub(super) fn are_keys_clear(head: &Head<'_>) -> Result<bool, Response> {
    let [keys] = fields(head, ["keys"])?;
    match keys.as_deref() {
        None | Some("hashed") => Ok(false),
        Some("clear") => Ok(true),
        Some(keys) => {
            let found = Quoted(keys);
            Err(invalid(alloc::format!(
                "the query field `keys`: expected `hashed` or `clear`, found {found}"
            )))
        }
    }
}

fn target(
    (policy, key): (String, String),
    now_us: Option<String>,
) -> Result<Target<'static>, Response> {
    Ok(Target { policy: policy.into(), key: key.into(), now_us: time(now_us)?, draw: None })
}

fn time(now_us: Option<String>) -> Result<Option<Bounded<0>>, Response> {
    let now_us = now_us.map(|now_us| whole("the query field `now_us`", &now_us, 0)).transpose()?;
    Ok(now_us.map(Bounded::clamped))
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

/// For a call that takes no field of the query. A caller may mean a field that is ignored as the cost.
pub(super) fn none(head: &Head<'_>) -> Result<(), Response> {
    match head.query {
        "" => Ok(()),
        found => {
            let found = Quoted(found);
            Err(invalid(alloc::format!("the query: expected none for this call, found {found}")))
        }
    }
}

pub(super) fn missing(field: &str) -> Response {
    invalid(alloc::format!("the query: expected `{field}`, found no such field"))
}

pub(super) fn whole(what: &str, text: &str, least: u64) -> Result<u64, Response> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { text.parse().ok() } else { None };
    number.filter(|number| (least..=MAX_QUANTITY).contains(number)).ok_or_else(|| {
        let expected = alloc::format!("expected a whole number from {least} to {MAX_QUANTITY}");
        invalid(alloc::format!("{what}: {expected}, found {}", Quoted(text)))
    })
}
