//! The numbers of one answer out of the numbers of several limits.

use crate::decide::LimitFacts;
use crate::limit::Kind;
use tidegate_core::{Decision, Micros};

/// The numbers of several limits together, out of what each says.
pub(super) struct Together {
    kind: Kind,
    limit: u64,
    remaining: u64,
    reset_after: Micros,
    under_penalty: bool,
    /// The limit and the remaining units of the payer with the most left.
    payer: Option<(u64, u64)>,
}

impl Default for Together {
    fn default() -> Self {
        Self {
            kind: Kind::Budget,
            limit: 0,
            remaining: u64::MAX,
            reset_after: Micros::ZERO,
            under_penalty: false,
            payer: None,
        }
    }
}

impl Together {
    /// Adds what a limit says.
    #[inline]
    pub(super) fn add(&mut self, limit: &LimitFacts, said: &Decision) {
        let LimitFacts { kind, punishes_refusals, shadow, pays, .. } = limit;
        if *shadow {
            return; // it never refuses, so a caller does not go by its numbers
        }
        self.reset_after = self.reset_after.max(said.reset_after());
        if *pays {
            return self.add_payer(said);
        }
        self.count(*kind, said.limit(), said.remaining());
        self.under_penalty |= *punishes_refusals && said.remaining() == 0;
    }

    #[inline] // a call would keep all numbers in memory
    fn add_payer(&mut self, said: &Decision) {
        if self.payer.is_none_or(|(_, most)| most < said.remaining()) {
            self.payer = Some((said.limit(), said.remaining()));
        }
    }

    #[inline]
    fn count(&mut self, kind: Kind, limit: u64, remaining: u64) {
        // units come before places, and places before chances: only the first kind counts
        if kind < self.kind {
            (self.kind, self.limit, self.remaining) = (kind, 0, u64::MAX);
        }
        if kind == self.kind && remaining < self.remaining {
            (self.limit, self.remaining) = (limit, remaining);
        }
    }

    /// The payers count as one limit: a request may cost as much as the one of them that has the most left.
    fn with_payers(mut self) -> Self {
        if let Some((limit, remaining)) = self.payer {
            self.count(Kind::Rate, limit, remaining);
        }
        self
    }

    /// Under a penalty nothing remains, even if other limits have some left.
    const fn remaining(&self) -> u64 {
        if self.under_penalty { 0 } else { self.remaining }
    }

    pub(super) fn allow(self) -> Decision {
        let this = self.with_payers();
        let remaining = this.remaining();
        Decision::Allow { limit: this.limit, remaining, reset_after: this.reset_after }
    }

    pub(super) fn deny(self, retry_after: Micros) -> Decision {
        let this = self.with_payers();
        let remaining = this.remaining();
        Decision::Deny { limit: this.limit, remaining, retry_after, reset_after: this.reset_after }
    }
}
