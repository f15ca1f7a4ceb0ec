//! What is asked of a key.

use alloc::string::String;

use serde::Deserialize;
use tidegate_core::lease::MAX_ENTRIES;
use tidegate_core::shed::utilization::Class;
use tidegate_core::shed::{Draw, Share};
use tidegate_core::{MAX_QUANTITY, Timestamp};

use super::call::parse;
use super::problem::Problem;
use super::{Chance, Check, Response, find, validated};
use crate::key::MAX_LEASE_BYTES;
use crate::limit::{Kind, Limit};
use crate::policy::{Cost, Policies, Policy, Whole};
use crate::request::{Budget, Offered, Operation, Request, Settlement, Unspent};

/// How many connections an owner has. Not at most the limit, for they exist, and the limit may have been
/// more; but so few that those of all owners that there can be are no more than any quantity may be.
/// Otherwise one owner's count would keep the others' from being recorded.
pub(super) type Count = Whole<0, MAX_COUNT>;

/// A signal, in parts per million.
pub(super) type Ppm = Whole<0, 1_000_000>;

/// What a request draws: 32 bits.
pub(super) type DrawForm = Whole<0, 0xffff_ffff>;

pub(super) fn draw_of(Whole(bits): DrawForm) -> Draw {
    Draw(bits.try_into().unwrap_or_default()) // they are no more
}

const MAX_COUNT: u64 = (1 << 32) - 1;
const _: () = assert!(MAX_COUNT * MAX_ENTRIES <= MAX_QUANTITY, "of all owners");

/// What is asked of a key of a policy, as [`operation`] reads it and the calls mean it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum OperationForm {
    Check {
        cost: Option<Whole<0>>,
        class: Option<String>,
        lease: Option<String>,
        signal_ppm: Option<Ppm>,
        draw: Option<DrawForm>,
    },
    Settle {
        granted_at_us: Whole<0>,
        reserved: Whole<0>,
        actual: Whole<0>,
    },
    Renew {
        lease: String,
        /// Of an owner of connections: how many it has.
        count: Option<Count>,
    },
    Release {
        lease: String,
    },
    Budget {
        lease: String,
        wants: Whole<0>,
        /// When the units were granted that are given back.
        granted_at_us: Option<Whole<0>>,
        /// How many of them were not spent.
        left: Option<Whole<0>>,
    },
    Report {
        /// In the part of 6 s in which this lies the units were offered; now, if left out.
        offered_at_us: Option<Whole<0>>,
        admitted: Whole<0>,
        suppressed: Whole<0>,
    },
}

impl OperationForm {
    /// What is no request for a decision needs no chance.
    pub(super) fn check(
        self,
        policies: &Policies,
        policy: &str,
        key: String,
        now_us: Option<Whole<0>>,
    ) -> Result<Check, Response> {
        let at = String::new;
        let (index, policy) = find(policies, policy, &at)?;
        let (operation, lease) = self.read(policy, &key, &mut || None)?;
        let now = now_us.map(|now| Timestamp(now.0));
        validated(policy, Check { policy: index, key, operation, lease, now, draw: None }, &at)
    }

    fn read(
        self,
        policy: &Policy,
        key: &str,
        chance: Chance<'_>,
    ) -> Result<(Operation, Option<String>), Response> {
        let at = String::new;
        Ok(match self {
            Self::Check { cost, class, lease, signal_ppm, draw } => {
                let wanted = Wanted { cost: cost.map(|cost| cost.0), class, lease, signal_ppm };
                let (mut request, lease) = request(policy, key, wanted, chance, &at)?;
                request.draw = draw.map_or(request.draw, draw_of);
                (Operation::Decide(request), lease)
            }
            Self::Settle { granted_at_us, reserved, actual } => {
                let granted_at = Timestamp(granted_at_us.0);
                let (reserved, actual) = (reserved.0, actual.0);
                (Operation::Settle(Settlement { granted_at, reserved, actual }), None)
            }
            Self::Renew { lease, count } => {
                needs_leases(policy, key, &at)?;
                if count.is_some() {
                    needs(policy, key, "connections", |limit| {
                        matches!(limit, Limit::Connections(_))
                    })?;
                }
                let lease = lease_name(&lease, &at)?;
                let id = policy.lease_id(key, &lease);
                let renewed = Operation::Heartbeat(id);
                (count.map_or(renewed, |count| Operation::Count(id, count.0)), Some(lease))
            }
            Self::Release { lease } => {
                needs_leases(policy, key, &at)?;
                let lease = lease_name(&lease, &at)?;
                (Operation::Release(policy.lease_id(key, &lease)), Some(lease))
            }
            Self::Budget { lease, wants, granted_at_us, left } => {
                needs(policy, key, "budget", |limit| matches!(limit, Limit::Budget(_)))?;
                let lease = lease_name(&lease, &at)?;
                let unspent = match (granted_at_us, left) {
                    (None, None) => None,
                    (Some(granted_at), Some(left)) => {
                        Some(Unspent { granted_at: Timestamp(granted_at.0), left: left.0 })
                    }
                    _ => {
                        let detail = "allowed are `granted_at_us` and `left` together, or neither";
                        return Err(Problem::InvalidRequest.response(detail.into()));
                    }
                };
                let holder = policy.lease_id(key, &lease);
                (Operation::Budget(Budget { holder, wants: wants.0, unspent }), Some(lease))
            }
            Self::Report { offered_at_us, admitted, suppressed } => {
                needs(policy, key, "suppression", |limit| matches!(limit, Limit::Suppression(_)))?;
                let at = offered_at_us.map(|at| Timestamp(at.0));
                let (admitted, suppressed) = (admitted.0, suppressed.0);
                (Operation::Report(Offered { at, admitted, suppressed }), None)
            }
        })
    }
}

/// What is asked of a key of this policy, in JSON: `{"check":{…}}`, `{"settle":{…}}`,
/// `{"renew":{…}}`, `{"release":{…}}`, `{"budget":{…}}` or `{"report":{…}}`, with the fields of the calls of that name,
/// and for a check also `draw`. With it comes the name of the lease it is about.
///
/// # Errors
/// The problem, as JSON.
pub fn operation(
    policy: &Policy,
    key: &str,
    json: &[u8],
    chance: Chance<'_>,
) -> Result<(Operation, Option<String>), String> {
    let asked = parse::<OperationForm>(json).and_then(|form| form.read(policy, key, chance));
    let (operation, lease) = asked.map_err(|response| response.body)?;
    let (policy_index, now, draw) = (0, None, None);
    let check = Check { policy: policy_index, key: key.into(), operation, lease, now, draw };
    let check = validated(policy, check, &String::new).map_err(|response| response.body)?;
    Ok((check.operation, check.lease))
}

fn needs(
    policy: &Policy,
    key: &str,
    algorithm: &str,
    is: impl Fn(&Limit) -> bool,
) -> Result<(), Response> {
    if policy.limits_for(key).iter().any(|each| is(&each.limit)) {
        return Ok(());
    }
    let detail = alloc::format!("policy: {:?} has no limit `{algorithm}`", policy.name());
    Err(Problem::InvalidRequest.response(detail))
}

/// What a request brings for its limits, as it was written.
#[derive(Default)]
pub(super) struct Wanted {
    pub(super) cost: Option<u64>,
    pub(super) class: Option<String>,
    pub(super) lease: Option<String>,
    pub(super) signal_ppm: Option<Ppm>,
}

/// The request, and the name of the lease that it wants: if it gives none, a random one.
pub(super) fn request(
    policy: &Policy,
    key: &str,
    wanted: Wanted,
    chance: Chance<'_>,
    at: &dyn Fn() -> String,
) -> Result<(Request, Option<String>), Response> {
    let invalid = |detail: String| Problem::InvalidRequest.response([at(), detail].concat());
    let (Cost::Fixed(default) | Cost::Header { default, .. }) = *policy.cost();
    let cost = wanted.cost.unwrap_or(default);
    let class = match &wanted.class {
        None => Class(0), // who does not say that it is important is not
        Some(name) => policy.class(name).ok_or_else(|| {
            let allowed = policy.classes().join(", ");
            invalid(alloc::format!("class: found {name:?}, there are: {allowed}"))
        })?,
    };
    let signal = wanted.signal_ppm.and_then(|Whole(ppm)| Share::from_ppm(ppm.try_into().ok()?));
    let lease = match wanted.lease {
        Some(name) => {
            needs_leases(policy, key, at)?;
            Some(lease_name(&name, at)?)
        }
        None if cost > 0 && has_leases(policy, key) => {
            let (Some(high), Some(low)) = (chance(), chance()) else {
                return Err(Problem::Internal.response("there is no chance to be had".into()));
            };
            Some(alloc::format!("{high:016x}{low:016x}"))
        }
        None => None,
    };
    // without any to be had: shed whatever may be shed
    let draw =
        if has(policy, key, Kind::Shed) { chance().map_or(0, |chance| chance >> 32) } else { 0 };
    let request = Request {
        cost,
        lease: lease.as_deref().map(|lease| policy.lease_id(key, lease)),
        class,
        signal,
        draw: draw_of(Whole(draw)),
    };
    Ok((request, lease.filter(|_| cost > 0))) // who only looks gets none
}

fn lease_name(name: &str, at: &dyn Fn() -> String) -> Result<String, Response> {
    if (1..=MAX_LEASE_BYTES).contains(&name.len()) {
        return Ok(name.into());
    }
    let (at, found) = (at(), name.len());
    let detail =
        alloc::format!("{at}lease: found {found} bytes, allowed are 1 to {MAX_LEASE_BYTES}");
    Err(Problem::InvalidRequest.response(detail))
}

pub(super) fn has_leases(policy: &Policy, key: &str) -> bool {
    has(policy, key, Kind::Lease)
}

fn has(policy: &Policy, key: &str, kind: Kind) -> bool {
    policy.limits_for(key).iter().any(|each| each.limit.kind() == kind)
}

/// # Errors
/// The response to one who asks for a lease where nothing holds any.
pub(super) fn needs_leases(
    policy: &Policy,
    key: &str,
    at: &dyn Fn() -> String,
) -> Result<(), Response> {
    if has_leases(policy, key) {
        return Ok(());
    }
    let (at, name) = (at(), policy.name());
    let detail = alloc::format!("{at}policy: {name:?} has no limit with leases");
    Err(Problem::InvalidRequest.response(detail))
}
