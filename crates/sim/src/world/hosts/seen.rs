//! Which operations and refusals a world has come to.

use std::ptr;

use tidegate_gate::{Limit, Limits, Micros, Operation, Verdict};

use super::machine::World;
use crate::world::places::Key;

impl World {
    /// Notes what the storage has made true on a key.
    pub(super) fn note_done(&mut self, key: usize, operation: &Operation, verdict: &Verdict) {
        let key = &self.places.keys[key];
        let is_refused =
            matches!(operation, Operation::Decide(_)) && !verdict.decision.is_allowed();
        let mut seen = Vec::from_iter(done(operation));
        if is_refused {
            seen.extend(refused_by(key, verdict));
        }
        let policy = key.resolved.policy();
        if key.resolved.limits().is_some_and(|limits| !ptr::eq(limits, policy.limits())) {
            seen.push("an override was decided by");
        }
        if policy.is_shadow() {
            seen.push("a shadow policy was decided by");
        }
        seen.into_iter().for_each(|situation| self.tally.add(situation));
    }
}

const fn done(operation: &Operation) -> Option<&'static str> {
    Some(match operation {
        Operation::Refund(_) => "units were refunded",
        Operation::Heartbeat(_) => "a lease was renewed",
        Operation::Count(..) => "connections were counted",
        Operation::Release(_) => "a lease was released",
        Operation::Report(_) => "a load was reported",
        Operation::Reset(_) => "a key was reset",
        Operation::Block(Micros(0)) => "a block was ended",
        Operation::Block(_) => "a key was blocked",
        _ => return None,
    })
}

/// The limits that refused a request; if none did, the key is blocked.
fn refused_by(key: &Key, verdict: &Verdict) -> Vec<&'static str> {
    let limits = key.resolved.limits().into_iter().flat_map(Limits::iter);
    let refuses = limits.zip(&verdict.limits).filter(|(_, said)| !said.is_allowed());
    let mut seen: Vec<&str> = refuses.filter_map(|(named, _)| refusal_of(&named.limit)).collect();
    if verdict.limits.iter().all(tidegate_gate::Decision::is_allowed) {
        seen.push("a blocked key was refused");
    }
    seen
}

const fn refusal_of(limit: &Limit) -> Option<&'static str> {
    Some(match limit {
        Limit::Concurrency(_) => "a lease was refused",
        Limit::Connections(_) => "a connection was refused",
        Limit::Fleet(_) => "a place in the fleet was refused",
        Limit::Utilization(_) => "a request was shed",
        Limit::Suppression(_) => "a request was suppressed",
        Limit::Penalty(_) => "a penalty refused a request",
        Limit::SlidingWindow(_) => "a sliding window refused a request",
        _ => return None,
    })
}
