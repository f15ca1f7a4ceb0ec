//! The answer to an operation.

use alloc::vec::Vec;

use crate::decide::Limits;
use tidegate_core::lease::budget::Allowance;
use tidegate_core::shed::Probability;
use tidegate_core::{Decision, Micros, Timestamp};

/// A decision, and what each limit says in the order of [`Limits::iter`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The time of the decision, which is never before that of an earlier decision on this key. A [`Grant`](crate::Grant)
    /// names this time.
    pub at: Timestamp,
    /// The answer of all limits together.
    pub decision: Decision,
    /// What each limit says after the decision. In a refusal, the limits that would have granted the request
    /// allow it, and nothing was taken from them.
    pub limits: Vec<Decision>,
    /// The fraction of the load that reporters must refuse; `None` without a `suppression` limit.
    pub factor: Option<Probability>,
    /// What the operation did beside deciding.
    pub effect: Effect,
    /// Whether a node has decided by its share of the limits, because the store could not be asked
    /// ([`OnError::Local`](crate::OnError::Local)).
    pub degraded: bool,
}

/// What an operation did beside deciding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// The operation concerns no lease, reservation or budget, or the key is listed: the decision says all.
    Decision,
    /// The operation renewed, counted or released a lease.
    Lease {
        /// Whether the lease was live.
        live: bool,
    },
    /// The operation reserved units.
    Reserved {
        /// The units that are held.
        units: u64,
        /// The time at which the reservation ends unless it is committed.
        until: Timestamp,
        /// The payer, as its place in [`Limits::iter`]; `None` if no limits pay. [`Limits::paid_by`] finds it.
        by: Option<u8>,
    },
    /// The operation committed or released a reservation.
    Committed {
        /// The units that count for the reservation: those of the first commit, or its estimate if that stayed charged.
        charged: u64,
        /// Whether the reservation had ended before its first commit, or was never known. The units were then charged at the time
        /// of that commit.
        late: bool,
        /// The payer, as its place in [`Limits::iter`]; `None` if no limits pay.
        by: Option<u8>,
    },
    /// The request passed and reserved nothing, and a limit paid for it. A peek has changed nothing, and says who would pay.
    Paid {
        /// The payer, as its place in [`Limits::iter`].
        by: u8,
    },
    /// A key had as many reservations as it may have, live ones and those that are remembered. So a reservation was refused, or, if
    /// nothing was done but looking, a reservation would be refused although the request passes.
    /// [`Asked::explain`](crate::Asked::explain) says so.
    Full {
        /// The limit without a place, as its place in [`Limits::iter`].
        limit: u8,
        /// Who would pay for the request that passes, as its place in [`Limits::iter`].
        by: Option<u8>,
    },
    /// Nothing was done: another request had the same idempotency key.
    OtherRequest,
    /// Nothing was done but looking: of the limit that refuses longest, this part holds the request back.
    /// [`Asked::explain`](crate::Asked::explain) names it.
    Bound {
        /// The number of the part, which means something only to the limit.
        part: u8,
    },
    /// Nothing was done but looking: the key is blocked.
    Blocked {
        /// For how long the block still lasts.
        left: Micros,
    },
    /// The operation asked for a budget.
    Budget {
        /// Whether the units that the holder gave back were still its own; `None` if it gave none back.
        returned: Option<bool>,
        /// The units that the holder may spend without asking.
        allowance: Allowance,
    },
}

impl Effect {
    /// The effect in numbers, to pass it on: its kind, and what the kind says.
    #[must_use]
    pub fn to_numbers(&self) -> (u8, [u64; 3]) {
        match *self {
            Self::Decision => (0, [0; 3]),
            Self::Lease { live: false } => (1, [0; 3]),
            Self::Lease { live: true } => (2, [0; 3]),
            Self::Budget { returned, allowance: Allowance { left, granted_at, expires_at } } => {
                let kind = match returned {
                    None => 3,
                    Some(false) => 4,
                    Some(true) => 5,
                };
                (kind, [left, granted_at.0, expires_at.0])
            }
            Self::Reserved { units, until, by } => (6, [units, until.0, number_of(by)]),
            Self::Committed { charged, late, by } => {
                (if late { 8 } else { 7 }, [charged, number_of(by), 0])
            }
            Self::Paid { by } => (9, [number_of(Some(by)), 0, 0]),
            Self::OtherRequest => (10, [0; 3]),
            Self::Bound { part } => (11, [part.into(), 0, 0]),
            Self::Blocked { left } => (12, [left.0, 0, 0]),
            Self::Full { limit, by } => (13, [limit.into(), number_of(by), 0]),
        }
    }

    /// The effect with these [numbers](Self::to_numbers); `None` if no effect has them.
    #[must_use]
    pub fn of_numbers(kind: u8, numbers: [u64; 3]) -> Option<Self> {
        let [first, second, third] = numbers;
        let effect = match kind {
            0 => Self::Decision,
            1 | 2 => Self::Lease { live: kind == 2 },
            3..=5 => {
                let (granted_at, expires_at) = (Timestamp(second), Timestamp(third));
                let returned = (kind > 3).then_some(kind == 5);
                Self::Budget {
                    returned,
                    allowance: Allowance { left: first, granted_at, expires_at },
                }
            }
            6 => Self::Reserved { units: first, until: Timestamp(second), by: payer_of(third)? },
            7 | 8 => Self::Committed { charged: first, late: kind == 8, by: payer_of(second)? },
            9 => Self::Paid { by: payer_of(first)?? },
            10 => Self::OtherRequest,
            11 => Self::Bound { part: first.try_into().ok()? },
            12 => Self::Blocked { left: Micros(first) },
            13 => Self::Full { limit: first.try_into().ok()?, by: payer_of(second)? },
            _ => return None,
        };
        (effect.to_numbers() == (kind, numbers)).then_some(effect)
    }

    /// Whether the lease, or the grant that the holder gave back, was live; `None` if the operation concerns
    /// neither.
    #[must_use]
    pub const fn live(&self) -> Option<bool> {
        match *self {
            Self::Decision
            | Self::Reserved { .. }
            | Self::Committed { .. }
            | Self::Paid { .. }
            | Self::Full { .. }
            | Self::OtherRequest
            | Self::Bound { .. }
            | Self::Blocked { .. } => None,
            Self::Lease { live } => Some(live),
            Self::Budget { returned, .. } => returned,
        }
    }

    /// The place in [`Limits::iter`] of the limit that has paid; `None` if no limit did.
    #[must_use]
    pub fn payer(&self) -> Option<usize> {
        match *self {
            Self::Reserved { by, .. } | Self::Committed { by, .. } | Self::Full { by, .. } => {
                by.map(usize::from)
            }
            Self::Paid { by } => Some(by.into()),
            _ => None,
        }
    }

    /// The units that a holder may spend without asking; `None` if the operation asked for no budget.
    #[must_use]
    pub const fn allowance(&self) -> Option<Allowance> {
        match *self {
            Self::Budget { allowance, .. } => Some(allowance),
            _ => None,
        }
    }
}

impl Verdict {
    /// The verdict of a rule that ends at `until`: a wait that reaches the end goes on with what the next rule says then. `None` if
    /// that one can never grant the request.
    pub(crate) fn followed(
        mut self,
        until: Timestamp,
        next: impl FnOnce() -> Option<Decision>,
    ) -> Self {
        let left = until.saturating_since(self.at);
        let reaches = |span: Micros| span >= left;
        if !reaches(self.decision.reset_after().max(self.decision.retry_after())) {
            return self;
        }
        let next = next();
        let after = |own: &mut Micros, next: Option<Micros>| {
            if reaches(*own) {
                let next = next.unwrap_or(Micros::MAX);
                *own = Micros(left.0.saturating_add(next.0).min(Micros::MAX.0));
            }
        };
        let (retry, reset) =
            (next.map(|next| next.retry_after()), next.map(|next| next.reset_after()));
        match &mut self.decision {
            Decision::Allow { reset_after, .. } => after(reset_after, reset),
            Decision::Deny { retry_after, reset_after, .. } => {
                after(retry_after, retry);
                after(reset_after, reset);
            }
        }
        self
    }

    /// Whether the key is on the list `deny`. No request on it passes, however long the caller waits.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate_gate::{KeyHasher, Operation, Policy, Resolved, Table, Timestamp};
    ///
    /// let policy = Arc::new(Policy::parse("login", r#"
    ///     limits = [{ algorithm = "fixed_window", limit = 1, period = "1h" }]
    ///     deny = ["user:7"]
    /// "#).unwrap());
    /// let mut table = Table::new(1 << 20, KeyHasher::new(1));
    /// let mut check = |key| {
    ///     let key = Resolved::new(&policy, key).unwrap();
    ///     table.ask(&key, Timestamp(0), &Operation::from(1)).unwrap()
    /// };
    /// let denied = check("user:7");
    /// assert!(denied.is_listed() && denied.decision.is_listed());
    /// assert_eq!(denied.decision.retry_after_secs(), None); // there is nothing to wait for
    ///
    /// check("user:42");
    /// let refused = check("user:42");
    /// assert!(!refused.decision.is_allowed() && !refused.is_listed());
    /// assert_eq!(refused.decision.retry_after_secs(), Some(3600));
    /// ```
    #[must_use]
    pub const fn is_listed(&self) -> bool {
        self.decision.is_listed()
    }

    /// The verdict on a listed key, on which there are no limits.
    #[must_use]
    pub const fn listed(at: Timestamp, decision: Decision) -> Self {
        Self {
            at,
            decision,
            limits: Vec::new(),
            factor: None,
            effect: Effect::Decision,
            degraded: false,
        }
    }

    /// The same verdict as a refusal for ever, because some limits can never grant the cost.
    #[must_use]
    pub(crate) fn refused_for_ever(mut self, limits: &Limits, cost: u64) -> Self {
        self.decision = for_ever(self.decision);
        for (each, decision) in limits.iter().zip(&mut self.limits) {
            if each.limit.capacity() < cost {
                *decision = for_ever(*decision);
            }
        }
        self
    }
}

/// A payer as a number, from 1; 0 for none.
fn number_of(payer: Option<u8>) -> u64 {
    payer.map_or(0, |place| u64::from(place).saturating_add(1))
}

/// The payer with this [number](number_of); `None` if no payer has it.
fn payer_of(number: u64) -> Option<Option<u8>> {
    match number.checked_sub(1) {
        None => Some(None),
        Some(place) => u8::try_from(place).ok().map(Some),
    }
}

/// The same decision as a refusal that no wait ends.
pub(super) const fn for_ever(looked: Decision) -> Decision {
    let (limit, remaining) = (looked.limit(), looked.remaining());
    let (retry_after, reset_after) = (Micros::MAX, looked.reset_after());
    Decision::Deny { limit, remaining, retry_after, reset_after }
}
