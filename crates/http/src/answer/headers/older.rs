//! The older forms of the fields about limits, for clients that read no other.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::str::FromStr;

use tidegate_form::{Error, Form, Node};
use tidegate_gate::{Decision, Micros};

use super::{MOST, wait};
use crate::response::Headers;
use tidegate_gate::Limits;
use tidegate_gate::Quoted;
use tidegate_gate::Verdict;
use tidegate_gate::{Kind, Limit};

/// An older form of the fields about limits. Except for the policies of the drafts, it tells of one limit: the one that
/// refuses longest, or that has the least left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OlderForm {
    /// `RateLimit-Policy` and `RateLimit` of draft 7.
    Draft7,
    /// `RateLimit-Policy`, `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset` of draft 6.
    Draft6,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, which is a time in seconds since the Unix
    /// epoch.
    X,
}

impl FromStr for OlderForm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "draft-7" => Ok(Self::Draft7),
            "draft-6" => Ok(Self::Draft6),
            "x-ratelimit" => Ok(Self::X),
            _ => Err(format!(
                "expected \"draft-7\", \"draft-6\" or \"x-ratelimit\", found {}",
                Quoted(text)
            )),
        }
    }
}

impl Form for OlderForm {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(str::parse)
    }
}

impl OlderForm {
    pub(super) fn add_state(
        self,
        headers: &mut Headers,
        limits: &Limits,
        verdict: &Verdict,
        hint: Micros,
    ) {
        let quotas = || {
            let all = limits.counting(verdict).map(|(each, decision)| (&each.limit, decision));
            all.filter(|(limit, _)| matches!(limit.kind(), Kind::Rate | Kind::Lease))
        };
        let closest = quotas().min_by_key(|(_, decision)| {
            (decision.is_allowed(), Reverse(decision.retry_after()), decision.remaining())
        });
        let Some((limit, decision)) = closest else { return };
        let (quota, remaining) = (most(limit, decision), decision.remaining().min(MOST));
        let wait = wait(limit, decision, verdict, hint);
        if self != Self::X {
            let policies = quotas().map(|(limit, decision)| match limit.kind() {
                Kind::Rate => {
                    format!("{};w={}", most(limit, decision), limit.period().as_secs_ceil())
                }
                _ => most(limit, decision).to_string(),
            });
            let policies: Vec<String> = policies.collect();
            headers.push(("ratelimit-policy", policies.join(", ").into()));
        }
        let seconds = wait.map(|wait| match self {
            Self::X => verdict.at.0.saturating_add(wait.0).div_ceil(1_000_000),
            _ => wait.as_secs_ceil(),
        });
        if self == Self::Draft7 {
            let reset = seconds.map(|seconds| format!(", reset={seconds}")).unwrap_or_default();
            let state = format!("limit={quota}, remaining={remaining}{reset}");
            headers.push(("ratelimit", state.into()));
            return;
        }
        let [most_name, remaining_name, reset_name] = match self {
            Self::X => ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
            _ => ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"],
        };
        headers.push((most_name, quota.to_string().into()));
        headers.push((remaining_name, remaining.to_string().into()));
        headers.extend(seconds.map(|seconds| (reset_name, seconds.to_string().into())));
    }
}

/// The units that the limit grants at once.
fn most(limit: &Limit, decision: &Decision) -> u64 {
    let most = if limit.kind() == Kind::Rate { limit.capacity() } else { decision.limit() };
    most.min(MOST)
}
