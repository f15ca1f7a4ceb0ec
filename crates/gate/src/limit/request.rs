//! The operations on a key.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::fmt;

use crate::key::Depth;
use tidegate_core::lease::Id;
use tidegate_core::shed::utilization::Class;
use tidegate_core::shed::{Draw, Share};
use tidegate_core::{CostExceedsCapacity, Micros, Timestamp};

/// An operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Asks whether a request may pass, and takes its cost if it may. A cost of 0 changes nothing.
    Decide(Request),
    /// Asks whether and when a request would pass. Changes nothing.
    Peek(Request),
    /// Asks the same, and what holds the request back: [`Asked::explain`](crate::Asked::explain) puts it into words.
    Explain(Request),
    /// Charges what this reservation has really cost, once, and releases the lease of the same id. A cost of 0 releases the
    /// reservation.
    Commit(Id, u64),
    /// Returns this many units, as far as they are still counted.
    Refund(u64),
    /// Returns this many units of a grant, as far as the limits still count them for this grant; nothing if its time lies ahead of
    /// the key's newest.
    RefundOf(Grant, u64),
    /// Charges units that were spent without asking, even if fewer are available. No caller of the API can ask for it: the true
    /// cost of a request belongs into the commit of a reservation, which is taken once.
    Charge(u64),
    /// Renews this lease, or the connections of this owner.
    Heartbeat(Id),
    /// Sets the number of this owner's connections.
    Count(Id, u64),
    /// Releases this lease, or closes one connection of this owner.
    Release(Id),
    /// Asks for units that a holder may spend without asking, and returns the unspent units of its previous
    /// grant.
    Budget(Budget),
    /// Reports the load that a reporter was offered. The answer has the factor to decide with from now on.
    Report(Offered),
    /// Clears all limits that count by this depth or by more of the key.
    Reset(Depth),
    /// Blocks the key for this time, whatever its limits say; zero ends the block.
    Block(Micros),
}

/// A request to decide on. Each limit reads the fields that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The units that the request takes. A request of 0 is a peek.
    pub cost: u64,
    /// The lease that the request acquires, the owner of the connection that it opens, or the reservation that it makes. Without
    /// it, limits that hold leases fail with [`OperationError::NeedsLease`].
    pub lease: Option<Id>,
    /// For how long the request reserves its cost; zero if the cost is final. Only limits of a policy with `reservations` reserve.
    pub hold: Micros,
    /// The class, which says how important the request is.
    pub class: Class,
    /// The measured signal for a `utilization` limit, if there is one.
    pub signal: Option<Share>,
    /// The random bits of the request, which decide if a limit sheds with some probability.
    pub draw: Draw,
}

/// A request that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The time of the grant: [`Verdict::at`](crate::Verdict::at). A window returns units in the segment that
    /// counted them.
    pub at: Timestamp,
    /// The units that it took and has not returned.
    pub units: u64,
}

/// A holder's demand for units that it may spend without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The holder.
    pub holder: Id,
    /// The units that the holder would spend in the time of a grant; 0 for no new units.
    pub wants: u64,
    /// The unspent units of the previous grant.
    pub unspent: Option<Unspent>,
}

/// Units that were granted and not spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unspent {
    /// The time of the grant.
    pub granted_at: Timestamp,
    /// The number of unspent units.
    pub left: u64,
}

/// The load that a reporter was offered in one part of 6 s since its last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Any time in the part; by default the part in progress. A time ahead of the key's clock counts as the time of
    /// that clock.
    pub at: Option<Timestamp>,
    /// The units that passed.
    pub admitted: u64,
    /// The units that would have passed without suppression.
    pub suppressed: u64,
}

/// Why an operation was not done. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationError {
    /// The limits can never grant this cost.
    Cost(CostExceedsCapacity),
    /// A limit holds leases, and the request names no lease.
    NeedsLease,
    /// A key cannot be blocked, because no limit counts by the whole key.
    NoWholeKey,
    /// Units cannot come back, because the operation does not say which payer they belong to.
    UnknownPayer,
    /// The words are not a state of these limits.
    InvalidState,
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cost(error) => error.fmt(f),
            Self::NeedsLease => f.write_str(
                "`lease`: expected the name of a lease, because the policy limits leases; found none",
            ),
            Self::NoWholeKey => f.write_str(
                "`policy`: expected a policy with a limit that counts by the whole key, found none; \
                 blocks are kept there",
            ),
            Self::UnknownPayer => f.write_str(
                "`policy`: expected a policy without payers, because units that come back do not say which limit has paid; reserve \
                 the estimate and commit the true cost",
            ),
            Self::InvalidState => f.write_str("state: expected words that these limits write, found others"),
        }
    }
}

impl core::error::Error for OperationError {}

impl From<CostExceedsCapacity> for OperationError {
    fn from(error: CostExceedsCapacity) -> Self {
        Self::Cost(error)
    }
}

/// The word of a request without a signal.
const NO_SIGNAL: u64 = u64::MAX;

impl Operation {
    /// Whether the operation changes nothing.
    #[must_use]
    pub const fn is_peek(&self) -> bool {
        matches!(self, Self::Decide(Request { cost: 0, .. }) | Self::Peek(_) | Self::Explain(_))
    }

    /// A look at what the operation asks for.
    pub(crate) const fn look(&self) -> Self {
        match self {
            Self::Decide(request) | Self::Peek(request) | Self::Explain(request) => {
                Self::Peek(*request)
            }
            _ => Self::Peek(Request::of(0)),
        }
    }

    /// The operation in numbers, to pass it over a plain ABI. The first number is the kind of operation.
    #[must_use]
    pub fn to_words(&self) -> Vec<u64> {
        match *self {
            Self::Decide(request) => request.to_words(1),
            Self::Peek(request) => request.to_words(8),
            Self::Explain(request) => request.to_words(14),
            Self::RefundOf(Grant { at, units }, unused) => [2, at.0, units, unused].into(),
            Self::Heartbeat(Id([high, low])) => [3, high, low].into(),
            Self::Count(Id([high, low]), count) => [4, high, low, count].into(),
            Self::Release(Id([high, low])) => [5, high, low].into(),
            Self::Budget(Budget { holder: Id([high, low]), wants, unspent }) => {
                let unspent = unspent.map(|unspent| [unspent.granted_at.0, unspent.left]);
                [7, high, low, wants].into_iter().chain(unspent.into_iter().flatten()).collect()
            }
            Self::Report(Offered { at: Some(at), admitted, suppressed }) => {
                [6, admitted, suppressed, at.0].into()
            }
            Self::Report(Offered { at: None, admitted, suppressed }) => {
                [6, admitted, suppressed].into()
            }
            Self::Refund(units) => [9, units].into(),
            Self::Charge(units) => [13, units].into(),
            Self::Commit(Id([high, low]), actual) => [12, high, low, actual].into(),
            Self::Reset(Depth::Whole) => [10].into(),
            Self::Reset(Depth::Parts(parts)) => [10, parts.into()].into(),
            Self::Block(Micros(span)) => [11, span].into(),
        }
    }

    /// Reads what [`to_words`](Self::to_words) wrote; `None` for anything else.
    #[must_use]
    pub fn from_words(words: &[u64]) -> Option<Self> {
        Some(match *words {
            [1, ref request @ ..] => Self::Decide(Request::from_words(request)?),
            [8, ref request @ ..] => Self::Peek(Request::from_words(request)?),
            [14, ref request @ ..] => Self::Explain(Request::from_words(request)?),
            [2, at, units, unused] => Self::RefundOf(Grant { at: Timestamp(at), units }, unused),
            [3, high, low] => Self::Heartbeat(Id([high, low])),
            [4, high, low, count] => Self::Count(Id([high, low]), count),
            [5, high, low] => Self::Release(Id([high, low])),
            [6, admitted, suppressed, ref at @ ..] if at.len() <= 1 => {
                let at = at.first().copied().map(Timestamp);
                Self::Report(Offered { at, admitted, suppressed })
            }
            [7, high, low, wants, ref unspent @ ..] => {
                let unspent = match *unspent {
                    [] => None,
                    [granted_at, left] => Some(Unspent { granted_at: Timestamp(granted_at), left }),
                    _ => return None,
                };
                Self::Budget(Budget { holder: Id([high, low]), wants, unspent })
            }
            [9, units] => Self::Refund(units),
            [13, units] => Self::Charge(units),
            [12, high, low, actual] => Self::Commit(Id([high, low]), actual),
            [10] => Self::Reset(Depth::Whole),
            [11, span] => Self::Block(Micros(span)),
            [10, parts] => Self::Reset(Depth::Parts(parts.try_into().ok()?)),
            _ => return None,
        })
    }
}

impl Request {
    /// A request of this cost without a lease or a signal, of the least important class, with a draw that is
    /// shed at any probability above 0.
    #[must_use]
    #[inline]
    pub const fn of(cost: u64) -> Self {
        Self { cost, lease: None, hold: Micros::ZERO, class: Class(0), signal: None, draw: Draw(0) }
    }

    /// Whether the request reserves its cost.
    #[must_use]
    #[inline]
    pub const fn reserves(&self) -> bool {
        self.hold.0 > 0
    }

    /// The same request as a peek.
    #[must_use]
    pub(crate) const fn peek(self) -> Self {
        Self { cost: 0, ..self }
    }

    fn to_words(self, operation: u64) -> Vec<u64> {
        let Self { cost, lease, hold, class, signal, draw } = self;
        let signal = signal.map_or(NO_SIGNAL, |signal| signal.ppm().into());
        let rest = [operation, cost, class.0.into(), signal, draw.0.into()];
        let lease = lease.into_iter().flat_map(|Id(words)| words);
        let hold = (hold > Micros::ZERO).then_some(hold.0); // stands only behind a lease
        rest.into_iter().chain(lease).chain(hold).collect()
    }

    fn from_words(words: &[u64]) -> Option<Self> {
        let (&[cost, class, signal, draw], lease) = words.split_first_chunk()?;
        let (lease, hold) = match *lease {
            [] => (None, 0),
            [high, low] => (Some(Id([high, low])), 0),
            [high, low, hold] if hold > 0 => (Some(Id([high, low])), hold),
            _ => return None,
        };
        let signal = match signal {
            NO_SIGNAL => None,
            signal => Some(Share::from_ppm(signal.try_into().ok()?)?),
        };
        let (class, draw) = (Class(class.try_into().ok()?), Draw(draw.try_into().ok()?));
        Some(Self { cost, lease, hold: Micros(hold), class, signal, draw })
    }

    /// The places that the request takes: one for any cost above 0.
    pub(crate) const fn places(&self) -> u64 {
        if self.cost == 0 { 0 } else { 1 }
    }
}

impl From<u64> for Request {
    fn from(cost: u64) -> Self {
        Self::of(cost)
    }
}

impl From<Request> for Operation {
    fn from(request: Request) -> Self {
        Self::Decide(request)
    }
}

impl From<u64> for Operation {
    fn from(cost: u64) -> Self {
        Self::Decide(Request::of(cost))
    }
}
