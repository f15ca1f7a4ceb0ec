//! What a policy says that makes little sense.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::iter;

use tidegate_core::Limiter;

use super::source::{JoinedSources, KeySource};
use super::{Policies, Policy, RoutePolicy};
use crate::decide::Limits;
use crate::key::Depth;
use crate::limit::span;
use crate::limit::{Kind, NamedLimit};

impl Policy {
    /// What makes little sense: keys that a client can invent, and what nodes may do. A line of words for each such field of
    /// each rule. The policy works as it says.
    ///
    /// ```
    /// use tidegate_gate::Policy;
    /// let policy = Policy::parse("api", r#"
    ///     limits = [{ algorithm = "token_bucket", capacity = 500, rate = "100/s" }]
    ///     local = { most = 1_000, time = "1s" }
    /// "#).unwrap();
    /// assert!(policy.warnings()[0].starts_with("`local.most`: expected at most 500"));
    /// ```
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings_with(self.invented())
    }

    fn warnings_with(&self, invented: Option<String>) -> Vec<String> {
        let overrides = self.overrides().iter();
        let overrides =
            overrides.map(|(pattern, limits)| (format!("`overrides`: {pattern}: "), limits));
        let rules = iter::once((String::new(), self.limits())).chain(overrides);
        let of_rule = |(place, limits): (String, &Limits)| {
            let warnings = [self.most(limits), self.time(limits)].into_iter().flatten();
            warnings.map(|warning| format!("{place}{warning}")).collect::<Vec<_>>()
        };
        let of_policy = [invented, self.remembered()].into_iter().flatten();
        of_policy.chain(rules.flat_map(of_rule)).collect()
    }

    /// The limits that bound what a key takes.
    fn bounds(&self) -> Vec<&NamedLimit> {
        let counts = |named: &&NamedLimit| matches!(named.limit.kind(), Kind::Rate | Kind::Lease);
        self.limits().iter().filter(counts).collect()
    }

    /// Whether each client is limited, whatever it sends.
    fn limits_each_client(&self) -> bool {
        !self.is_shadow() && !self.bounds().is_empty() && self.invented().is_none()
    }

    /// The sources of a key by which nobody is limited who sends another value with each request.
    fn invented(&self) -> Option<String> {
        let limits = self.bounds();
        let is_unlimited = |sources: &&JoinedSources| {
            !limits.is_empty() && limits.iter().all(|limit| is_invented(sources, limit.depth))
        };
        let found = self.key_sources().iter().find(is_unlimited)?;
        Some(format!(
            "`key`: expected a limit that counts by what no client can invent, such as \"ip\" or \"jwt:sub\"; found \
             only limits by {found}. A client that sends another value with each request is never refused, unless a \
             server in front checks the value. Let a policy by \"ip\" decide beside it, in `policies` of the route; or join \
             \"ip\" before it, and add a limit with `depth = 1`, which counts by address"
        ))
    }

    fn most(&self, limits: &Limits) -> Option<String> {
        let (most, granted) = (self.local()?.most(), limits.capacity());
        (most > granted).then(|| {
            format!(
                "`local.most`: expected at most {granted}, which is all that the limits grant at once; found \
                 {most}. A node that takes all of it leaves nothing to the other nodes"
            )
        })
    }

    fn time(&self, limits: &Limits) -> Option<String> {
        let time = self.local()?.period();
        let shortest = rates(limits).min_by_key(|named| named.limit.period())?;
        let period = shortest.limit.period();
        (time > period).then(|| {
            let (time, period) = (span(time), span(period));
            format!(
                "`local.time`: expected at most {period}, the period of `{}`; found {time}. In one period all \
                 nodes together may grant what the limit grants in {period} and {time}",
                shortest.name
            )
        })
    }

    /// The longest period of all rules counts: the field is for all of them.
    fn remembered(&self) -> Option<String> {
        let remember = self.remember()?;
        let all = iter::once(self.limits()).chain(self.overrides().iter().map(|(_, own)| own));
        let longest = all.flat_map(rates).map(|named| named.limit.period()).max()?;
        (remember > longest).then(|| {
            let (remember, longest) = (span(remember), span(longest));
            format!(
                "`remember`: expected at most {longest}, the longest period of the limits; found {remember}. \
                 Units come back within a period, so a node remembers only debts and blocks for longer"
            )
        })
    }
}

impl Policies {
    /// The [warnings](Policy::warnings) about a policy of this file. A key that a client can invent is no reason for one if
    /// another policy limits the client on each route of this policy.
    #[must_use]
    pub fn warnings_about(&self, policy: &Policy) -> Vec<String> {
        policy.warnings_with(policy.invented().filter(|_| !self.limits_beside(policy)))
    }

    fn limits_beside(&self, policy: &Policy) -> bool {
        let names = |each: &RoutePolicy| each.policy().name() == policy.name();
        let mut routes = self
            .gateway()
            .routes()
            .iter()
            .filter(|route| route.policies().iter().any(names))
            .peekable();
        routes.peek().is_some()
            && routes
                .all(|route| route.policies().iter().any(|each| each.policy().limits_each_client()))
    }
}

/// Whether a client can invent the part of the key that counts.
fn is_invented(sources: &JoinedSources, depth: Depth) -> bool {
    let all = sources.sources();
    let counted = match depth {
        Depth::Whole => all,
        Depth::Parts(parts) => all.get(..parts.into()).unwrap_or(all),
    };
    counted.iter().any(|source| match source {
        KeySource::Header(_) | KeySource::Cookie(_) | KeySource::Query(_) => true,
        KeySource::UnverifiedJwt(_) => true,
        KeySource::Ip | KeySource::Country | KeySource::Jwt(_) => false,
    })
}

/// The limits on units over time.
fn rates(limits: &Limits) -> impl Iterator<Item = &NamedLimit> {
    limits.iter().filter(|named| named.limit.kind() == Kind::Rate)
}
