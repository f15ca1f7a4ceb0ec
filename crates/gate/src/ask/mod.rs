//! The operations that callers ask for in JSON, and how they are checked against the policy.

mod asked;
mod error;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use tidegate_core::lease::{Id, MAX_ENTRIES, budget, connections};
use tidegate_core::shed::utilization::Class;
use tidegate_core::shed::{Draw, Share, suppression};
use tidegate_core::{CostExceedsCapacity, MAX_QUANTITY, Micros, Timestamp};
use tidegate_form::{Bounded, Error, Form, Node, Value, fields, form};

use crate::decide::{Limits, Record};
use crate::key::{Depth, MAX_LEASE_BYTES};
use crate::limit::Algorithm;
use crate::limit::{Budget, Grant, Kind, Offered, Operation, Request, Unspent};
use crate::policy::{Policy, Reservations, Resolved};
use crate::units::parse_span;
pub use asked::Asked;
use asked::cost_of;
pub use error::AskError;

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

/// A signal in parts per million.
pub type Ppm = Bounded<0, 1_000_000>;

/// The 32 random bits of a request.
pub type DrawBits = Bounded<0, 0xFFFF_FFFF>;

form! {
    /// The fields of a request as a caller writes them.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct CheckForm {
        /// The units that the request takes; by default the policy's `cost`.
        pub cost: Option<Bounded<0>> = None,
        /// The name of the request's class; by default the least important class.
        pub class: Option<String> = None,
        /// The name of the lease that the request acquires; by default a random name.
        pub lease: Option<String> = None,
        /// The measured signal for a `utilization` limit, in parts per million.
        pub signal_ppm: Option<Ppm> = None,
        /// The random bits of the request; by default a random number.
        pub draw: Option<DrawBits> = None,
    }
}

form! {
    /// The fields of a reservation as a caller writes them.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ReserveForm {
        /// The estimate, in units; by default the policy's `cost`.
        pub cost: Option<Bounded<0>> = None,
        /// The name of the request's class; by default the least important class.
        pub class: Option<String> = None,
        /// The id of the reservation; by default a random one.
        pub id: Option<String> = None,
        /// The measured signal for a `utilization` limit, in parts per million.
        pub signal_ppm: Option<Ppm> = None,
        /// The random bits of the request; by default a random number.
        pub draw: Option<DrawBits> = None,
        /// For how long the units are held; by default and at most the policy's `time_to_live`.
        pub time_to_live: Option<AskedSpan<1>> = None,
    }
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
        match asked.resolved().limits() {
            Some(limits) if asked.costs_too_much() && !policy.is_shadow() => {
                let cost = cost_of(&asked.wanted());
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

impl CheckForm {
    /// The request, and the name of the lease that it acquires, which is random by default.
    pub(super) fn request(
        self,
        resolved: &Resolved,
        chance: Chance<'_>,
    ) -> Result<(Request, Option<String>), AskError> {
        let Self { cost, class, lease, signal_ppm, draw } = self;
        let cost = cost.map_or(resolved.policy().cost().stated(), Bounded::get);
        let lease = match lease {
            Some(name) => {
                needs_leases(resolved)?;
                Some(lease_name(resolved, "lease", name)?)
            }
            None if cost > 0 && resolved.has(Kind::Lease) => Some(drawn_name(resolved, chance)?),
            None => None,
        };
        let (lease, name) = lease.unzip();
        let hold = Micros::ZERO;
        let class = class_of(resolved, class)?;
        let (signal, draw) = (signal_of(signal_ppm), draw_of(resolved, draw, chance));
        let request = Request { cost, lease, hold, class, signal, draw };
        Ok((request, name.filter(|_| cost > 0))) // a request without a cost acquires no lease
    }

    /// A request that only looks.
    pub(super) fn looked(self, resolved: &Resolved) -> Result<Request, AskError> {
        let is_named = self.lease.is_some();
        // the lowest draw: the peek says whether the request would pass for certain
        let (request, _) = self.request(resolved, &mut || Some(0))?;
        let lease = request.lease.filter(|_| is_named); // a peek acquires no lease
        Ok(Request { lease, ..request })
    }
}

impl ReserveForm {
    /// The request, and the id of the reservation.
    pub(super) fn request(
        self,
        resolved: &Resolved,
        chance: Chance<'_>,
    ) -> Result<(Request, String), AskError> {
        let Self { cost, class, id, signal_ppm, draw, time_to_live } = self;
        let reservations = reservations_of(resolved)?;
        let cost = cost.map_or(resolved.policy().cost().stated(), Bounded::get);
        if cost == 0 {
            return Err(AskError::NothingReserved);
        }
        let capacity = resolved.limits().map_or(u64::MAX, Limits::capacity);
        let (id, name) = match id {
            Some(name) => lease_name(resolved, "id", name)?,
            None => drawn_name(resolved, chance)?,
        };
        let longest = reservations.terms().longest;
        let request = Request {
            cost: reservations.cut(cost, capacity),
            lease: Some(id),
            hold: time_to_live.map_or(longest, |span| longest.min(span.0)),
            class: class_of(resolved, class)?,
            signal: signal_of(signal_ppm),
            draw: draw_of(resolved, draw, chance),
        };
        Ok((request, name))
    }
}

fn class_of(resolved: &Resolved, name: Option<String>) -> Result<Class, AskError> {
    let Some(name) = name else { return Ok(Class(0)) }; // a request without a class is the least important
    let policy = resolved.policy();
    policy
        .class(&name)
        .ok_or_else(|| AskError::Class { found: name, allowed: policy.classes().into() })
}

fn signal_of(ppm: Option<Ppm>) -> Option<Share> {
    ppm.and_then(|ppm| Share::from_ppm(ppm.get().try_into().ok()?))
}

/// A name that nobody can guess.
fn drawn_name(resolved: &Resolved, chance: Chance<'_>) -> Result<(Id, String), AskError> {
    let (Some(high), Some(low)) = (chance(), chance()) else { return Err(AskError::NoRandomness) };
    let name = alloc::format!("{high:016x}{low:016x}");
    Ok((resolved.lease_id(&name), name))
}

/// The draw of the caller, or a new one if a limit sheds load. Without a random number, every request that may be shed is shed.
fn draw_of(resolved: &Resolved, own: Option<DrawBits>, chance: Chance<'_>) -> Draw {
    match own {
        Some(bits) => Draw(bits.into()),
        None if resolved.has(Kind::Shed) => {
            let random = chance();
            Draw(random.and_then(|random| u32::try_from(random >> 32).ok()).unwrap_or(0))
        }
        None => Draw(0),
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
pub fn read_json<'t, T>(
    json: &'t str,
    read: impl FnOnce(&Node<'t>) -> Result<T, Error>,
) -> Result<T, AskError> {
    const MAP: &str = "an object";
    let tree = tidegate_form::json(json).map_err(|error| {
        let (line, column) = error.line_and_column(json);
        let message = format!("{} at line {line}, column {column}", error.message(MAP));
        AskError::Json { path: error.path(), message }
    })?;
    read(&tree).map_err(|error| AskError::Json { path: error.path(), message: error.message(MAP) })
}
