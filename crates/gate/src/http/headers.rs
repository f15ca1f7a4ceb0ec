//! `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11, structured fields
//! of RFC 9651) and `Retry-After` (RFC 9110 §10.2.3).

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;

use tidegate_core::Decision;

use super::Answer;
use crate::decide::Verdict;
use crate::limit::Kind;

/// Names of limits need no escaping: they consist of letters, digits, `_`, `-` and `.`.
pub(super) fn add(
    headers: &mut Vec<(&'static str, String)>,
    answer: &Answer<'_>,
    verdict: &Verdict,
) {
    let Some(limits) = answer.limits() else { return }; // a listed key has no quota
    let (mut policies, mut states) = (String::new(), String::new());
    for (limit, decision) in limits.iter().zip(&verdict.limits) {
        let (name, limit) = (&limit.name, &limit.limit);
        let (most, terms) = match limit.kind() {
            Kind::Rate => {
                let window = limit.period().as_secs_ceil(); // rounded up, so that a client within it is within the limit
                (limit.capacity(), alloc::format!(";w={window}"))
            }
            // without a window: places come back when they are released
            Kind::Lease => (decision.limit(), ";qu=\"concurrent-requests\"".to_string()),
            Kind::Shed | Kind::Budget => continue, // not a quota of the caller
        };
        let comma = if policies.is_empty() { "" } else { ", " };
        let (most, remaining) = (most.min(MOST), decision.remaining().min(MOST));
        let _ = write!(policies, "{comma}\"{name}\";q={most}{terms}");
        let _ = write!(states, "{comma}\"{name}\";r={remaining}");
        let wait = match (decision, verdict.decision) {
            // `Retry-After` wins over `t` and must not be earlier, so both are rounded up below
            (Decision::Deny { retry_after, .. }, _) => Some(retry_after),
            (Decision::Allow { reset_after, .. }, Decision::Allow { .. })
                if limit.kind() == Kind::Rate =>
            {
                Some(reset_after)
            }
            (Decision::Allow { .. }, _) => None,
        };
        if let Some(wait) = wait {
            let _ = write!(states, ";t={}", wait.as_secs_ceil());
        }
    }
    if !policies.is_empty() {
        headers.push(("ratelimit-policy", policies));
        headers.push(("ratelimit", states));
    }
    if let Decision::Deny { retry_after, .. } = verdict.decision
        && !answer.passes()
    {
        headers.push(("retry-after", retry_after.as_secs_ceil().to_string()));
    }
}

/// The largest integer of a structured field. A parser ignores a field with a larger one.
const MOST: u64 = 999_999_999_999_999;
