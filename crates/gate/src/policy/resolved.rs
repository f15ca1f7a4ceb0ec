//! A request's policy, limits and canonical key, found once.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;

use crate::decide::Limits;
use crate::key::{InvalidKey, lease_id, valid_canonical_key};
use crate::limit::{Kind, Limit};
use crate::policy::{Policy, Rule, RuleId};
use compact_str::CompactString;
use tidegate_core::lease::Id;
use tidegate_core::{Micros, Timestamp};

/// A request's policy, limits and canonical key.
///
/// A `Resolved` holds its policy, so a policy file that is replaced meanwhile changes nothing about this
/// request.
///
/// ```
/// use std::sync::Arc;
/// use tidegate_gate::{Policy, Resolved, Rule};
///
/// let policy = Arc::new(Policy::parse("api", r#"
///     limits = [{ algorithm = "fixed_window", limit = 5, period = "1m", depth = 1 }]
///     deny = ["ip:192.0.2.0/24"]
/// "#).unwrap());
///
/// let resolved = Resolved::new(&policy, "acme/alice").unwrap();
/// assert_eq!((resolved.key(), resolved.partition()), ("acme/alice", "acme"));
/// assert_eq!(resolved.limits().unwrap().capacity(), 5);
///
/// let denied = Resolved::new(&policy, "ip:192.0.2.7").unwrap();
/// assert!(denied.is_denied());
/// assert!(matches!(denied.rule(), Rule::Listed(decision) if decision.retry_after_secs().is_none()));
/// assert!(Resolved::new(&policy, "").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    policy: Arc<Policy>,
    found: RuleId,
    key: CompactString,
    written: CompactString,
    /// Boxed, because few requests have one.
    idempotency: Option<Box<Idempotency>>,
}

/// By what a repeat of a request is known (HTTP: `Idempotency-Key`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The id under which the answer is stored.
    pub id: Id,
    /// A hash of what the request asks. Another request with the same id is refused.
    pub request: u64,
}

impl Resolved {
    /// Finds the rule of `policy` for `key`.
    ///
    /// # Errors
    /// Fails with [`InvalidKey`] if the key is empty or longer than [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES),
    /// or if it begins with `ip:` and does not continue with an address.
    pub fn new(policy: &Arc<Policy>, key: &str) -> Result<Self, InvalidKey> {
        let canonical = valid_canonical_key(key, policy.ipv6_prefix())?;
        let found = policy.find(key);
        let written = CompactString::new(key);
        let key = CompactString::new(canonical);
        Ok(Self { policy: Arc::clone(policy), found, key, written, idempotency: None })
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The same request, of which a repeat is known and gets the stored answer of the first one, as long as the policy
    /// [says](Policy::idempotency). Refusals and peeks are not stored.
    #[must_use]
    pub fn known_by(self, idempotency: Idempotency) -> Self {
        Self { idempotency: Some(Box::new(idempotency)), ..self }
    }

    /// The same request, of which a repeat is another request.
    #[must_use]
    pub fn without_idempotency(&self) -> Self {
        Self { idempotency: None, ..self.clone() }
    }

    /// By what a repeat of the request is known; `None` if a repeat is another request.
    #[must_use]
    pub fn idempotency(&self) -> Option<Idempotency> {
        self.idempotency.as_deref().copied()
    }

    /// By what a repeat of the request is known, and for how long, if its answer is stored.
    pub(crate) fn kept_for(&self) -> Option<(Idempotency, Micros)> {
        self.limits()?; // nothing is counted on a listed key
        Some((self.idempotency()?, self.policy.idempotency()?))
    }

    /// The canonical key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The key as the caller wrote it. Another node that resolves this key finds the same rule.
    #[must_use]
    pub fn written_key(&self) -> &str {
        &self.written
    }

    /// The partition: the shortest part of the key that any limit of the policy counts by. A store keeps all
    /// states that a decision on this key needs under its partition.
    #[must_use]
    pub fn partition(&self) -> &str {
        self.policy.partition(&self.key)
    }

    /// The name of the keys that one question of a node may be about: all keys of the partition, or of the Durable Object if
    /// the policy [shares calls](Policy::shares_calls).
    #[must_use]
    pub fn group(&self) -> Cow<'_, str> {
        match self.policy.shares_calls() {
            true => Cow::Owned(self.object_name()),
            false => Cow::Borrowed(self.partition()),
        }
    }

    /// The limits on the key; `None` if the key is listed.
    #[must_use]
    pub fn limits(&self) -> Option<&Limits> {
        self.policy.limits_found(self.found)
    }

    /// Whether a limit on the key is of this kind. A listed key has the policy's own limits here, because an operation on
    /// it must fit the policy too.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        self.fitting_limits().any(|limit| limit.kind() == kind)
    }

    /// The limits that an operation on the key must fit.
    pub(crate) fn fitting_limits(&self) -> impl Iterator<Item = &Limit> {
        self.limits().unwrap_or_else(|| self.policy.limits()).iter().map(|each| &each.limit)
    }

    /// Whether the key is on the list `deny`. No request on it passes, however long the caller waits.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.found == RuleId::Denied
    }

    /// When the rule ends, and the same request from then on; `None` for a rule without an end.
    pub(crate) fn end(&self) -> Option<(Timestamp, Self)> {
        let (until, former) = self.policy.end_of(self.found)?;
        Some((until, Self::new(former, &self.written).ok()?))
    }

    /// The time of a decision: a rule decides nothing at its end or later, so a request that came before and waited is decided just
    /// before the end.
    pub(crate) fn within_rule(&self, now: Timestamp) -> Timestamp {
        let end = self.policy.end_of(self.found);
        end.map_or(now, |(until, _)| now.min(Timestamp(until.0.saturating_sub(1))))
    }

    /// The rule with its limits; `None` if the key is listed.
    pub(crate) fn limited(&self) -> Option<(RuleId, &Limits)> {
        self.limits().map(|limits| (self.found, limits))
    }

    /// The bytes of memory that the key takes beside this, without the policy.
    pub(crate) fn bytes(&self) -> usize {
        [&self.key, &self.written]
            .into_iter()
            .filter(|text| text.is_heap_allocated())
            .map(|text| text.capacity())
            .fold(self.idempotency.as_deref().map_or(0, size_of_val), usize::saturating_add)
    }

    /// Whether both are the same key by the same revision of one policy, and the same request if its repeats are known.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.policy, &other.policy)
            && self.found == other.found
            && self.key == other.key
            && self.idempotency == other.idempotency
    }

    /// The limits on the canonical key, or the decision on a listed key, which is never counted.
    #[must_use]
    pub fn rule(&self) -> Rule<'_> {
        self.policy.rule_found(self.found, Cow::Borrowed(&self.key))
    }

    /// The number of the rule: see [`Policy::rule_number`].
    #[must_use]
    pub const fn rule_number(&self) -> Option<usize> {
        self.found.number()
    }

    /// The id under which the lease of this name is stored.
    #[must_use]
    pub fn lease_id(&self, name: &str) -> Id {
        lease_id(&self.key, name)
    }

    /// The name of the key's Durable Object.
    #[must_use]
    pub fn object_name(&self) -> String {
        self.policy.object_name(&self.key)
    }
}
