//! The refusals of a key that a node may repeat.

use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_gate::{Kind, Limits, Micros, Request, Verdict};

use super::ask::{LocalVerdict, VerdictOf};

/// How many refusals of a key are remembered, each for another cost.
const MOST: usize = 3;

/// A refusal that holds until a time, whatever other nodes ask for.
#[derive(Debug)]
pub(super) struct Refusal {
    cost: u64,
    sent: Micros,
    /// The earliest time at which the request may pass.
    passes: Micros,
    /// The time until which the refusal is repeated.
    until: Micros,
    verdict: Arc<Verdict>,
}

/// The refusals of a key, sorted by cost.
#[derive(Debug, Default)]
pub(super) struct Refusals(Vec<Refusal>);

/// The refusal, if it follows from the verdict that the request stays refused. That is so if each limit that refuses
/// limits units over time: its units come back with time alone. The end of a block is known too.
pub(super) fn proven(
    limits: &Limits,
    request: &Request,
    heard: &VerdictOf<'_>,
    remember: Micros,
) -> Option<Refusal> {
    let (verdict, sent) = (heard.verdict, heard.sent);
    let mut each = limits.iter().zip(&verdict.limits);
    let is_proven = !verdict.decision.is_allowed()
        && verdict.limits.len() == limits.iter().count()
        && each.all(|(named, said)| {
            said.is_allowed() || named.shadow || named.limit.kind() == Kind::Rate
        });
    let after = |span: Micros| Micros(sent.0.saturating_add(span.0));
    let passes = after(verdict.decision.retry_after());
    let until = passes.min(after(remember));
    (is_proven && until > heard.at).then(|| Refusal {
        cost: request.cost,
        sent,
        passes,
        until,
        verdict: Arc::new(verdict.clone()),
    })
}

impl Refusal {
    pub(super) const fn sent(&self) -> Micros {
        self.sent
    }
}

impl Refusals {
    /// The answer to a request of this cost. A higher cost is refused at least as long as a lower one, so of the
    /// costs up to this one the refusal that lasts longest counts.
    #[inline]
    pub(super) fn answer(&self, cost: u64, at: Micros) -> Option<LocalVerdict> {
        let holds = |refusal: &&Refusal| refusal.cost <= cost && at < refusal.until;
        let refusal = self.0.iter().filter(holds).max_by_key(|refusal| refusal.passes)?;
        let elapsed = Micros(at.0.saturating_sub(refusal.sent.0));
        Some(LocalVerdict::refused(&refusal.verdict, elapsed))
    }

    /// Adds a refusal. The refusals of the lowest costs are kept, because they hold for all higher costs.
    pub(super) fn add(&mut self, new: Refusal, at: Micros) {
        let all = &mut self.0;
        all.retain(|old| at < old.until);
        match all.binary_search_by_key(&new.cost, |old| old.cost) {
            Ok(place) => {
                if let Some(old) = all.get_mut(place)
                    && old.sent <= new.sent
                {
                    *old = new;
                }
            }
            Err(place) if place < MOST => {
                all.truncate(MOST.saturating_sub(1));
                all.reserve_exact(1);
                all.insert(place, new);
            }
            Err(_) => {}
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
