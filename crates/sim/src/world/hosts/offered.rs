//! What nodes were offered and have reported, and accounts that stay within their limit.

use std::collections::BTreeMap;

use tidegate_gate::suppression::{self, Config};
use tidegate_gate::{Limit, Offered, Operation, Probability, Resolved, Verdict};

use crate::world::front::Run;
use crate::world::violation::{Checked, Invariant, check};

/// The key of an account, and the node that counts.
type Account = (Run, usize);

/// The load by account and by the number of the part. Admitted and suppressed units that are not reported are apart.
#[derive(Debug, Default)]
pub(super) struct Loads {
    unreported: BTreeMap<(Account, u64), [u64; 2]>,
    admitted: BTreeMap<(Account, u64), u64>,
    /// The units that callers ask for. A request may count in the part in which it is sent, and in the one in which it
    /// arrives. `None` if callers may ask for more than the limit.
    within: Option<BTreeMap<(usize, u64), u64>>,
}

/// The limit by which the nodes decide.
fn master(resolved: &Resolved) -> Option<&Config> {
    match &resolved.limits()?.iter().next()?.limit {
        Limit::Suppression(master) if resolved.policy().reports() => Some(master),
        _ => None,
    }
}

fn part(at: u64) -> u64 {
    at / suppression::PART.0
}

impl Loads {
    pub(super) fn new(is_within: bool) -> Self {
        Self { within: is_within.then(BTreeMap::new), ..Self::default() }
    }

    /// Whether a caller asks at all, for an operation that is sent and arrives at these times. A caller that stays within
    /// the limit does not ask for more in any part.
    pub(super) fn asks(
        &mut self,
        (key, resolved): (usize, &Resolved),
        operation: &Operation,
        (sent, arrives): (u64, u64),
    ) -> bool {
        let (Some(within), Some(master)) = (&mut self.within, master(resolved)) else {
            return true;
        };
        let Operation::Decide(request) = operation else { return false };
        let mut parts = vec![(key, part(sent)), (key, part(arrives))];
        parts.dedup();
        let offered = |of: &(usize, u64)| within.get(of).copied().unwrap_or(0) + request.cost;
        let asks = parts.iter().all(|of| offered(of) <= master.units_per_part());
        if asks {
            parts.into_iter().for_each(|of| *within.entry(of).or_default() += request.cost);
        }
        asks
    }

    /// Whether callers have asked for all units of a part, or for all but one.
    pub(super) fn is_full(&self, (key, resolved): (usize, &Resolved), now: u64) -> bool {
        let offered = self.within.as_ref().and_then(|within| within.get(&(key, part(now))));
        let most = master(resolved).map_or(u64::MAX, Config::units_per_part);
        offered.is_some_and(|offered| offered + 1 >= most)
    }

    /// Nothing is refused or suppressed of accounts that are within their limit in every part.
    pub(super) fn check_within(&self, said: &Verdict) -> Checked {
        let is_free = said.factor.is_none_or(|factor| factor == Probability::NEVER);
        let is_granted = said.decision.is_allowed() && is_free;
        check(self.within.is_none() || is_granted, Invariant::Bound, || {
            format!("suppressed within the limit: {said:?}")
        })
    }

    /// A node has decided on a request by the factor that it heard last.
    pub(super) fn decide(
        &mut self,
        account: Account,
        (resolved, operation): (&Resolved, &Operation),
        said: &Verdict,
    ) -> Checked {
        let most = master(resolved).map_or(0, Config::units_per_part);
        let cost = match operation {
            Operation::Decide(request) => request.cost,
            _ => 0,
        };
        let (of, passes) = ((account, part(said.at.0)), said.decision.is_allowed());
        self.unreported.entry(of).or_default()[usize::from(!passes)] += cost;
        let admitted = self.admitted.entry(of).or_default();
        *admitted += if passes { cost } else { 0 };
        let is_right = cost > 0 && cost <= most && *admitted <= most;
        check(is_right, Invariant::Bound, || {
            format!("{operation:?}: {said:?}, {admitted} units of {most} are admitted by one node")
        })
    }

    /// A node passes on an operation that makes it forget what it has counted of an account.
    pub(super) fn forget(&mut self, account: Account) {
        self.unreported.retain(|(of, _), _| *of != account);
        self.admitted.retain(|(of, _), _| *of != account);
    }

    /// A node reports no more than it was offered, and in the part in which it was.
    pub(super) fn report(&mut self, account: Account, load: &Offered) -> Checked {
        let of = (account, part(load.at.unwrap_or_default().0));
        let counted = self.unreported.entry(of).or_default();
        let is_some = load.admitted + load.suppressed > 0 && load.at.is_some();
        let is_counted = load.admitted <= counted[0] && load.suppressed <= counted[1];
        check(is_some && is_counted, Invariant::Conserved, || {
            format!("{load:?} is reported of {counted:?}")
        })?;
        *counted = [counted[0] - load.admitted, counted[1] - load.suppressed];
        Ok(())
    }

    /// All is reported that the nodes which run were offered. Units that are older than the authority remembers at this
    /// time need not be.
    pub(super) fn check_reported(
        &mut self,
        runs: impl Fn(Run) -> bool,
        now: Option<u64>,
    ) -> Result<Option<&'static str>, crate::world::violation::Seen> {
        self.unreported.retain(|((run, _), _), units| runs(*run) && *units != [0; 2]);
        let is_old = |of: u64| now.is_some_and(|now| of + 3 <= part(now));
        check(self.unreported.keys().all(|(_, of)| is_old(*of)), Invariant::Conserved, || {
            format!("not reported at {now:?}: {:?}", self.unreported)
        })?;
        let is_any = !self.unreported.is_empty();
        self.unreported.clear();
        Ok(is_any.then_some("units were too old to be reported"))
    }
}
