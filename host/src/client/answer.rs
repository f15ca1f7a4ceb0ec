//! The answers of the API, as types.

use std::time::Duration;

use serde::Deserialize;
use tidegate_gate::Micros;

/// What is answered to a call. Fields that the call or the policy does not have are `None`, `false` or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Answer {
    /// The name of the policy.
    pub policy: String,
    /// Whether the request may pass.
    pub allowed: bool,
    /// Whether the key is on the policy's list `deny`, so that no wait helps.
    #[serde(default)]
    pub denied: bool,
    /// Why the store or the server could not decide, if so: `on_error` did. Then nothing was counted, as far as is known.
    pub degraded: Option<String>,
    /// The most that could ever be taken at once.
    #[serde(default)]
    pub limit: u64,
    /// What could still be taken now.
    #[serde(default)]
    pub remaining: u64,
    /// µs until the same request is granted; 0 after a grant.
    #[serde(default)]
    pub retry_after_us: u64,
    /// µs until the key's state equals that of a key never seen.
    #[serde(default)]
    pub reset_after_us: u64,
    /// The time of the decision, in µs since 1970.
    #[serde(default)]
    pub at_us: u64,
    /// Under a policy or limit in shadow: what `allowed` would be without shadow.
    pub would_allow: Option<bool>,
    /// Whether a limit is used as far as its `warn_at`.
    #[serde(default)]
    pub warned: bool,
    /// The name of the lease.
    pub lease: Option<String>,
    /// Whether the lease that was renewed or released was live.
    pub live: Option<bool>,
    /// The id of the reservation.
    pub id: Option<String>,
    /// The units that the reservation holds.
    pub reserved: Option<u64>,
    /// When the reservation ends unless it is committed, in µs since 1970.
    pub expires_at_us: Option<u64>,
    /// The units that count for the reservation since its first commit.
    pub charged: Option<u64>,
    /// Whether the reservation had ended before its first commit.
    #[serde(default)]
    pub late: bool,
    /// What each limit says.
    #[serde(default)]
    pub limits: Vec<LimitAnswer>,
}

/// What one limit says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are those of an `Answer`")]
pub struct LimitAnswer {
    pub name: String,
    pub allowed: bool,
    pub limit: u64,
    pub remaining: u64,
    pub retry_after_us: u64,
    pub reset_after_us: u64,
}

impl Answer {
    /// How long to wait until the same request is granted, if no other comes. `None` after a grant, and if no wait helps or
    /// nobody knows.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let is_known = !self.allowed && !self.denied && self.degraded.is_none();
        let wait = Some(self.retry_after_us).filter(|us| is_known && *us < Micros::MAX.0);
        wait.map(Duration::from_micros)
    }

    /// The answer of `on_error`.
    pub(super) fn degraded(policy: &str, allowed: bool, why: String) -> Self {
        Self { policy: policy.to_owned(), allowed, degraded: Some(why), ..Self::default() }
    }
}
