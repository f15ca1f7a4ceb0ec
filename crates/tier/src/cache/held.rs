//! The units of a key that a node holds.

use alloc::sync::Arc;

use tidegate_gate::{
    Allowance, Budget, BudgetConfig as Config, Id, Limiter, Micros, Unspent, Usage, Verdict,
};

use super::ask::{self, LocalVerdict, VerdictOf};

/// After this many requests on a key within the time of a budget, a node asks for units.
pub const OFTEN: u32 = 8;

/// The demand for a key's units, and the units that the node holds.
#[derive(Debug, Default)]
pub(super) struct Units {
    /// The requests since this time, and what they cost.
    since: Micros,
    asks: u32,
    cost: u64,
    /// The time at which the node sent for units that have not arrived.
    sent: Option<Micros>,
    /// The time at which the node last forgot its units. Units that it sent for until then are not taken.
    forgot: Option<Micros>,
    /// The units wanted last; 0 if none were ever wanted.
    wanted: u64,
    lease: Option<Lease>,
}

/// A grant by the authority.
#[derive(Debug)]
struct Lease {
    verdict: Arc<Verdict>,
    allowance: Allowance,
    granted: u64,
    /// The units may be spent from `sent` on, and before `until`.
    sent: Micros,
    until: Micros,
    arrived: Micros,
    /// The time at which the last unit was spent.
    spent: Option<Micros>,
}

impl Units {
    /// No units of a key that may have been forgotten up to this time. Units that were sent for until then are not
    /// taken: the key may have been blocked or reset.
    pub(super) fn sent_for_after(forgot: Option<Micros>) -> Self {
        Self { forgot, ..Self::default() }
    }

    /// Counts a request, and grants it if the node holds enough units.
    pub(super) fn spend(&mut self, cost: u64, at: Micros, time: Micros) -> bool {
        if at.0.saturating_sub(self.since.0) >= time.0 {
            (self.since, self.asks, self.cost) = (at, 0, 0);
        }
        self.asks = self.asks.saturating_add(1);
        self.cost = self.cost.saturating_add(cost);
        self.lease.as_mut().is_some_and(|lease| lease.spend(cost, at))
    }

    /// The answer to a request after it was granted.
    pub(super) fn answer(&self, at: Micros) -> Option<LocalVerdict> {
        let lease = self.lease.as_ref()?;
        let Allowance { left, granted_at, .. } = lease.allowance;
        let elapsed = Micros(at.0.saturating_sub(lease.sent.0));
        Some(LocalVerdict::spent(&lease.verdict, ask::LentUnits { granted_at, left, elapsed }))
    }

    /// The operation by which the node asks for units and gives back the rest of the last ones; `None` if it was not
    /// asked often, or if units are on their way.
    pub(super) fn send_for(&mut self, config: &Config, node: Id, at: Micros) -> Option<Budget> {
        let time = config.period();
        let is_under_way = self.sent.is_some_and(|sent| at.0.saturating_sub(sent.0) < time.0);
        if self.asks < OFTEN || is_under_way || self.forgot.is_some_and(|forgot| at <= forgot) {
            return None;
        }
        let last = self.lease.take(); // nothing is spent of what goes back
        self.wanted = match &last {
            Some(last) => config.next_wants(last.usage(self.wanted, at)),
            None => self.wanted.max(self.cost), // the first units, or the last ones did not arrive
        };
        self.sent = Some(at);
        (self.since, self.asks, self.cost) = (at, 0, 0);
        let unspent = last.map(|last| last.allowance).filter(|allowance| allowance.left > 0);
        let unspent =
            unspent.map(|Allowance { left, granted_at, .. }| Unspent { granted_at, left });
        Some(Budget { holder: node, wants: self.wanted, unspent })
    }

    /// The operation by which a node that stops gives back what it holds; `None` if it holds nothing.
    pub(super) fn give_back(&mut self, node: Id) -> Option<Budget> {
        let Allowance { left, granted_at, .. } = self.lease.take()?.allowance;
        let unspent = (left > 0).then_some(Unspent { granted_at, left })?;
        Some(Budget { holder: node, wants: 0, unspent: Some(unspent) })
    }

    /// Whether units may be on their way, which live for `time`.
    pub(super) fn are_under_way(&self, at: Micros, time: Micros) -> bool {
        self.sent.is_some_and(|sent| at.0.saturating_sub(sent.0) < time.0)
    }

    /// Takes the units that have arrived. Units of an earlier question than the last are lost, because the last
    /// grant has replaced them.
    pub(super) fn arrive(&mut self, heard: &VerdictOf<'_>) {
        let (sent, arrived) = (heard.sent, heard.at);
        let Some(allowance) = heard.verdict.effect.allowance() else { return };
        if self.sent != Some(sent) {
            return;
        }
        self.sent = None;
        let time = allowance.expires_at.saturating_since(allowance.granted_at);
        let (granted, until) = (allowance.left, Micros(sent.0.saturating_add(time.0)));
        let verdict = Arc::new(heard.verdict.clone());
        self.lease = Some(Lease { verdict, allowance, granted, sent, until, arrived, spent: None });
    }

    /// Forgets the units, also those that are on their way.
    pub(super) fn forget(&mut self, at: Micros) {
        (self.lease, self.sent) = (None, None);
        self.forgot = self.forgot.max(Some(at));
    }
}

impl Lease {
    fn spend(&mut self, cost: u64, at: Micros) -> bool {
        if at < self.sent || at >= self.until {
            return false;
        }
        let Some(left) = self.allowance.left.checked_sub(cost) else { return false };
        self.allowance.left = left;
        if left == 0 {
            self.spent = Some(at);
        }
        true
    }

    fn usage(&self, wanted: u64, at: Micros) -> Usage {
        let ended = self.spent.unwrap_or(at);
        Usage {
            wanted,
            granted: self.granted,
            spent: self.granted.saturating_sub(self.allowance.left),
            elapsed: Micros(ended.0.saturating_sub(self.arrived.0)),
        }
    }
}
