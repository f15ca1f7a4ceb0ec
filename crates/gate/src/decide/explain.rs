//! Why a request passes or not, in words.

use alloc::format;
use alloc::string::String;

use tidegate_core::{Decision, Micros};

use super::operate::split;
use super::{Effect, Limits, Verdict};
use crate::limit::span;
use crate::limit::{Kind, NamedLimit};

/// Why a request passes or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The name of the limit that refuses longest, or has the least left; `None` if a list or a block decides.
    pub limit: Option<String>,
    /// The rate, the gap or the whole limit that decides, in words; empty if a list or a block decides.
    pub bound: String,
    /// A sentence.
    pub text: String,
}

impl Explanation {
    fn of_no_limit(text: String) -> Self {
        Self { limit: None, bound: String::new(), text }
    }

    /// Explains the answer to a request on a key that is on a list.
    pub(crate) fn listed(decision: Decision) -> Self {
        let list = if decision.is_allowed() { "allow" } else { "deny" };
        Self::of_no_limit(format!(
            "The key is on the list `{list}`, so its requests are not counted."
        ))
    }
}

impl Limits {
    /// The part of the deciding limit that holds a request back; `None` if it is the whole limit, or if the request passes.
    pub(super) fn held_by(&self, words: &[u64], verdict: &Verdict, cost: u64) -> Option<Effect> {
        if verdict.decision.is_allowed() {
            return None;
        }
        let (deciding, _) = self.deciding(verdict)?;
        let mut each = self.iter().zip(split(self, words));
        let (_, (limit, words)) = each.find(|(named, _)| named.name == deciding.name)?;
        limit.held_by(words, verdict.at, cost).map(|part| Effect::Bound { part })
    }

    /// The limit that refuses longest, or has the least left, and its answer.
    fn deciding<'a>(&'a self, verdict: &'a Verdict) -> Option<(&'a NamedLimit, &'a Decision)> {
        let is_allowed = verdict.decision.is_allowed();
        self.counting(verdict).max_by_key(|(_, said)| match is_allowed {
            true => (u64::MAX.saturating_sub(said.remaining()), 0),
            false => (u64::from(!said.is_allowed()), said.retry_after().0),
        })
    }

    /// Explains the verdict on an [`Operation::Explain`](crate::Operation::Explain); `None` if it is that of other limits.
    pub(crate) fn explain(&self, verdict: &Verdict, cost: u64) -> Option<Explanation> {
        if let Effect::Blocked { left } = verdict.effect {
            let text = format!("The key is blocked for another {}.", span(left));
            return Some(Explanation::of_no_limit(text));
        }
        let (named, said) = self.deciding(verdict)?;
        let name = &named.name;
        let left = format!("{} of {}", said.remaining(), said.limit());
        let part = match verdict.effect {
            Effect::Bound { part } => named.limit.describe_part(part),
            _ => None,
        };
        let bound = part.unwrap_or_else(|| named.limit.describe());
        let text = if verdict.decision.is_allowed() {
            let payer = self.paid_by(verdict);
            let pays = payer.map(|payer| format!(" and `{}` pays", payer.name)).unwrap_or_default();
            format!(
                "The request passes{pays}. After it `{name}` has the least left ({bound}): {left}."
            )
        } else {
            let wait = match (named.limit.kind(), verdict.decision.retry_after()) {
                (Kind::Shed, _) => "chance decides on the next one".into(),
                (_, Micros::MAX) => "it never passes".into(),
                (_, wait) => format!("it passes in {}", span(wait)),
            };
            format!(
                "`{name}` refuses ({bound}): {left} are left and the request costs {cost}; {wait}."
            )
        };
        Some(Explanation { limit: Some(name.clone()), bound, text })
    }
}
