//! What the parts of a policy must be to each other, and the policy that they make.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::iter;

use tidegate_core::shed::utilization;

use super::{Classes, Ipv6Prefix, PolicyForm, by_ip};
use crate::key::Depth;
use crate::limit::{self, Kind, Limit};
use crate::limits::{Limits, MAX_LIMITS, NamedLimit, Part};
use crate::object::Object;
use crate::policy::limit::LimitEntry;
use crate::policy::{Cost, OnChange, OnError, Placement, Policy};

impl Policy {
    pub(super) fn new(form: PolicyForm) -> Result<Self, String> {
        if form.key.is_empty() {
            return Err(
                "`key`: found none, allowed is at least one of \"ip\", \"header:NAME\"".to_owned()
            );
        }
        for (place, source) in form.key.iter().enumerate() {
            if form.key.iter().take(place).any(|before| before == source) {
                return Err(format!("`key`: found {source} twice, allowed is each source once"));
            }
        }
        let mut overrides = Vec::new();
        for (pattern, Object(own)) in form.overrides {
            let own = LimitEntry::overridden(&form.limits, own)
                .and_then(|own| limits(own, &form.cost, &form.classes))
                .map_err(|error| format!("`overrides`: {pattern}: {error}"))?;
            let own = own.of_rule(&pattern.text(), form.on_change);
            overrides.push((pattern, own));
        }
        overrides.sort_by_key(|(pattern, _)| Reverse(pattern.specificity()));
        let all = form.limits.into_iter().map(|entry| entry.limit).collect();
        let limits = limits(all, &form.cost, &form.classes)?.of_rule("", form.on_change);
        let sets = iter::once(&limits).chain(overrides.iter().map(|(_, own)| own));
        let home = sets.flat_map(Limits::parts).map(Part::depth).min().unwrap_or(Depth::Whole);
        Ok(Self {
            name: String::new(), // the file's key, given by `named`
            description: form.description,
            limits,
            overrides,
            deny: form.deny,
            allow: form.allow,
            ipv6_prefix: form.ipv6_prefix.0,
            shadow: form.shadow,
            home,
            classes: form.classes.0,
            key: form.key,
            cost: form.cost,
            on_error: form.on_error,
            on_change: form.on_change,
            placement: form.placement,
        })
    }

    /// A policy of limits in numbers: of each how many follow, and its
    /// [`parameters`](Limit::parameters).
    ///
    /// # Errors
    /// What is wrong with them or their number.
    pub fn of_parameters(words: &[u64]) -> Result<Self, String> {
        Self::of_limits(limit::read(words).map_err(|error| error.to_string())?)
    }

    /// A policy of these limits alone, for a runtime that decides and reads no policy file.
    ///
    /// # Errors
    /// What is wrong with their number.
    pub fn of_limits(limits: Vec<Limit>) -> Result<Self, String> {
        let (name, depth) = (String::new(), Depth::Whole);
        let named = |limit| NamedLimit { name: name.clone(), depth, limit, tag: 0 };
        Ok(Self {
            name: name.clone(),
            description: None,
            limits: checked(limits.into_iter().map(named).collect(), &Cost::default())?
                .of_rule("", OnChange::default()),
            overrides: Vec::new(),
            deny: Vec::new(),
            allow: Vec::new(),
            ipv6_prefix: Ipv6Prefix::default().0,
            shadow: false,
            home: depth,
            classes: Classes::default().0,
            key: by_ip(),
            cost: Cost::default(),
            on_error: OnError::default(),
            on_change: OnChange::default(),
            placement: Placement::default(),
        })
    }
}

fn limits(mut limits: Vec<NamedLimit>, cost: &Cost, classes: &Classes) -> Result<Limits, String> {
    let shed = classes.0.len().saturating_sub(1).try_into().unwrap_or(u16::MAX); // few
    for limit in &mut limits {
        if let Limit::Utilization(config) = &mut limit.limit {
            *config = utilization::Config::new(config.thresholds(), config.timing(), shed)
                .map_err(|error| error.to_string())?;
        }
    }
    checked(limits, cost)
}

fn checked(mut limits: Vec<NamedLimit>, cost: &Cost) -> Result<Limits, String> {
    if limits.is_empty() || limits.len() > MAX_LIMITS {
        return Err(format!("`limits`: found {}, allowed are 1 to {MAX_LIMITS}", limits.len()));
    }
    if limits.len() > 1 {
        name_the_unnamed(&mut limits)?;
    }
    let limits = Limits::new(limits);
    let budgets = limits.iter().filter(|limit| limit.limit.kind() == Kind::Budget).count();
    let rates = limits.iter().filter(|limit| limit.limit.kind() == Kind::Rate).count();
    if budgets > 1 || (budgets == 1 && rates == 0) {
        return Err(format!(
            "`limits`: found {budgets} of `budget` beside {rates} of units over time, allowed is one \
             beside at least one, out of which it is granted"
        ));
    }
    if limits.iter().all(|limit| matches!(limit.limit, Limit::Penalty(_))) {
        return Err("`limits`: found nothing but `penalty`, which needs another limit whose \
                    refusals it counts"
            .to_owned());
    }
    let (Cost::Fixed(cost) | Cost::Header { default: cost, .. }) = *cost;
    let most = limits.most_at_once();
    if cost > most {
        return Err(format!(
            "`cost`: found {cost}, but these limits never grant more than {most} at once"
        ));
    }
    Ok(limits)
}

/// A limit without a name is called by its place, from 1: `limit-1`.
fn name_the_unnamed(limits: &mut [NamedLimit]) -> Result<(), String> {
    for (place, limit) in (1_usize..).zip(limits.iter_mut()) {
        if limit.name.is_empty() {
            limit.name = format!("limit-{place}");
        }
    }
    let mut names: Vec<&str> = limits.iter().map(|limit| limit.name.as_str()).collect();
    names.sort_unstable();
    match names.array_windows().find(|[one, next]| one == next) {
        Some([name, _]) => Err(format!("`limits`: two of them are named {name:?}")),
        None => Ok(()),
    }
}
