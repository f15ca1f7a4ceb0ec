//! A request as a caller writes it.

use alloc::string::String;

use tidegate_core::Micros;
use tidegate_core::lease::Id;
use tidegate_core::shed::utilization::Class;
use tidegate_core::shed::{Draw, Share};

use super::{AskError, AskedSpan, Chance, lease_name, needs_leases, reservations_of};
use crate::decide::Limits;
use crate::limit::{Kind, Request};
use crate::policy::Resolved;
use tidegate_form::{Bounded, form};

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
