//! `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11, structured fields
//! of RFC 9651) and `Retry-After` (RFC 9110 §10.2.3).

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;

use tidegate_core::Decision;

use super::Answer;
use crate::decide::Verdict;

/// Names need no escaping: letters, digits, `_`, `-` and `.`.
pub(super) fn add(
    headers: &mut Vec<(&'static str, String)>,
    answer: &Answer<'_>,
    verdict: &Verdict,
) {
    if verdict.limits.is_empty() {
        return; // the key stands on a list: there is no quota to tell of
    }
    let (mut policies, mut states) = (String::new(), String::new());
    for (limit, decision) in answer.limits.iter().zip(&verdict.limits) {
        let comma = if policies.is_empty() { "" } else { ", " };
        let (name, limit) = (&limit.name, &limit.limit);
        if !limit.counts_units() {
            continue;
        }
        let window = limit.period().as_secs_ceil(); // up: who keeps to it keeps the limit
        let _ = write!(policies, "{comma}\"{name}\";q={};w={window}", limit.capacity());
        let _ = write!(states, "{comma}\"{name}\";r={}", decision.remaining());
        match (decision, verdict.decision) {
            // `Retry-After` wins over `t` and must not be earlier: both are the one ceiling below
            (Decision::Deny { .. }, _) => {
                let _ = write!(states, ";t={}", decision.retry_after().as_secs_ceil());
            }
            (Decision::Allow { .. }, Decision::Allow { .. }) => {
                let _ = write!(states, ";t={}", decision.reset_after().as_secs_ceil());
            }
            (Decision::Allow { .. }, Decision::Deny { .. }) => {}
        }
    }
    headers.push(("ratelimit-policy", policies));
    headers.push(("ratelimit", states));
    if let Decision::Deny { retry_after, .. } = verdict.decision
        && !answer.passes()
    {
        headers.push(("retry-after", retry_after.as_secs_ceil().to_string()));
    }
}
