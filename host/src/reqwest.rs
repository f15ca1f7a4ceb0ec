//! Middleware for clients of [`reqwest`](https://docs.rs/reqwest), by `reqwest-middleware`: it keeps a client within a limit of your
//! own, and waits as long as the server says if that refuses nevertheless.
//!
//! ```no_run
//! use reqwest_middleware::ClientBuilder;
//! use tidegate::reqwest::RateLimit;
//! use tidegate::{Policies, Store};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let policies = Policies::parse(
//!     "policies.partner.limits = [{ algorithm = 'token_bucket', capacity = 10, rate = '5/s' }]",
//! )?;
//! let store = Store::memory(&policies, 1 << 20)?;
//! let limit = RateLimit::builder(store, &policies, "partner").build()?;
//! let client = ClientBuilder::new(reqwest::Client::new()).with(limit).build();
//! for page in 0..100 {
//!     client.get(format!("https://partner.example/items?page={page}")).send().await?; // 5 a second
//! }
//! # Ok(())
//! # }
//! ```

mod retry_after;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::reqwest::{Request, Response};
use async_trait::async_trait;
use http::Extensions;
use reqwest_middleware::{Error, Middleware, Next};
use tidegate_gate::{
    Ask, AskError, Bounded, CheckForm, Kind, Micros, OnError, Policies, Policy, Timestamp,
};
use tokio::time::sleep;

use crate::clock;
use crate::random::random;
use crate::store::{Store, StoreError};
use retry_after::retry_after;

/// Finds something of a request.
type Of<T> = Box<dyn Fn(&Request) -> T + Send + Sync>;

/// Middleware that keeps a client within a limit, and waits by `Retry-After`.
///
/// A request that the limit refuses waits until it passes. A response with status 429, or with status 503 to a request that
/// may be repeated, is not returned if it has a `Retry-After`: the request waits as long, and is then sent again.
pub struct RateLimit {
    policy: Arc<Policy>,
    store: Arc<Store>,
    key: Of<String>,
    cost: Of<Option<u64>>,
    longest: Duration,
    most_repeats: u32,
    clock: fn() -> Timestamp,
}

/// A [`RateLimit`] that is being made.
#[must_use = "only `build` makes the middleware"]
pub struct Builder {
    name: String,
    policy: Option<Arc<Policy>>,
    store: Arc<Store>,
    key: Of<String>,
    cost: Of<Option<u64>>,
    longest: Duration,
    most_repeats: u32,
    clock: fn() -> Timestamp,
}

/// Why the middleware cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The file has no policy of this name.
    #[error("expected the name of a policy of the file, found {0:?}")]
    NoPolicy(String),
    /// The policy limits what is held, and the middleware holds nothing.
    #[error("policy {0:?}: expected limits on units over time, found one on leases")]
    Leases(String),
}

/// Why a request was not sent. It is the cause in [`Error::Middleware`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotSent {
    /// The request would wait longer than it may.
    #[error("the limit would be kept in {wait:?}, and the request may wait {left:?} more")]
    TooLong {
        /// How long it would wait.
        wait: Duration,
        /// How long it may still wait.
        left: Duration,
    },
    /// The key is on `deny`, or no wait helps for another reason.
    #[error("the limit refuses the request for ever")]
    ForEver,
    /// The key is invalid, or the limits can never grant the cost.
    #[error("{0}")]
    Ask(AskError),
    /// The store did not decide, and `on_error` of the policy is not `"open"`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("policy", &self.policy.name()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("policy", &self.name).finish_non_exhaustive()
    }
}

impl RateLimit {
    /// Begins with a policy of a file.
    pub fn builder(store: impl Into<Arc<Store>>, policies: &Policies, policy: &str) -> Builder {
        Builder {
            name: policy.to_owned(),
            policy: policies.get(policy).cloned(),
            store: store.into(),
            key: Box::new(|request| request.url().host_str().unwrap_or("-").to_owned()),
            cost: Box::new(|_| None),
            longest: Duration::from_secs(60),
            most_repeats: 3,
            clock: clock::now,
        }
    }

    /// Waits until the limit grants the request. Takes the time from what the request may still wait.
    async fn wait_for_own(&self, request: &Request, left: &mut Duration) -> Result<(), NotSent> {
        let (key, cost) = ((self.key)(request), (self.cost)(request));
        let cost = Some(Bounded::clamped(cost.unwrap_or(self.policy.cost().stated())));
        loop {
            let form = CheckForm { cost, ..CheckForm::default() };
            let asked = Ask::Check(form).resolve(&self.policy, &key, &mut random);
            let asked = asked.map_err(NotSent::Ask)?;
            let now = (self.clock)();
            let decision = match self.store.operate(asked.resolved(), now, asked.operation()).await
            {
                Ok(verdict) => asked.said(verdict).decision,
                Err(error @ StoreError::Operation(_)) => return Err(error.into()),
                Err(_) if self.policy.on_error() == OnError::Open || self.policy.is_shadow() => {
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            };
            if decision.is_allowed() || self.policy.is_shadow() {
                return Ok(());
            }
            let wait = decision.retry_after();
            if wait >= Micros::MAX {
                return Err(NotSent::ForEver);
            }
            let wait = Duration::from_micros(wait.0);
            *left = left.checked_sub(wait).ok_or(NotSent::TooLong { wait, left: *left })?;
            sleep(wait).await;
        }
    }
}

impl Builder {
    /// Finds the key of a request. Without this the key is the host of its URL.
    pub fn key(self, key: impl Fn(&Request) -> String + Send + Sync + 'static) -> Self {
        Self { key: Box::new(key), ..self }
    }

    /// Finds the cost of a request. Requests for which the function returns `None` have the cost of the policy.
    pub fn cost(self, cost: impl Fn(&Request) -> Option<u64> + Send + Sync + 'static) -> Self {
        Self { cost: Box::new(cost), ..self }
    }

    /// How long a request may wait in all, for the limit and for the server; one minute without this.
    pub const fn longest_wait(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// How often a request is sent again; three times without this.
    pub const fn most_repeats(mut self, most: u32) -> Self {
        self.most_repeats = most;
        self
    }

    /// Tells the time in place of [`clock::now`].
    pub const fn clock(mut self, clock: fn() -> Timestamp) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the middleware.
    ///
    /// # Errors
    /// Returns a [`BuildError`] if there is no such policy, or if it limits leases.
    pub fn build(self) -> Result<RateLimit, BuildError> {
        let Self { name, policy, store, key, cost, longest, most_repeats, clock } = self;
        let Some(policy) = policy else { return Err(BuildError::NoPolicy(name)) };
        let overrides = policy.overrides().iter().map(|(_, limits)| limits);
        let mut limits = overrides.chain([policy.limits()]).flat_map(|limits| limits.iter());
        if limits.any(|named| named.limit.kind() == Kind::Lease) {
            return Err(BuildError::Leases(name));
        }
        drop(limits);
        Ok(RateLimit { policy, store, key, cost, longest, most_repeats, clock })
    }
}

#[async_trait]
impl Middleware for RateLimit {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let mut left = self.longest;
        for _ in 0..self.most_repeats {
            self.wait_for_own(&request, &mut left).await.map_err(Error::middleware)?;
            let Some(repeat) = request.try_clone() else {
                return next.run(request, extensions).await; // its body is a stream, which can be sent only once
            };
            let may_repeat = request.method().is_idempotent();
            let response = next.clone().run(request, extensions).await?;
            let Some(wait) = retry_after(&response, may_repeat) else { return Ok(response) };
            let Some(rest) = left.checked_sub(wait) else { return Ok(response) };
            left = rest;
            drop(response); // so that its connection is free
            sleep(wait).await;
            request = repeat;
        }
        self.wait_for_own(&request, &mut left).await.map_err(Error::middleware)?;
        next.run(request, extensions).await
    }
}
