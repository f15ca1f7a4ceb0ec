//! A request as a caller writes it.

use alloc::string::String;

use tidegate_core::shed::utilization::Class;
use tidegate_core::shed::{Draw, Share};

use super::{AskError, Chance, has_kind, lease_name, needs_leases};
use crate::limit::Kind;
use crate::policy::{Cost, Whole};
use crate::request::Request;
use crate::resolved::Resolved;
use crate::tree::form;

/// A signal in parts per million.
pub type Ppm = Whole<0, 1_000_000>;

/// The 32 random bits of a request.
pub type DrawForm = Whole<0, 0xffff_ffff>;

pub(crate) fn draw_of(Whole(bits): DrawForm) -> Draw {
    Draw(bits.try_into().unwrap_or_default()) // never: the form has at most 32 bits
}

form! {
    /// The fields of a request as a caller writes them.
    #[derive(Clone, Debug, Default)]
    pub struct CheckForm {
        /// The units that the request takes; by default the policy's `cost`.
        pub cost: Option<Whole<0>> = None,
        /// The name of the request's class; by default the least important class.
        pub class: Option<String> = None,
        /// The name of the lease that the request acquires; by default a random name.
        pub lease: Option<String> = None,
        /// The measured signal for a `utilization` limit, in parts per million.
        pub signal_ppm: Option<Ppm> = None,
        /// The random bits of the request; by default a random number.
        pub draw: Option<DrawForm> = None,
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
        let (Cost::Fixed(default) | Cost::Header { default, .. }) = *policy.cost();
        let cost = self.cost.map_or(default, |cost| cost.0);
        let class = match self.class {
            None => Class(0), // a request without a class is the least important
            Some(name) => policy
                .class(&name)
                .ok_or_else(|| AskError::Class { found: name, allowed: policy.classes().into() })?,
        };
        let signal = self.signal_ppm.and_then(|Whole(ppm)| Share::from_ppm(ppm.try_into().ok()?));
        let lease = match self.lease {
            Some(name) => {
                needs_leases(resolved)?;
                Some(lease_name(resolved, name)?)
            }
            None if cost > 0 && has_kind(resolved, Kind::Lease) => {
                let (Some(high), Some(low)) = (chance(), chance()) else {
                    return Err(AskError::NoRandomness);
                };
                let name = alloc::format!("{high:016x}{low:016x}");
                Some((resolved.lease_id(&name), name))
            }
            None => None,
        };
        let draw = match self.draw {
            Some(given) => draw_of(given),
            // without random numbers, every request that may be shed is shed
            None if has_kind(resolved, Kind::Shed) => {
                draw_of(Whole(chance().map_or(0, |chance| chance >> 32)))
            }
            None => Draw(0),
        };
        let (id, name) = lease.unzip();
        let request = Request { cost, lease: id, class, signal, draw };
        Ok((request, name.filter(|_| cost > 0))) // a request without a cost acquires no lease
    }
}
