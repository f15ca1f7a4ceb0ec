//! One policy: the limits on keys, and how they are counted.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_core::shed::utilization::Class;
use tidegate_core::{Micros, Timestamp, never};

use super::error::PolicyError;
use super::nodes;
use super::reservations::Reservations;
use super::source::{JoinedSources, KeySource};
use crate::decide::{Limits, OnChange, PersistAhead};
use crate::fnv::fnv1a;
use crate::key::{Depth, Pattern};
use crate::name::Name;

/// A validated policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) limits: Limits,
    /// Sorted by the specificity of their patterns, the most specific first.
    pub(super) overrides: Vec<(Pattern, Limits)>,
    pub(super) deny: Vec<Pattern>,
    pub(super) allow: Vec<Pattern>,
    pub(super) ipv6_prefix: u8,
    pub(super) shadow: bool,
    /// The shortest part of a key that any limit counts by.
    pub(super) partition: Depth,
    /// From the least to the most important, which is never shed.
    pub(super) classes: Vec<String>,
    pub(super) key: Vec<JoinedSources>,
    pub(super) cost: Cost,
    pub(super) on_error: OnError,
    pub(super) least_nodes: Option<u64>,
    pub(super) on_change: OnChange,
    pub(super) lease_retry_after: Micros,
    pub(super) placement: Placement,
    pub(super) nodes: nodes::Nodes,
    pub(super) shares_calls: bool,
    pub(super) persist_ahead: Option<PersistAhead>,
    pub(super) reservations: Option<Reservations>,
    pub(super) idempotency: Option<Micros>,
    pub(super) soft: bool,
    pub(super) timed: Option<Timed>,
}

/// What a policy knows of its timed overrides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timed {
    /// The policy without them.
    pub(super) former: Arc<Policy>,
    /// The place of each among the overrides, and when it ends.
    pub(super) ends: Vec<(usize, Timestamp)>,
}

/// The cost of a request that names no cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Every request costs this much.
    Fixed(u64),
    /// A header of the request names the cost.
    Header {
        /// The name of the header in lower case.
        name: String,
        /// The cost of a request without this header.
        default: u64,
    },
}

impl Cost {
    /// The cost that the policy itself states: of a request without the header.
    #[must_use]
    pub const fn stated(&self) -> u64 {
        match *self {
            Self::Fixed(cost) | Self::Header { default: cost, .. } => cost,
        }
    }
}

/// The answer to a request when the store cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The request passes.
    Open,
    /// The request is refused.
    #[default]
    Closed,
    /// Each node decides by its share of the limits. A node that cannot, refuses.
    Local,
}

/// The assignment of keys to Durable Objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Each partition has its own object.
    #[default]
    Key,
    /// A hash of the partition selects one of this many objects.
    Shard(u32),
}

impl Policy {
    /// This policy with other limits on every key, in place of its own limits and its overrides. Lists, shadow
    /// and the rest stay. `text` is a policy that has only `limits`. Each of them counts apart.
    ///
    /// # Errors
    /// Fails with [`PolicyError`], which names the place in the text.
    pub(crate) fn with_limits(&self, text: &str) -> Result<Self, PolicyError> {
        let own = Self::parse(&self.name, text)?;
        if own.limits.have_payers() {
            let message = "`payer`: expected no limit of a call that pays, found one; write it into the policy";
            return Err(PolicyError::at_start(message.into()));
        }
        let limits = own.limits.counting_apart(&self.name, false);
        Ok(self.with_limits_of(&Self { limits, ..own }))
    }

    /// This policy with the limits of another one on every key.
    pub(crate) fn with_limits_of(&self, other: &Self) -> Self {
        let (limits, partition) = (other.limits.clone(), other.partition);
        let (reservations, soft) = (other.reservations, other.soft);
        Self { limits, partition, overrides: Vec::new(), reservations, soft, ..self.clone() }
    }

    /// The same policy, of which each limit counts apart: [`Limits::counting_apart`].
    pub(crate) fn counting_apart(&self) -> Self {
        let apart =
            |limits: &Limits| limits.counting_apart(&self.name, self.on_change.keeps_states());
        let overrides = self.overrides.iter().map(|(pattern, own)| (pattern.clone(), apart(own)));
        Self { limits: apart(&self.limits), overrides: overrides.collect(), ..self.clone() }
    }

    pub(super) fn named(mut self, name: Name) -> Self {
        self.name = name.into();
        self.limits.name_the_only_one(&self.name);
        for (_, limits) in &mut self.overrides {
            limits.name_the_only_one(&self.name);
        }
        self
    }

    /// The name of the policy.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The description of the policy.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// The limits on every key without an override.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The overrides: other limits for some keys, the most specific pattern first.
    #[must_use]
    pub fn overrides(&self) -> &[(Pattern, Limits)] {
        &self.overrides
    }

    /// The list `deny`: keys that never pass.
    #[must_use]
    pub fn denied(&self) -> &[Pattern] {
        &self.deny
    }

    /// The list `allow`: keys that always pass, unless they are also on the list `deny`.
    #[must_use]
    pub fn allowed(&self) -> &[Pattern] {
        &self.allow
    }

    /// How many bits of an IPv6 address a key counts by.
    #[must_use]
    pub const fn ipv6_prefix(&self) -> u8 {
        self.ipv6_prefix
    }

    /// The names of the classes of requests, the least important first.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The class of this name; `None` if the policy has no such class. The last class is never shed.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<Class> {
        let place = self.classes.iter().position(|class| class == name)?;
        if place.saturating_add(1) == self.classes.len() {
            return Some(Class::CRITICAL);
        }
        u16::try_from(place).ok().map(Class)
    }

    /// Whether the policy reports its refusals but lets every request pass.
    #[must_use]
    pub const fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Whether some limit is in shadow beside others, or warns.
    #[must_use]
    #[inline]
    pub const fn is_soft(&self) -> bool {
        self.soft
    }

    /// Whether some limit counts several keys together.
    #[must_use]
    pub fn shares_states(&self) -> bool {
        self.partition != Depth::Whole
    }

    /// The partition of a canonical key: the shortest part of the key that any limit counts by. A store keeps all
    /// states that a decision on the key needs under its partition.
    #[must_use]
    #[inline]
    pub fn partition<'k>(&self, key: &'k str) -> &'k str {
        self.partition.of(key)
    }

    /// The sources in which a gateway looks for the key. The first source that the request has is used.
    #[must_use]
    pub fn key_sources(&self) -> &[JoinedSources] {
        &self.key
    }

    pub(super) fn reads(&self, is: impl Fn(&KeySource) -> bool) -> bool {
        self.key.iter().flat_map(JoinedSources::sources).any(is)
    }

    pub(super) fn reads_token(&self) -> bool {
        self.reads(|source| matches!(source, KeySource::Jwt(_) | KeySource::UnverifiedJwt(_)))
    }

    /// The cost of a request that names no cost.
    #[must_use]
    pub const fn cost(&self) -> &Cost {
        &self.cost
    }

    /// The answer to a request when the store cannot be reached.
    #[must_use]
    pub const fn on_error(&self) -> OnError {
        self.on_error
    }

    /// The effect of an edit of the limits on stored states.
    #[must_use]
    pub const fn on_change(&self) -> OnChange {
        self.on_change
    }

    /// After how long a caller that a limit on leases refuses is told to try again, at the latest. It is a hint: a lease that
    /// is released earlier than it expires makes room for another.
    #[must_use]
    pub const fn lease_retry_after(&self) -> Micros {
        self.lease_retry_after
    }

    /// What the policy says of reservations; `None` if it takes none.
    #[must_use]
    pub const fn reservations(&self) -> Option<&Reservations> {
        self.reservations.as_ref()
    }

    /// For how long the answer to a request with an idempotency key is stored; `None` if the policy takes no such keys.
    #[must_use]
    pub const fn idempotency(&self) -> Option<Micros> {
        self.idempotency
    }

    /// What becomes of reservations, in words.
    ///
    /// ```
    /// use tidegate_gate::Policy;
    /// let policy = Policy::parse("tokens", r#"
    ///     limits = [{ algorithm = "token_bucket", capacity = 60_000, rate = "60000/m" }]
    ///     reservations = { most = 50, time_to_live = "2m" }
    /// "#).unwrap();
    /// let words = policy.describe_reservations().unwrap();
    /// assert!(words.starts_with("each limit has room for 50 reservations"));
    /// ```
    #[must_use]
    pub fn describe_reservations(&self) -> Option<String> {
        self.reservations.as_ref().map(Reservations::describe)
    }

    /// The assignment of keys to Durable Objects.
    #[must_use]
    pub const fn placement(&self) -> Placement {
        self.placement
    }

    /// The name of the Durable Object of a canonical key. No two policies share an object, because names of
    /// policies contain neither `:` nor `#`.
    pub(crate) fn object_name(&self, key: &str) -> String {
        let (name, partition) = (&self.name, self.partition(key));
        match self.placement {
            Placement::Key => alloc::format!("{name}:{partition}"),
            Placement::Shard(shards) => {
                let shard =
                    fnv1a(partition.bytes()).checked_rem(shards.into()).unwrap_or_else(|| never(0));
                alloc::format!("{name}#{shard}")
            }
        }
    }
}
