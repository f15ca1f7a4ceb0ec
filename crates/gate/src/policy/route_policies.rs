//! The policies of a route: one, or several that decide one after another.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::iter;

use tidegate_core::never;
use tidegate_form::{Quoted, repeated};

use super::metering::Metering;
use super::policy::Policy;
use crate::decide::Limits;

/// The most policies of a route.
pub const MAX_POLICIES: usize = 8;

/// A policy of a route, and the class of the route's requests under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePolicy {
    policy: Arc<Policy>,
    /// The place of the class in the policy's list.
    class: Option<usize>,
}

impl RoutePolicy {
    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The class of the route's requests; `None` for the least important class of the policy.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        self.policy.classes().get(self.class?).map(String::as_str)
    }
}

/// What a route says of its policies.
pub(super) struct RoutePolicies<'f> {
    pub(super) policy: Option<&'f str>,
    pub(super) policies: Option<&'f [String]>,
    pub(super) class: Option<&'f str>,
    pub(super) cost: Option<u64>,
    pub(super) metering: Option<&'f Metering>,
}

impl RoutePolicies<'_> {
    /// The policies in the order in which they decide; none if the route does not count.
    ///
    /// # Errors
    /// The message names the field, and says what was expected and found.
    pub(super) fn read<'p>(
        &self,
        find: impl Fn(&str) -> Option<&'p Arc<Policy>>,
    ) -> Result<Vec<RoutePolicy>, String> {
        let found = |field: &str, what: &str, name: &str| {
            find(name).map(Arc::clone).ok_or_else(|| {
                format!("`{field}`: expected {what} of this file, found {}", Quoted(name))
            })
        };
        let policies = match (self.policy, self.policies) {
            (Some(_), Some(_)) => {
                return Err("`policies`: expected it or `policy`, found both".to_owned());
            }
            (None, None) => return Ok(Vec::new()),
            (Some(name), None) => [found("policy", "the name of a policy", name)?].into(),
            (None, Some(names)) => {
                several(names)?;
                let each = names.iter().map(|name| found("policies", "names of policies", name));
                each.collect::<Result<Vec<_>, _>>()?
            }
        };
        for policy in &policies {
            fits(policy, policies.len(), "cost", self.cost)?;
        }
        if let Some(metering) = self.metering {
            holds(&policies, metering)?;
        }
        come_back(&policies, self.metering.is_some())?;
        let classes = self.classes(&policies)?;
        let each = policies.into_iter().zip(classes);
        Ok(each.map(|(policy, class)| RoutePolicy { policy, class }).collect())
    }

    /// The place of the class in the list of each policy that has it.
    fn classes(&self, policies: &[Arc<Policy>]) -> Result<Vec<Option<usize>>, String> {
        let Some(class) = self.class else { return Ok(policies.iter().map(|_| None).collect()) };
        let places = policies
            .iter()
            .map(|policy| policy.classes().iter().position(|name| name == class))
            .collect::<Vec<_>>();
        if places.iter().any(Option::is_some) {
            return Ok(places);
        }
        let mut all: Vec<&str> = Vec::new();
        for name in policies.iter().flat_map(|policy| policy.classes()) {
            if !all.contains(&name.as_str()) {
                all.push(name);
            }
        }
        Err(format!("`class`: expected one of {}; found {}", all.join(", "), Quoted(class)))
    }
}

fn several(names: &[String]) -> Result<(), String> {
    if !(2..=MAX_POLICIES).contains(&names.len()) {
        let found = names.len();
        return Err(format!(
            "`policies`: expected 2 to {MAX_POLICIES} policies, found {found}; a single policy stands in `policy`"
        ));
    }
    match repeated(names) {
        Some(name) => {
            Err(format!("`policies`: expected each policy once, found {} twice", Quoted(name)))
        }
        None => Ok(()),
    }
}

/// Checks that some policy can hold an estimate until the true cost is known.
fn holds(policies: &[Arc<Policy>], metering: &Metering) -> Result<(), String> {
    let mut is_held = false;
    for policy in policies {
        let Some(reservations) = policy.reservations() else { continue };
        is_held = true;
        let least = metering.estimate().map(|estimate| estimate.of(&[]).units);
        let least = least.map(|least| reservations.cut(least, granted_at_once(policy)));
        fits(policy, policies.len(), "estimate", least)?;
    }
    match policies {
        _ if is_held => Ok(()),
        [only] => Err(format!(
            "`policy`: expected a policy with `reservations` beside `actual` and `count_if`, found {}, which has \
             none",
            Quoted(only.name())
        )),
        _ => Err("`policies`: expected a policy with `reservations` beside `actual` and `count_if`, found none"
            .to_owned()),
    }
}

/// Checks that each policy but the last can take back what it grants, because a later one may refuse the request.
fn come_back(policies: &[Arc<Policy>], is_metered: bool) -> Result<(), String> {
    let earlier = policies.split_last().map_or(&[][..], |(_, earlier)| earlier);
    let reserves = |policy: &Policy| is_metered && policy.reservations().is_some();
    let keeps = |policy: &&Arc<Policy>| rules(policy).any(Limits::have_payers) && !reserves(policy);
    match earlier.iter().find(keeps) {
        None => Ok(()),
        Some(policy) => Err(format!(
            "`policies`: expected {} last, or `reservations` of it and `actual` or `count_if` of the route, because \
             units that come back do not say which `payer` they belong to; found it before another policy",
            Quoted(policy.name())
        )),
    }
}

/// Checks that the policy, one of so many, can grant requests of this cost.
fn fits(policy: &Policy, count: usize, field: &str, cost: Option<u64>) -> Result<(), String> {
    let most = granted_at_once(policy);
    let Some(cost) = cost.filter(|cost| *cost > most) else { return Ok(()) };
    let which = match count {
        1 => "the policy".to_owned(),
        _ => Quoted(policy.name()).to_string(),
    };
    Err(format!(
        "`{field}`: expected at most {most}, the most that {which} grants at once; found {cost}"
    ))
}

/// The most that every rule of the policy grants at once.
fn granted_at_once(policy: &Policy) -> u64 {
    let all = rules(policy).map(Limits::capacity);
    all.min().unwrap_or_else(|| never(0)) // never: a policy has limits of its own
}

fn rules(policy: &Policy) -> impl Iterator<Item = &Limits> {
    let own = policy.overrides().iter().map(|(_, own)| own);
    iter::once(policy.limits()).chain(own)
}
