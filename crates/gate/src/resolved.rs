//! What holds for one request: its policy, its limits and its canonical key, found once.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::sync::Arc;

use compact_str::CompactString;
use tidegate_core::lease::Id;

use crate::key::{InvalidKey, canonical, check_key, lease_id};
use crate::limits::Limits;
use crate::policy::{Found, Policy, Rule};

/// What holds for one request: its policy, its limits and its canonical key.
///
/// The policy is kept as long as the request lasts, so a policy that is replaced meanwhile changes
/// nothing about this request.
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
/// assert_eq!((resolved.key(), resolved.home()), ("acme/alice", "acme"));
/// assert_eq!(resolved.limits().unwrap().most_at_once(), 5);
///
/// let denied = Resolved::new(&policy, "ip:192.0.2.7").unwrap();
/// assert!(matches!(denied.rule(), Rule::Listed(decision) if !decision.is_allowed()));
/// assert!(Resolved::new(&policy, "").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    policy: Arc<Policy>,
    found: Found,
    key: CompactString,
    written: CompactString,
}

impl Resolved {
    /// Finds what `policy` says about `key`.
    ///
    /// # Errors
    /// [`InvalidKey`] if the key has no bytes or more than [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES), or
    /// begins with `ip:` and continues with no address.
    pub fn new(policy: &Arc<Policy>, key: &str) -> Result<Self, InvalidKey> {
        check_key(key)?;
        let found = policy.find(key);
        let written = CompactString::new(key);
        let key = CompactString::new(canonical(key, policy.ipv6_prefix()));
        Ok(Self { policy: Arc::clone(policy), found, key, written })
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The canonical key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The key as the caller wrote it. Another node that resolves it finds the same.
    #[must_use]
    pub fn written_key(&self) -> &str {
        &self.written
    }

    /// The shortest part of the key that any limit of the policy counts by. All that a decision on this
    /// key needs is stored under it.
    #[must_use]
    pub fn home(&self) -> &str {
        self.policy.home(&self.key)
    }

    /// The limits on the key; `None` if the key is listed.
    #[must_use]
    pub fn limits(&self) -> Option<&Limits> {
        match self.rule() {
            Rule::Limited(limits, _) => Some(limits),
            Rule::Listed(_) => None,
        }
    }

    /// The limits on the canonical key, or the decision on a listed key, which is never counted.
    #[must_use]
    pub fn rule(&self) -> Rule<'_> {
        self.policy.rule_found(self.found, Cow::Borrowed(&self.key))
    }

    /// The stored id of the lease of that name.
    #[must_use]
    pub fn lease_id(&self, name: &str) -> Id {
        lease_id(&self.key, name)
    }

    /// The name of the Durable Object that the key belongs to.
    #[must_use]
    pub fn object_name(&self) -> String {
        self.policy.object_name(&self.key)
    }
}
