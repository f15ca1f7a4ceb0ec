//! What the nodes of a policy may do without asking for each request.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::lease::budget;
use tidegate_core::shed::suppression::{PART, REPORT_EVERY};
use tidegate_core::{Limiter, Micros};

use super::policy::Policy;
use crate::decide::{Limits, MAX_LIMITS};
use crate::fnv::fnv1a;
use crate::key::Depth;
use crate::limit::build::text;
use crate::limit::span;
use crate::limit::{DEFAULT_MAX_HOLDERS, Kind, Limit, NamedLimit};
use crate::units::Span;
use tidegate_form::Bounded;
use tidegate_form::form;

/// The fields of a policy that allow nodes something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Nodes {
    remember: Option<Micros>,
    /// A `budget`, which every rule of the policy has.
    local: Option<budget::Config>,
    /// Nodes are reporters of the one `suppression` that every rule of the policy has.
    reports: bool,
    /// Whether checks that a node has at the same time share a call; `None` if the policy does not say.
    share_calls: Option<bool>,
}

form! {
    pub(super) struct LocalForm {
        most: Bounded<1>,
        time: Span,
        max_holders: Option<Bounded<1>> = None,
    }
}

impl Policy {
    /// How long a node may remember a refusal after it has sent the question; `None` if it must ask for every
    /// request.
    #[must_use]
    #[inline]
    pub const fn remember(&self) -> Option<Micros> {
        self.nodes.remember
    }

    /// The budget that a node may take for each key; `None` if nodes hold no units.
    #[must_use]
    #[inline]
    pub const fn local(&self) -> Option<&budget::Config> {
        self.nodes.local.as_ref()
    }

    /// Whether nodes decide by the factor that they heard last, and report the load that they were offered. Every rule
    /// of the policy then has one limit, a `suppression`.
    #[must_use]
    #[inline]
    pub const fn reports(&self) -> bool {
        self.nodes.reports
    }

    /// Whether the checks that an isolate has at the same time for one Durable Object share a call: while one call is
    /// under way, all others wait for the next one. A policy that says nothing shares them, unless it has a limit on leases
    /// or [reports](Self::reports).
    #[must_use]
    #[inline]
    pub const fn shares_calls(&self) -> bool {
        self.shares_calls
    }

    /// Whether a node may answer some requests without asking.
    #[must_use]
    #[inline]
    pub const fn lets_nodes_answer(&self) -> bool {
        self.nodes.remember.is_some() || self.nodes.local.is_some() || self.nodes.reports
    }

    /// What nodes may do without asking, and what that costs: a line of words for each such option.
    ///
    /// ```
    /// use tidegate_gate::Policy;
    /// let policy = Policy::parse("api", r#"
    ///     limits = [{ algorithm = "token_bucket", capacity = 500, rate = "100/s" }]
    ///     remember = "2s"
    /// "#).unwrap();
    /// let words = policy.describe_nodes();
    /// assert!(words[0].starts_with("a node remembers a refusal for up to 2 s"));
    /// ```
    #[must_use]
    pub fn describe_nodes(&self) -> Vec<String> {
        let remember = self.nodes.remember.map(|time| {
            let time = span(time);
            format!(
                "a node remembers a refusal for up to {time}; after a refund, a reset, an edit or the end of \
                 a block, other nodes may refuse a key for up to {time} longer"
            )
        });
        let local = self.nodes.local.map(|budget| {
            let (most, time) = (budget.most(), span(budget.period()));
            format!(
                "a node that is asked often takes up to {most} units of a key in advance and spends them \
                 within {time}; in any span all nodes together grant at most what the limits grant in the \
                 span and {time}; a block or an edit stops other nodes after at most {time}"
            )
        });
        let reports = self.nodes.reports.then(|| self.limits().iter().next()).flatten();
        let reports = reports.and_then(|named| match named.limit {
            Limit::Suppression(master) => Some(format!(
                "a node decides by the factor that it heard last, and reports about every {} what it was \
                 offered; a key that stays within its rate in every part of {} is never refused; until the \
                 reports of a higher load have arrived, each node by itself lets at most {} units of a key \
                 pass in a part; a block or a reset reaches other nodes with the answer to their next report",
                span(REPORT_EVERY),
                span(PART),
                master.units_per_part()
            )),
            _ => None,
        });
        let apart = (self.nodes.share_calls == Some(false))
            .then(|| "in a Worker, each check is a call of its own to the object".to_owned());
        remember.into_iter().chain(local).chain(reports).chain(apart).collect()
    }
}

impl Nodes {
    pub(super) fn new(
        remember: Option<Span>,
        local: Option<LocalForm>,
        reports: bool,
        share_calls: Option<bool>,
    ) -> Result<Self, String> {
        let local = local.map(|form| {
            let holders = form.max_holders.map_or(DEFAULT_MAX_HOLDERS, Bounded::get);
            budget::Config::new(form.most.get(), form.time.0, holders).map_err(text)
        });
        let local = local.transpose().map_err(|error| format!("`local`: {error}"))?;
        let remember = remember.map(|span| span.0);
        if reports && share_calls == Some(true) {
            return Err("`share_calls`: expected no `reports`, because a node then makes few calls; found both"
                .to_owned());
        }
        Ok(Self { remember, local, reports, share_calls })
    }

    /// Whether checks share calls under these rules.
    pub(super) fn shares_calls<'l>(&self, mut rules: impl Iterator<Item = &'l Limits>) -> bool {
        let has_leases = |rule: &Limits| rule.iter().any(|named| named.limit.kind() == Kind::Lease);
        self.share_calls.unwrap_or_else(|| !self.reports && !rules.any(has_leases))
    }

    /// Checks that nodes may do this under limits, and adds the budget to them.
    pub(super) fn add_to(&self, limits: &mut Vec<NamedLimit>) -> Result<(), String> {
        if self.remember.is_some()
            && let Some(counts) = limits.iter().find(|limit| limit.limit.remembers_refusals())
        {
            return Err(format!(
                "`remember`: expected only limits that record no refusals, because a node does not report \
                 the refusals that it remembers; found `{}`",
                counts.limit.algorithm()
            ));
        }
        if self.reports {
            only_suppression(limits)?;
        }
        if self.share_calls == Some(true)
            && let Some(lease) = limits.iter().find(|limit| limit.limit.kind() == Kind::Lease)
        {
            return Err(format!(
                "`share_calls`: expected only limits without leases, because no release should wait; found `{}`",
                lease.limit.algorithm()
            ));
        }
        let Some(local) = self.local else { return Ok(()) };
        for NamedLimit { limit, .. } in &*limits {
            if limit.kind() != Kind::Rate {
                return Err(format!(
                    "`local`: expected only limits on units over time, because a node asks no other limit \
                     when it spends units; found `{}`",
                    limit.algorithm()
                ));
            }
            if let Limit::SlidingLog(log) = limit
                && log.min_gap() > Micros::ZERO
            {
                return Err(format!(
                    "`local`: expected no `min_gap`, because nodes do not know when other nodes spend \
                     units; found {}",
                    Span(log.min_gap())
                ));
            }
        }
        if limits.len() >= MAX_LIMITS {
            let (most, found) = (MAX_LIMITS.saturating_sub(1), limits.len());
            return Err(format!(
                "`local`: expected at most {most} limits beside its budget, found {found}"
            ));
        }
        if limits.iter().any(|limit| limit.name == LOCAL) {
            return Err(format!(
                "`local`: expected no other limit of the name of its budget, found one named `{LOCAL}`"
            ));
        }
        let (name, tag) = (LOCAL.to_owned(), fnv1a(LOCAL.bytes()));
        let (depth, limit) = (Depth::Whole, Limit::Budget(local));
        limits.push(NamedLimit { name, tag, ..NamedLimit::unnamed(limit, depth) });
        Ok(())
    }
}

/// Checks that nodes can decide under these limits by a factor alone.
fn only_suppression(limits: &[NamedLimit]) -> Result<(), String> {
    let expected = "`reports`: expected one limit, a `suppression`, because a node decides by its factor alone";
    match limits {
        [NamedLimit { limit: Limit::Suppression(_), .. }] => Ok(()),
        [other] => Err(format!("{expected}; found `{}`", other.limit.algorithm())),
        _ => Err(format!("{expected}; found {} limits", limits.len())),
    }
}

/// The name of the budget.
const LOCAL: &str = "local";
