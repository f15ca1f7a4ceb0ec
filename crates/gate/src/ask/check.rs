//! A request as a caller writes it.

use alloc::string::String;

use tidegate_core::shed::utilization::Class;
use tidegate_core::shed::{Draw, Share};

use super::{AskError, Chance, lease_name, needs_leases};
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

impl CheckForm {
    /// The request, and the name of the lease that it acquires, which is random by default.
    pub(super) fn request(
        self,
        resolved: &Resolved,
        chance: Chance<'_>,
    ) -> Result<(Request, Option<String>), AskError> {
        let policy = resolved.policy();
        let cost = self.cost.map_or(policy.cost().stated(), Bounded::get);
        let class = match self.class {
            None => Class(0), // a request without a class is the least important
            Some(name) => policy
                .class(&name)
                .ok_or_else(|| AskError::Class { found: name, allowed: policy.classes().into() })?,
        };
        let signal = self.signal_ppm.and_then(|ppm| Share::from_ppm(ppm.get().try_into().ok()?));
        let lease = match self.lease {
            Some(name) => {
                needs_leases(resolved)?;
                Some(lease_name(resolved, name)?)
            }
            None if cost > 0 && resolved.has(Kind::Lease) => {
                let (Some(high), Some(low)) = (chance(), chance()) else {
                    return Err(AskError::NoRandomness);
                };
                let name = alloc::format!("{high:016x}{low:016x}");
                Some((resolved.lease_id(&name), name))
            }
            None => None,
        };
        let draw = match self.draw {
            Some(bits) => Draw(bits.into()),
            None if resolved.has(Kind::Shed) => draw_of(chance()),
            None => Draw(0),
        };
        let (id, name) = lease.unzip();
        let request = Request { cost, lease: id, class, signal, draw };
        Ok((request, name.filter(|_| cost > 0))) // a request without a cost acquires no lease
    }
}

/// The first bits of a random number. Without one, every request that may be shed is shed.
fn draw_of(random: Option<u64>) -> Draw {
    Draw(random.and_then(|random| u32::try_from(random >> 32).ok()).unwrap_or(0))
}
