//! `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11, structured fields
//! of RFC 9651) and `Retry-After` (RFC 9110 §10.2.3).

mod older;

use alloc::string::{String, ToString};

use tidegate_gate::{Decision, Micros};

use super::CheckResult;
use crate::response::Headers;
pub use older::OlderForm;
use tidegate_gate::Limits;
use tidegate_gate::Verdict;
use tidegate_gate::{Kind, Limit};

/// Adds the fields about the limits, in an older form if the caller asks for one, and `Retry-After`.
pub(crate) fn add(
    headers: &mut Headers,
    result: &CheckResult<'_>,
    verdict: &Verdict,
    form: Option<OlderForm>,
) {
    let Some(limits) = result.limits() else { return }; // a listed key has no quota
    let hint = result.policy().lease_retry_after();
    match form {
        None => add_states(headers, result, limits, verdict),
        Some(form) => form.add_state(headers, limits, verdict, hint),
    }
    if !verdict.decision.is_allowed() && !result.passes() {
        let wait = Some(retry_after(result, verdict)).filter(|wait| *wait < Micros::MAX);
        headers.extend(wait.map(|wait| ("retry-after", wait.as_secs_ceil().to_string().into())));
    }
}

/// Adds the fields about one policy to those about others, and its limits to their lists.
pub(crate) fn join(headers: &mut Headers, more: Headers) {
    for (name, value) in more {
        let is_list = matches!(name, "ratelimit-policy" | "ratelimit");
        match headers.iter_mut().find(|(before, _)| is_list && *before == name) {
            Some((_, list)) => {
                let list = list.to_mut();
                list.push_str(", ");
                list.push_str(&value);
            }
            None => headers.push((name, value)),
        }
    }
}

/// How long a refused caller is told to wait: until all limits grant, but if the caller waits for a lease to expire, no longer
/// than the policy says, because a lease usually ends before.
pub(crate) fn retry_after(result: &CheckResult<'_>, verdict: &Verdict) -> Micros {
    let wait = verdict.decision.retry_after();
    let (mut leases, mut others) = (Micros::ZERO, Micros::ZERO);
    let limits = result.limits().into_iter().flat_map(|limits| limits.counting(verdict));
    for (limit, decision) in limits {
        let longest = if limit.limit.kind() == Kind::Lease { &mut leases } else { &mut others };
        *longest = decision.retry_after().max(*longest);
    }
    match leases == wait {
        true => wait.min(result.policy().lease_retry_after()).max(others),
        false => wait, // of a limit on units, or of a block
    }
}

/// The wait of a refusal by one limit. `hint` is the longest wait for a lease.
fn hinted(limit: &Limit, decision: &Decision, hint: Micros) -> Micros {
    let wait = decision.retry_after();
    if limit.kind() == Kind::Lease { wait.min(hint) } else { wait }
}

/// Names of policies and limits need no escaping: they consist of letters, digits, `_`, `-` and `.`.
fn add_states(headers: &mut Headers, result: &CheckResult<'_>, limits: &Limits, verdict: &Verdict) {
    let hint = result.policy().lease_retry_after();
    let (mut policies, mut states) = (String::with_capacity(64), String::with_capacity(64)); // most
    // a client that knew a limit in shadow, or a payer that has no room, would go by it
    for (limit, decision) in limits.counting(verdict) {
        let (name, limit) = (result.name_of(limit), &limit.limit);
        match limit.kind() {
            Kind::Rate => {
                add_item(&mut policies, &name, ";q=", limit.capacity());
                let window = limit.period().as_secs_ceil(); // rounded up, so that a client within it is within the limit
                add_number(&mut policies, ";w=", window);
            }
            // without a window: places come back when they are released
            Kind::Lease => {
                add_item(&mut policies, &name, ";q=", decision.limit());
                policies.push_str(";qu=\"concurrent-requests\"");
            }
            Kind::Shed | Kind::Budget => continue, // not a quota of the caller
        }
        add_item(&mut states, &name, ";r=", decision.remaining());
        if let Some(wait) = wait(limit, decision, verdict, hint) {
            add_number(&mut states, ";t=", wait.as_secs_ceil());
        }
    }
    if !policies.is_empty() {
        headers.push(("ratelimit-policy", policies.into()));
        headers.push(("ratelimit", states.into()));
    }
}

/// Adds an item with its first parameter to a list. The formatter of `core` would take as long as the decision.
fn add_item(list: &mut String, name: &str, parameter: &str, number: u64) {
    list.push_str(if list.is_empty() { "\"" } else { ", \"" });
    list.push_str(name);
    list.push('"');
    add_number(list, parameter, number.min(MOST));
}

fn add_number(list: &mut String, parameter: &str, number: u64) {
    list.push_str(parameter);
    list.push_str(itoa::Buffer::new().format(number));
}

/// The time until a limit has more units. `Retry-After` wins over it and must not be earlier, so both are rounded up.
fn wait(limit: &Limit, decision: &Decision, verdict: &Verdict, hint: Micros) -> Option<Micros> {
    match (*decision, verdict.decision) {
        (Decision::Deny { .. }, _) => Some(hinted(limit, decision, hint)),
        (Decision::Allow { reset_after, .. }, Decision::Allow { .. })
            if limit.kind() == Kind::Rate =>
        {
            Some(reset_after)
        }
        (Decision::Allow { .. }, _) => None,
    }
}

/// The largest integer of a structured field. A parser ignores a field with a larger one.
const MOST: u64 = 999_999_999_999_999;
