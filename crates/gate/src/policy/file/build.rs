//! Builds a policy from its form, and checks its fields against each other.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::iter;

use super::{Classes, Ipv6Prefix, LEASE_RETRY_AFTER, PolicyForm, Ranked, by_ip};
use crate::decide::{Limits, MAX_LIMITS, OnChange, PersistAhead, Record};
use crate::key::Depth;
use crate::limit;
use crate::limit::form::LimitEntry;
use crate::limit::{Kind, Limit, NamedLimit};
use crate::policy::nodes::Nodes;
use crate::policy::outage;
use crate::policy::payers;
use crate::policy::reservations::Reservations;
use crate::policy::source::once_each;
use crate::policy::{Cost, OnError, Placement, Policy};
use tidegate_core::never;
use tidegate_form::{Bounded, repeated};

impl Policy {
    pub(super) fn new(form: PolicyForm) -> Result<Self, String> {
        if form.key.is_empty() {
            return Err("`key`: expected at least one source such as \"ip\", found none".to_owned());
        }
        once_each(&form.key).map_err(|error| format!("`key`: {error}"))?;
        let nodes = Nodes::new(form.remember, form.local, form.reports, form.share_calls)?;
        let ahead = form.persist_ahead.as_ref();
        let least_nodes = form.nodes.map(Bounded::get);
        outage::check_nodes(form.on_error, least_nodes)?;
        let persist_ahead = ahead.and_then(PersistAhead::new);
        let reservations = form.reservations.as_ref().map(Reservations::new);
        let checked = |all| {
            let limits = limits(all, &nodes, reservations.as_ref(), &form.cost, &form.classes)?;
            if persist_ahead.is_some() {
                PersistAhead::check(&limits)?;
                payers::check_ahead(&limits)?;
            }
            if form.on_error == OnError::Local {
                outage::check(&limits)?;
            }
            Ok(limits)
        };
        let mut overrides = Vec::new();
        for (Ranked { pattern, .. }, own) in form.overrides.0 {
            let own = LimitEntry::overridden(&form.limits, own)
                .and_then(checked)
                .map_err(|error| format!("`overrides`: {pattern}: {error}"))?;
            let own = own.of_rule(&pattern.text(), form.on_change);
            overrides.push((pattern, own));
        }
        let all = form.limits.into_iter().map(|entry| entry.limit).collect();
        let limits = checked(all)?.of_rule("", form.on_change);
        let sets = || iter::once(&limits).chain(overrides.iter().map(|(_, own)| own));
        let shares_calls = nodes.shares_calls(sets());
        let soft = sets().any(Limits::are_soft);
        let partition = sets().flat_map(Limits::records).map(Record::depth).min();
        let partition = partition.unwrap_or_else(|| never(Depth::Parts(0)));
        Ok(Self {
            name: String::new(), // `named` sets it
            description: form.description,
            limits,
            overrides,
            deny: form.deny,
            allow: form.allow,
            ipv6_prefix: form.ipv6_prefix.0,
            shadow: form.shadow,
            partition,
            classes: form.classes.0,
            key: form.key,
            cost: form.cost,
            on_error: form.on_error,
            least_nodes,
            on_change: form.on_change,
            lease_retry_after: form.lease_retry_after.0,
            placement: form.placement,
            nodes,
            shares_calls,
            persist_ahead,
            reservations,
            idempotency: form.idempotency.map(|span| span.0),
            soft,
            timed: None,
        })
    }

    /// A policy of limits in numbers: for each limit the count of numbers that follow, and then its
    /// [`parameters`](Limit::parameters).
    ///
    /// # Errors
    /// The message says which number no limit has, or why the limits make no policy.
    pub fn of_parameters(words: &[u64]) -> Result<Self, String> {
        Self::of_named(limit::read(words).map_err(|error| error.to_string())?)
    }

    /// A policy of these limits alone, for a runtime that reads no policy file.
    ///
    /// # Errors
    /// The message says why the limits make no policy.
    pub fn of_limits(limits: Vec<Limit>) -> Result<Self, String> {
        let named = |limit| NamedLimit::unnamed(limit, Depth::Whole);
        Self::of_named(limits.into_iter().map(named).collect())
    }

    /// The same for limits of which some are in shadow, or pay.
    fn of_named(limits: Vec<NamedLimit>) -> Result<Self, String> {
        let (depth, nodes) = (Depth::Whole, Nodes::default());
        Ok(Self {
            name: String::new(),
            description: None,
            limits: checked(limits, &nodes, None, &Cost::default())?.of_rule("", OnChange::Reset),
            overrides: Vec::new(),
            deny: Vec::new(),
            allow: Vec::new(),
            ipv6_prefix: Ipv6Prefix::default().0,
            shadow: false,
            partition: depth,
            classes: Classes::default().0,
            key: by_ip(),
            cost: Cost::default(),
            on_error: OnError::default(),
            least_nodes: None,
            on_change: OnChange::Reset,
            lease_retry_after: LEASE_RETRY_AFTER,
            placement: Placement::default(),
            nodes,
            shares_calls: false, // such a policy is for memory alone
            persist_ahead: None,
            reservations: None,
            idempotency: None,
            soft: false, // nobody reads more than its decisions
            timed: None,
        })
    }
}

fn limits(
    mut limits: Vec<NamedLimit>,
    nodes: &Nodes,
    reservations: Option<&Reservations>,
    cost: &Cost,
    classes: &Classes,
) -> Result<Limits, String> {
    let shed = classes.0.len().saturating_sub(1).try_into().unwrap_or_else(|_| never(u16::MAX)); // at most 16
    for limit in &mut limits {
        limit.limit.set_classes(shed).map_err(|error| error.to_string())?;
    }
    checked(limits, nodes, reservations, cost)
}

fn checked(
    mut limits: Vec<NamedLimit>,
    nodes: &Nodes,
    reservations: Option<&Reservations>,
    cost: &Cost,
) -> Result<Limits, String> {
    if limits.is_empty() || limits.len() > MAX_LIMITS {
        return Err(format!("`limits`: expected 1 to {MAX_LIMITS} limits, found {}", limits.len()));
    }
    if limits.len() > 1 {
        name_the_unnamed(&mut limits)?;
    }
    nodes.add_to(&mut limits)?;
    if let Some(reservations) = reservations {
        reservations.add_to(&mut limits)?;
    }
    payers::check(&mut limits)?;
    let limits = Limits::new(limits);
    shadows(&limits)?;
    let enforced = |limit: &&NamedLimit| !limit.shadow;
    let budgets = limits.iter().filter(|limit| limit.limit.kind() == Kind::Budget).count();
    let rates = limits.iter().filter(|limit| limit.limit.kind() == Kind::Rate);
    let rates = rates.filter(enforced).count();
    if budgets > 1 || (budgets == 1 && rates == 0) {
        return Err(format!(
            "`limits`: expected at most one `budget`, beside at least one limit on units over time, out \
             of which it is granted; found {budgets} `budget` beside {rates} such limits"
        ));
    }
    if limits.iter().filter(enforced).all(|limit| limit.limit.punishes_refusals())
        && let Some(first) = limits.iter().find(enforced)
    {
        let algorithm = first.limit.algorithm();
        return Err(format!(
            "`limits`: expected a limit whose refusals `{algorithm}` counts, found no limit but \
             `{algorithm}`"
        ));
    }
    let (Cost::Fixed(cost) | Cost::Header { default: cost, .. }) = *cost;
    let most = limits.capacity();
    if cost > most {
        return Err(format!(
            "`cost`: expected at most {most}, the most that these limits grant at once; found {cost}"
        ));
    }
    Ok(limits)
}

/// Checks that limits in shadow stand beside one that refuses, and that callers alone are told what they decide.
fn shadows(limits: &Limits) -> Result<(), String> {
    if limits.shadows() == 0 {
        return Ok(());
    }
    if limits.iter().all(|limit| limit.shadow) {
        return Err("`shadow`: expected a limit beside it that refuses, found only limits in shadow; the policy has a \
                    `shadow` of its own"
            .to_owned());
    }
    let is_apart = |limit: &&NamedLimit| match limit.limit {
        Limit::Suppression(_) => limit.shadow,
        _ => limit.limit.kind() == Kind::Budget,
    };
    limits.iter().find(is_apart).map_or(Ok(()), |limit| {
        Err(format!(
            "`shadow`: expected no budget beside it and no `suppression`, because a node that spends units or goes by a \
             factor asks no limit; found `{}`",
            limit.name
        ))
    })
}

/// Names each limit without a name after its place, from 1: `limit-1`.
fn name_the_unnamed(limits: &mut [NamedLimit]) -> Result<(), String> {
    for (place, limit) in (1_usize..).zip(limits.iter_mut()) {
        if limit.name.is_empty() {
            limit.name = format!("limit-{place}");
        }
    }
    let names: Vec<&str> = limits.iter().map(|limit| limit.name.as_str()).collect();
    match repeated(&names) {
        Some(name) => Err(format!("`limits`: expected each name once, found {name:?} twice")),
        None => Ok(()),
    }
}
