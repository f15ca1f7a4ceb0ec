//! The answer to a request with an idempotency key, as it is stored for repeats of the request: a versioned format, little endian.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version: 5, which no [`blob`](super::blob) has |
//! | 8 each | a hash of what the request asked; the time until which the answer is kept; the verdict: its time, its decision, its factor, its effect in four numbers, and the decision of each limit |
//!
//! A decision is five words: 1 for a grant or 0 for a refusal, limit, remaining, and the times until a retry and until a reset.

#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::lease::Id;
use tidegate_core::shed::Probability;
use tidegate_core::{Decision, Micros, Timestamp, never};

use super::blob::BlobError;
use crate::decide::{Effect, Verdict};
use crate::limit::Operation;
use crate::policy::{Idempotency, Policy};

const VERSION: u8 = 5;
/// The words of a decision.
const DECISION: usize = 5;
/// The words before the decisions of the limits.
const HEAD: usize = 13;

/// The name under which a store keeps the answer: `tidegate:{POLICY:PARTITION}:answer:ID`. It differs from every
/// [name](super::blob::name) of a state, which has one colon less behind the brace.
pub(crate) fn name(policy: &Policy, key: &str, Id([high, low]): Id) -> String {
    let (policy_name, partition) = (policy.name(), super::blob::partition(policy, key));
    alloc::format!("tidegate:{{{policy_name}:{partition}}}:answer:{high:016x}{low:016x}")
}

/// Whether the answer to an operation is stored. A refusal took nothing, so that the same request may be tried again.
pub(crate) fn is_kept(operation: &Operation, verdict: &Verdict) -> bool {
    let is_refused = matches!(operation, Operation::Decide(_)) && !verdict.decision.is_allowed();
    !operation.is_peek() && !is_refused
}

/// The words of an answer that is kept until this time.
pub(crate) fn to_words(request: u64, until: Timestamp, verdict: &Verdict) -> Vec<u64> {
    let Verdict { at, decision, limits, factor, effect, degraded: _ } = verdict; // none is kept that is
    let (kind, effect) = effect.to_numbers();
    let mut words = Vec::with_capacity(words(limits.len()));
    words.extend([request, until.0, at.0]);
    words.extend(decision_words(decision));
    words.extend([factor.map_or(u64::MAX, Probability::units), kind.into()]);
    words.extend(effect);
    words.extend(limits.iter().flat_map(decision_words));
    words
}

/// The number of words of the answer of this many limits.
pub(crate) const fn words(limits: usize) -> usize {
    HEAD.saturating_add(limits.saturating_mul(DECISION))
}

/// The verdict on a request whose repeats are known, from the words of the answer under its id; `None` if nothing is kept at
/// `now`.
pub(crate) fn verdict(words: &[u64], asked: Idempotency, now: Timestamp) -> Option<Verdict> {
    let (request, until, verdict) = of_words(words)?;
    if until <= now {
        return None;
    }
    match request == asked.request {
        true => Some(verdict),
        false => {
            let (limit, remaining) = (verdict.decision.limit(), verdict.decision.remaining());
            let retry_after = until.saturating_since(now);
            let reset_after = verdict.decision.reset_after();
            let decision = Decision::Deny { limit, remaining, retry_after, reset_after };
            let (limits, factor) = (Vec::new(), None);
            let effect = Effect::OtherRequest;
            Some(Verdict { at: now, decision, limits, factor, effect, degraded: false })
        }
    }
}

fn of_words(words: &[u64]) -> Option<(u64, Timestamp, Verdict)> {
    let (&[request, until, at, d0, d1, d2, d3, d4, factor, kind, e0, e1, e2], limits) =
        words.split_first_chunk::<HEAD>()?;
    let factor = match factor {
        u64::MAX => None,
        units => Some(Probability::from_units(units)?),
    };
    let effect = Effect::of_numbers(kind.try_into().ok()?, [e0, e1, e2])?;
    let (decisions, rest) = limits.as_chunks();
    let limits = decisions.iter().map(decision).collect::<Option<Vec<_>>>()?;
    let decision = decision(&[d0, d1, d2, d3, d4])?;
    let at = Timestamp(at);
    let verdict = Verdict { at, decision, limits, factor, effect, degraded: false };
    rest.is_empty().then_some((request, Timestamp(until), verdict))
}

fn decision_words(decision: &Decision) -> [u64; DECISION] {
    let (retry_after, reset_after) = (decision.retry_after().0, decision.reset_after().0);
    let allowed = u64::from(decision.is_allowed());
    [allowed, decision.limit(), decision.remaining(), retry_after, reset_after]
}

fn decision(&[allowed, limit, remaining, retry, reset]: &[u64; DECISION]) -> Option<Decision> {
    let (retry_after, reset_after) = (Micros(retry), Micros(reset));
    Some(match allowed {
        0 => Decision::Deny { limit, remaining, retry_after, reset_after },
        1 if retry == 0 => Decision::Allow { limit, remaining, reset_after },
        _ => return None,
    })
}

/// Writes the words of an answer in place of what `bytes` held.
pub(crate) fn encode_into(bytes: &mut Vec<u8>, words: &[u64]) {
    bytes.clear();
    bytes.push(VERSION);
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

/// Reads the words of an answer.
///
/// # Errors
/// Fails with [`BlobError`] if the bytes are no answer.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<u64>, BlobError> {
    let short = BlobError::Length { found: bytes.len(), expected: bytes_of(HEAD) };
    let (&found, rest) = bytes.split_first().ok_or(short)?;
    if found != VERSION {
        return Err(BlobError::Version { found, expected: VERSION });
    }
    let (words, rest) = rest.as_chunks();
    if !rest.is_empty() || words.len() < HEAD {
        return Err(short);
    }
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    match of_words(&words) {
        Some(_) => Ok(words),
        None => Err(BlobError::Invalid),
    }
}

fn bytes_of(words: usize) -> usize {
    words.checked_mul(8).and_then(|bytes| bytes.checked_add(1)).unwrap_or_else(|| never(usize::MAX))
}
