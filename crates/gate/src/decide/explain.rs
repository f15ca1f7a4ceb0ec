//! Why a request passes or not, in words.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::{Decision, Timestamp};

use super::{Limits, Verdict};
use crate::limit::span;
use crate::limit::{Kind, NamedLimit, Operation, OperationError, Request};
use crate::state::KeyState;

/// Why a request passes or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The answer to the request, as a peek.
    pub verdict: Verdict,
    /// The name of the limit that refuses longest, or has the least left; `None` if a list or a block decides.
    pub limit: Option<String>,
    /// The rate, the gap or the whole limit that decides, in words; empty if a list or a block decides.
    pub bound: String,
    /// A sentence.
    pub text: String,
}

impl Explanation {
    /// Explains the answer to a request on a key that is on a list.
    #[must_use]
    pub fn listed(now: Timestamp, decision: Decision) -> Self {
        let list = if decision.is_allowed() { "allow" } else { "deny" };
        let text = format!("The key is on the list `{list}`, so its requests are not counted.");
        let verdict = Verdict::listed(now, decision);
        Self { verdict, limit: None, bound: String::new(), text }
    }

    /// Explains the answer to a request on a key in this state.
    #[inline(never)]
    pub(crate) fn of(
        limits: &Limits,
        mut state: KeyState,
        now: Timestamp,
        request: &Request,
    ) -> Result<Self, OperationError> {
        let verdict = state.operate(limits, now, &Operation::Peek(*request))?;
        if let Some(left) = state.block.and_then(|block| block.retry_after(now)) {
            let text = format!("The key is blocked for another {}.", span(left));
            return Ok(Self { verdict, limit: None, bound: String::new(), text });
        }
        let now = verdict.at;
        let words = limits.records().iter().zip(limits.split(&state.words));
        let each = words.flat_map(|(record, (_, words))| record.split(words));
        let counting: Vec<&NamedLimit> =
            limits.counting(&verdict).map(|(named, _)| named).collect();
        let each = limits.iter().zip(each).zip(&verdict.limits);
        let each = each.filter(|((named, _), _)| counting.iter().any(|own| own.name == named.name));
        let is_allowed = verdict.decision.is_allowed();
        let decides = |said: &Decision| match is_allowed {
            true => (u64::MAX.saturating_sub(said.remaining()), 0),
            false => (u64::from(!said.is_allowed()), said.retry_after().0),
        };
        let Some(((named, (limit, words)), said)) = each.max_by_key(|(_, said)| decides(said))
        else {
            return Err(OperationError::InvalidState);
        };
        let (name, cost) = (&named.name, request.cost);
        let left = format!("{} of {}", said.remaining(), said.limit());
        let (bound, text) = if is_allowed {
            let bound = limit.describe();
            let payer = limits.paid_by(&verdict);
            let pays = payer.map(|payer| format!(" and `{}` pays", payer.name)).unwrap_or_default();
            let text = format!(
                "The request passes{pays}. After it `{name}` has the least left ({bound}): {left}."
            );
            (bound, text)
        } else {
            let bound = limit.describe_bound(words, now, cost);
            let wait = match limit.kind() {
                Kind::Shed => "chance decides on the next one".into(),
                _ => format!("it passes in {}", span(verdict.decision.retry_after())),
            };
            let text = format!(
                "`{name}` refuses ({bound}): {left} are left and the request costs {cost}; {wait}."
            );
            (bound, text)
        };
        Ok(Self { limit: Some(name.clone()), bound, text, verdict })
    }
}
