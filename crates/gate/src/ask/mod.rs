//! The operations that callers ask for in JSON, checked against the policy.

mod check;
mod error;
#[cfg(test)]
mod tests;
mod undo;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use tidegate_core::lease::{Id, MAX_ENTRIES, budget, connections};
use tidegate_core::shed::{Draw, suppression};
use tidegate_core::{CostExceedsCapacity, MAX_QUANTITY, Micros, Timestamp};

use crate::decide::{Explanation, Limits, Record, Verdict};
use crate::key::{Depth, MAX_LEASE_BYTES};
use crate::limit::Algorithm;
use crate::limit::{Budget, Grant, Kind, Offered, Operation, Request, Unspent};
use crate::policy::{Idempotency, Policy, Reservations, Resolved};
use crate::units::parse_span;
pub use check::{CheckForm, ReserveForm};
pub use check::{DrawBits, Ppm};
pub use error::AskError;
use tidegate_form::Bounded;
use tidegate_form::{Error, Form, Node, Value, fields};

/// Returns a random number that nobody can guess; `None` if no random numbers are available.
pub type Chance<'a> = &'a mut dyn FnMut() -> Option<u64>;

/// The connections of one owner. An owner may have more than the limit, because its connections exist.
/// All owners that a state has room for together stay within [`MAX_QUANTITY`], so one owner's count
/// never keeps another owner's from being recorded.
pub type Count = Bounded<0, MAX_COUNT>;

/// A span of time as a caller writes it: a text such as `"90s"`, as in a policy file, or a whole number of µs, at least `LEAST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedSpan<const LEAST: u64>(pub Micros);

impl<const LEAST: u64> From<Bounded<LEAST>> for AskedSpan<LEAST> {
    fn from(micros: Bounded<LEAST>) -> Self {
        Self(Micros(micros.get()))
    }
}

impl<const LEAST: u64> Form for AskedSpan<LEAST> {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        match node.value {
            Value::Text(_) => node.parse(parse_span).map(Self),
            Value::Natural(micros) if (LEAST..=MAX_QUANTITY).contains(&micros) => {
                Ok(Self(Micros(micros)))
            }
            _ => Err(node.refused(&format!(
                "a whole number from {LEAST} to {MAX_QUANTITY} in µs, or a span such as \"90s\""
            ))),
        }
    }
}

const MAX_COUNT: u64 = (1 << 32) - 1;
const _: () = assert!(MAX_COUNT * MAX_ENTRIES <= MAX_QUANTITY, "the sum over all owners");

/// An operation on a key as a caller writes it. In JSON this is an object with one field, such as
/// `{"check":{"cost":2}}`.
///
/// ```
/// use std::sync::Arc;
/// use tidegate_gate::{Ask, AskError, Operation, Policy, Request};
///
/// let policy = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]";
/// let policy = Arc::new(Policy::parse("login", policy).unwrap());
///
/// let ask = Ask::parse(r#"{"check":{"cost":2}}"#).unwrap();
/// let asked = ask.resolve(&policy, "user:42", &mut || None).unwrap();
/// assert_eq!(asked.operation(), Operation::Decide(Request::of(2)));
///
/// let ask = Ask::parse(r#"{"check":{"cost":6}}"#).unwrap();
/// let error = ask.resolve(&policy, "user:42", &mut || None).unwrap_err();
/// assert!(matches!(error, AskError::Cost(_)));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Ask {
    /// Asks whether a request may pass, and takes its cost if it may.
    Check(CheckForm),
    /// Asks whether a request would pass. Changes nothing.
    Peek(CheckForm),
    /// Asks whether and why a request would pass. Changes nothing.
    Explain(CheckForm),
    /// Reserves units for a request whose true cost is known later.
    Reserve(ReserveForm),
    /// Says what a reservation has really cost. A cost of 0 releases it.
    Commit {
        /// The id of the reservation.
        id: String,
        /// The units that were used.
        actual: Bounded<0>,
    },
    /// Returns units.
    Refund {
        /// The number of units.
        units: Bounded<1>,
        /// The time of the grant that took the units. Without it the refund names no grant.
        granted_at_us: Option<Bounded<0>>,
        /// The units that this grant took and has not returned.
        granted: Option<Bounded<1>>,
    },
    /// Renews a lease.
    Renew {
        /// The name of the lease.
        lease: String,
        /// The owner's number of connections.
        count: Option<Count>,
    },
    /// Releases a lease.
    Release {
        /// The name of the lease.
        lease: String,
    },
    /// Asks for units that a holder may spend without asking.
    Budget {
        /// The name of the holder.
        lease: String,
        /// The units that the holder would spend in the time of a grant.
        wants: Bounded<0>,
        /// The time at which the returned units were granted.
        granted_at_us: Option<Bounded<0>>,
        /// The unspent units that the holder returns.
        left: Option<Bounded<0>>,
    },
    /// Reports the load that a reporter was offered.
    #[expect(missing_docs, reason = "the fields are those of Offered")]
    Report { offered_at_us: Option<Bounded<0>>, admitted: Bounded<0>, suppressed: Bounded<0> },
    /// Clears the state of the key.
    Reset {},
    /// Blocks the key for a time.
    Block {
        /// The time; 0 ends the block.
        r#for: AskedSpan<0>,
    },
}

impl Form for Ask {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.only_field(&[
            ("check", |node| node.read().map(Self::Check)),
            ("peek", |node| node.read().map(Self::Peek)),
            ("explain", |node| node.read().map(Self::Explain)),
            ("reserve", |node| node.read().map(Self::Reserve)),
            ("commit", |node| fields!(node, Self::Commit { id, actual })),
            ("refund", |node| {
                fields!(node, Self::Refund { units, granted_at_us = None, granted = None })
            }),
            ("renew", |node| fields!(node, Self::Renew { lease, count = None })),
            ("release", |node| fields!(node, Self::Release { lease })),
            ("budget", |node| {
                fields!(node, Self::Budget { lease, wants, granted_at_us = None, left = None })
            }),
            ("report", |node| fields!(node, Self::Report { offered_at_us = None, admitted, suppressed })),
            ("reset", |node| fields!(node, Self::Reset {})),
            ("block", |node| fields!(node, Self::Block { r#for })),
        ])
    }
}

/// An operation that was checked against the policy of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    resolved: Resolved,
    operation: Operation,
    lease: Option<String>,
    /// A cost that the limits can never grant. The operation is then a peek.
    beyond: Option<u64>,
}

impl Ask {
    /// Reads an operation in JSON.
    ///
    /// # Errors
    /// Fails with [`AskError::Json`] if the JSON is not an operation.
    pub fn parse(json: &str) -> Result<Self, AskError> {
        read_json(json, |node| node.read())
    }

    /// Finds the limits on the key, and checks the operation against them. `chance` names leases and
    /// draws for limits that shed load.
    ///
    /// # Errors
    /// Fails with [`AskError`] if the operation does not fit the policy.
    pub fn resolve(
        self,
        policy: &Arc<Policy>,
        key: &str,
        chance: Chance<'_>,
    ) -> Result<Asked, AskError> {
        let asked = self.resolve_any_cost(policy, key, chance)?;
        match (asked.beyond, asked.resolved.limits()) {
            (Some(cost), Some(limits)) if !policy.is_shadow() => {
                let capacity = limits.capacity();
                Err(AskError::Cost(CostExceedsCapacity { cost, capacity }))
            }
            _ => Ok(asked),
        }
    }

    /// Does the same as [`resolve`](Self::resolve), but accepts a cost that the limits can never grant: such
    /// a request is refused for ever.
    ///
    /// # Errors
    /// Fails with [`AskError`], but never with [`AskError::Cost`].
    #[inline(never)] // a caller that is built for speed would build it for speed too, which takes more bytes
    pub fn resolve_any_cost(
        self,
        policy: &Arc<Policy>,
        key: &str,
        chance: Chance<'_>,
    ) -> Result<Asked, AskError> {
        let resolved = Resolved::new(policy, key)?;
        let has = |algorithm| has_algorithm(&resolved, algorithm);
        let named = |name: String| lease_name(&resolved, "lease", name);
        let (operation, lease) = match self {
            Self::Check(form) => {
                let (request, lease) = form.request(&resolved, chance)?;
                (Operation::Decide(request), lease)
            }
            Self::Peek(form) => {
                let form = CheckForm { cost: form.cost.or(Some(Bounded::clamped(0))), ..form };
                (Operation::Peek(form.looked(&resolved)?), None)
            }
            Self::Explain(form) => (Operation::Explain(form.looked(&resolved)?), None),
            Self::Reserve(form) => {
                let (request, id) = form.request(&resolved, chance)?;
                (Operation::Decide(request), Some(id))
            }
            Self::Commit { id, actual } => {
                reservations_of(&resolved)?;
                let (id, name) = lease_name(&resolved, "id", id)?;
                (Operation::Commit(id, actual.get()), Some(name))
            }
            Self::Refund { .. } if has_payers(&resolved) => {
                return Err(AskError::UnknownPayer);
            }
            Self::Refund { units, granted_at_us, granted } => {
                (refund(units.get(), granted_at_us, granted)?, None)
            }
            Self::Renew { lease, count } => {
                needs_leases(&resolved)?;
                if count.is_some() {
                    has(connections::Config::NAME)?;
                }
                let (id, lease) = named(lease)?;
                let renewed = Operation::Heartbeat(id);
                (count.map_or(renewed, |count| Operation::Count(id, count.get())), Some(lease))
            }
            Self::Release { lease } => {
                needs_leases(&resolved)?;
                let (id, lease) = named(lease)?;
                (Operation::Release(id), Some(lease))
            }
            Self::Budget { lease, wants, granted_at_us, left } => {
                has(budget::Config::NAME)?;
                let (holder, lease) = named(lease)?;
                let unspent = unspent(granted_at_us, left)?;
                (Operation::Budget(Budget { holder, wants: wants.get(), unspent }), Some(lease))
            }
            Self::Report { offered_at_us, admitted, suppressed } => {
                has(suppression::Config::NAME)?;
                let at = offered_at_us.map(|at| Timestamp(at.get()));
                let (admitted, suppressed) = (admitted.get(), suppressed.get());
                (Operation::Report(Offered { at, admitted, suppressed }), None)
            }
            Self::Reset {} => (Operation::Reset(Depth::of_own(resolved.key())), None),
            Self::Block { r#for } => {
                let limits = resolved.limits().ok_or(AskError::Listed)?;
                if !limits.records().iter().any(Record::keeps_block) {
                    return Err(AskError::NoWholeKey);
                }
                (Operation::Block(r#for.0), None)
            }
        };
        Ok(Asked::new(resolved, operation, lease))
    }
}

impl Asked {
    /// Listed keys are never counted, so the cost of an operation on them does not matter.
    fn new(resolved: Resolved, operation: Operation, lease: Option<String>) -> Self {
        let cost = match operation {
            Operation::Decide(Request { cost, .. })
            | Operation::Peek(Request { cost, .. })
            | Operation::Explain(Request { cost, .. }) => cost,
            _ => 0,
        };
        let most = resolved.limits().map_or(u64::MAX, Limits::capacity);
        let beyond = (cost > most).then_some(cost);
        let operation = match operation {
            Operation::Explain(_) if beyond.is_some() => Operation::Explain(Request::of(0)),
            _ if beyond.is_some() => Operation::from(0),
            _ => operation,
        };
        Self { resolved, operation, lease, beyond }
    }

    /// The policy, limits and canonical key of the operation.
    #[must_use]
    pub const fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// # Errors
    /// Fails with [`AskError::NoLeases`] or [`AskError::FreeLease`] if the request acquires no lease.
    pub fn require_lease(&self) -> Result<(), AskError> {
        needs_leases(&self.resolved)?;
        match self.operation.is_peek() && self.beyond.is_none() {
            true => Err(AskError::FreeLease),
            false => Ok(()),
        }
    }

    /// Gives a lease or reservation, which the caller has not named, a name that follows from this id. A repeat of the request
    /// then names the same one.
    #[must_use]
    pub fn named_by(mut self, Id([high, low]): Id) -> Self {
        if let (Operation::Decide(request), Some(_)) = (&mut self.operation, &self.lease) {
            let name = format!("{high:016x}{low:016x}");
            request.lease = Some(self.resolved.lease_id(&name));
            self.lease = Some(name);
        }
        self
    }

    /// The same operation, of which a repeat is [known](Resolved::known_by).
    ///
    /// # Errors
    /// Fails with [`AskError::NoIdempotency`] if the policy keeps no answers.
    pub fn known_by(self, idempotency: Idempotency) -> Result<Self, AskError> {
        let policy = self.resolved.policy();
        if policy.idempotency().is_none() {
            return Err(AskError::NoIdempotency { policy: policy.name().into() });
        }
        Ok(Self { resolved: self.resolved.known_by(idempotency), ..self })
    }

    /// The operation to do.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        self.operation
    }

    /// The name of the lease, or the id of the reservation, that the operation concerns, given by the caller or drawn at random.
    #[must_use]
    pub fn lease(&self) -> Option<&str> {
        self.lease.as_deref()
    }

    /// Whether the operation makes or ends a reservation.
    #[must_use]
    pub const fn is_of_reservation(&self) -> bool {
        match self.operation {
            Operation::Commit(..) => true,
            Operation::Decide(request) => request.reserves(),
            _ => false,
        }
    }

    /// The random bits of the request; `None` for an operation that is not a request.
    #[must_use]
    pub const fn draw(&self) -> Option<Draw> {
        match self.operation {
            Operation::Decide(request) | Operation::Peek(request) | Operation::Explain(request) => {
                Some(request.draw)
            }
            _ => None,
        }
    }

    /// Whether the limits can never grant the cost.
    #[must_use]
    pub const fn costs_too_much(&self) -> bool {
        self.beyond.is_some()
    }

    /// Returns the same request with this draw.
    #[must_use]
    pub const fn with_draw(mut self, draw: Draw) -> Self {
        if let Operation::Decide(request) | Operation::Peek(request) | Operation::Explain(request) =
            &mut self.operation
        {
            request.draw = draw;
        }
        self
    }

    /// The verdict on what the caller asked, given the verdict on [`operation`](Self::operation). They differ
    /// only if the limits can never grant the cost.
    #[must_use]
    pub fn said(&self, verdict: Verdict) -> Verdict {
        match (self.beyond, self.resolved.limits()) {
            (Some(cost), Some(limits)) => verdict.refused_for_ever(limits, cost),
            _ => verdict,
        }
    }

    /// Why the request passes or not by this verdict, as [`said`](Self::said) returns it. `None` unless the caller asked why, or if a
    /// node has decided by its share.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate_gate::{Ask, KeyHasher, Policy, Table, Timestamp};
    ///
    /// let policy = "limits = [{ algorithm = 'sliding_log', rates = ['1/s', '3/m'] }]";
    /// let policy = Arc::new(Policy::parse("log", policy).unwrap());
    /// let mut table = Table::new(1 << 20, KeyHasher::new(1));
    /// let _ = table.decide(&policy, "user:42", Timestamp(0), 1).unwrap();
    ///
    /// let why = Ask::parse(r#"{"explain":{"cost":1}}"#).unwrap();
    /// let why = why.resolve(&policy, "user:42", &mut || None).unwrap();
    /// let verdict = table.ask(why.resolved(), Timestamp(0), &why.operation()).unwrap();
    /// assert_eq!(
    ///     why.explain(&verdict).unwrap().text,
    ///     "`log` refuses (1 in any 1 s): 0 of 1 are left and the request costs 1; it passes in 1 s."
    /// );
    /// ```
    #[must_use]
    pub fn explain(&self, verdict: &Verdict) -> Option<Explanation> {
        let Operation::Explain(Request { cost, .. }) = self.operation else { return None };
        if verdict.degraded {
            return None;
        }
        let why = match self.resolved.limits() {
            Some(limits) => limits.explain(verdict, self.beyond.unwrap_or(cost))?,
            None => Explanation::listed(verdict.decision),
        };
        let in_shadow = self.resolved.policy().is_shadow() && !verdict.decision.is_allowed();
        Some(if in_shadow { why.in_shadow("the policy") } else { why })
    }
}

fn refund(
    units: u64,
    granted_at: Option<Bounded<0>>,
    granted: Option<Bounded<1>>,
) -> Result<Operation, AskError> {
    match (granted_at, granted.map(Bounded::get)) {
        (None, None) => Ok(Operation::Refund(units)),
        (Some(_), Some(granted)) if units > granted => {
            Err(AskError::BeyondGrant { units, granted })
        }
        (Some(at), Some(granted)) => {
            Ok(Operation::RefundOf(Grant { at: Timestamp(at.get()), units: granted }, units))
        }
        _ => Err(AskError::HalfGrant),
    }
}

fn unspent(
    granted_at: Option<Bounded<0>>,
    left: Option<Bounded<0>>,
) -> Result<Option<Unspent>, AskError> {
    match (granted_at, left) {
        (None, None) => Ok(None),
        (Some(granted_at), Some(left)) => {
            Ok(Some(Unspent { granted_at: Timestamp(granted_at.get()), left: left.get() }))
        }
        _ => Err(AskError::HalfUnspent),
    }
}

/// The id under which a lease is stored, and its name.
fn lease_name(
    resolved: &Resolved,
    field: &'static str,
    name: String,
) -> Result<(Id, String), AskError> {
    if (1..=MAX_LEASE_BYTES).contains(&name.len()) {
        return Ok((resolved.lease_id(&name), name));
    }
    Err(AskError::Lease { field, bytes: name.len() })
}

/// Whether some limits on the key pay.
fn has_payers(resolved: &Resolved) -> bool {
    resolved.limits().is_some_and(Limits::have_payers)
}

/// # Errors
/// Fails with [`AskError::NoReservations`] if the policy takes none.
fn reservations_of(resolved: &Resolved) -> Result<&Reservations, AskError> {
    let policy = resolved.policy();
    policy.reservations().ok_or_else(|| AskError::NoReservations { policy: policy.name().into() })
}

/// # Errors
/// Fails with [`AskError::NoLeases`] if no limit on this key holds leases.
fn needs_leases(resolved: &Resolved) -> Result<(), AskError> {
    match resolved.has(Kind::Lease) {
        true => Ok(()),
        false => Err(AskError::NoLeases { policy: resolved.policy().name().into() }),
    }
}

/// # Errors
/// Fails with [`AskError::NoLimit`] if no limit on this key has the algorithm.
fn has_algorithm(resolved: &Resolved, algorithm: &'static str) -> Result<(), AskError> {
    match resolved.fitting_limits().any(|limit| limit.algorithm() == algorithm) {
        true => Ok(()),
        false => Err(AskError::NoLimit { policy: resolved.policy().name().into(), algorithm }),
    }
}

/// Lets `read` read a JSON object. Anything after the object is an error.
///
/// # Errors
/// Fails with [`AskError::Json`], which names the place.
pub fn read_json<T>(
    json: &str,
    read: impl FnOnce(&Node<'_>) -> Result<T, Error>,
) -> Result<T, AskError> {
    const MAP: &str = "an object";
    let tree = tidegate_form::json(json).map_err(|error| {
        let (line, column) = error.line_and_column(json);
        let message = format!("{} at line {line}, column {column}", error.message(MAP));
        AskError::Json { path: error.path(), message }
    })?;
    read(&tree).map_err(|error| AskError::Json { path: error.path(), message: error.message(MAP) })
}
