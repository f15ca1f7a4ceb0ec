//! What becomes of a request.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_gate::{Asked, Effect, Metering, Micros, Operation, Verdict};

use crate::answer::{Outcome, renew_every};
use crate::meter::Meter;
use crate::response::{Headers, Response};

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// The request gets this response.
    Response(Response),
    /// The request passes to the upstream.
    Pass(Box<Pass>),
}

/// A request that passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// The URL to send it to; `None` for its own URL.
    pub url: Option<String>,
    /// The client's address.
    pub client: Option<String>,
    /// The headers to add to the upstream's answer.
    pub headers: Headers,
    /// The headers to add to the gateway's own answer, if the upstream gives none.
    pub own_fields: Headers,
    /// The leases to hold until the exchange has ended: one of each policy that limits leases.
    pub leases: Vec<Lease>,
    /// The reservations to commit once the exchange has ended, each at what its own meter has read. A commit releases the lease
    /// of the same policy, key and name, too.
    pub reservations: Vec<Reservation>,
}

/// A reservation whose true cost the answer tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The name of the policy.
    pub policy: String,
    /// The key.
    pub key: String,
    /// The id of the reservation.
    pub id: String,
    /// Reads the true cost.
    pub meter: Meter,
}

/// A lease that a request holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The name of the policy.
    pub policy: String,
    /// The key.
    pub key: String,
    /// The name of the lease.
    pub name: String,
    /// The time between two renewals: a third of its time to live.
    pub renew_every: Micros,
}

impl Served {
    /// The header fields that the client gets: of the response, or beside those of the upstream's answer.
    pub fn headers_mut(&mut self) -> &mut Headers {
        match self {
            Self::Response(response) => &mut response.headers,
            Self::Pass(pass) => &mut pass.headers,
        }
    }
}

impl Reservation {
    /// The reservation of a request that passes. A listed key has none, nor has a request that only the shadow lets pass. If the
    /// outcome is not known, it may have one.
    pub(crate) fn of(metering: &Arc<Metering>, asked: &Asked, outcome: &Outcome) -> Option<Self> {
        let units = match (outcome, asked.operation()) {
            (Outcome::Decided(Verdict { effect: Effect::Reserved { units, .. }, .. }), _) => *units,
            (Outcome::Unavailable(_), Operation::Decide(request)) if request.reserves() => {
                request.cost
            }
            _ => return None,
        };
        let (resolved, id) = (asked.resolved(), asked.lease()?.into());
        let (policy, key) = (resolved.policy().name().into(), resolved.written_key().into());
        Some(Self { policy, key, id, meter: Meter::new(metering, units) })
    }
}

impl Lease {
    /// The lease that a request acquired by this verdict.
    pub(crate) fn of(asked: &Asked, verdict: &Verdict) -> Option<Self> {
        let (name, resolved) = (asked.lease()?, asked.resolved());
        let renew_every = renew_every(asked, verdict)?;
        let (policy, key) = (resolved.policy().name().into(), resolved.written_key().into());
        Some(Self { policy, key, name: name.into(), renew_every })
    }
}
