//! What a service says of its requests.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use tidegate_gate::{Gateway, KeySource, Metering, Policies, Policy, Timestamp};

use super::limit::{Limit, Of};
use super::service::RateLimitLayer;
use crate::clock;
use crate::store::{Store, StoreError};

/// A [`RateLimitLayer`] that is being made.
///
/// Each function gets the head of a request: its method, URI, header fields and extensions, in which layers around this one
/// leave what they found out, such as the user.
#[must_use = "only `build` makes a layer"]
pub struct Builder {
    name: String,
    policy: Option<Arc<Policy>>,
    gateway: Gateway,
    store: Arc<Store>,
    key: Option<Of<String>>,
    peer: Option<Of<IpAddr>>,
    cost: Option<Of<u64>>,
    class: Option<Of<String>>,
    metering: Option<Metering>,
    on_store_error: Arc<dyn Fn(&StoreError) + Send + Sync>,
    clock: fn() -> Timestamp,
}

/// Why a layer cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// The file has no policy of this name.
    #[error("expected the name of a policy of the file, found {0:?}")]
    NoPolicy(String),
    /// The store was made for other policies, so it could not decide by this one.
    #[error(
        "policy {0:?}: expected a store that was made for this policy, found a store that was made for others"
    )]
    OtherStore(String),
    /// The layer cannot read a source of the policy's keys.
    #[expect(missing_docs, reason = "the names say it")]
    #[error(
        "policy {policy:?}: `key`: expected sources that the layer can read, found {found}; {hint}"
    )]
    Source { policy: String, found: String, hint: &'static str },
    /// Only a policy with `reservations` can charge the true cost of a request.
    #[error("policy {0:?}: expected `reservations` beside `metering`, found none")]
    NoReservations(String),
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("policy", &self.name).finish_non_exhaustive()
    }
}

impl Builder {
    pub(super) fn new(store: Arc<Store>, policies: &Policies, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            policy: policies.get(name).cloned(),
            gateway: policies.gateway().clone(),
            store,
            key: None,
            peer: None,
            cost: None,
            class: None,
            metering: None,
            on_store_error: Arc::new(|_| ()),
            clock: clock::now,
        }
    }

    /// Finds the key of a request. Requests for which the function returns `None` have the key of the policy's sources.
    ///
    /// ```
    /// # use tidegate::tower::Builder;
    /// #[derive(Clone)]
    /// struct User(u64); // of the layer that authenticates
    ///
    /// # fn example(builder: Builder) -> Builder {
    /// builder.key(|request| request.extensions.get().map(|User(id)| format!("user:{id}")))
    /// # }
    /// ```
    pub fn key(self, key: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { key: Some(Arc::new(key)), ..self }
    }

    /// Finds the address from which a request came. If that is one of the file's `trusted_proxies`, the client is behind it.
    ///
    /// ```
    /// use std::net::SocketAddr;
    ///
    /// use axum::extract::ConnectInfo;
    /// # use tidegate::tower::Builder;
    ///
    /// # fn example(builder: Builder) -> Builder {
    /// // with `Router::into_make_service_with_connect_info::<SocketAddr>`
    /// builder.peer(|request| Some(request.extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip()))
    /// # }
    /// ```
    pub fn peer(self, peer: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        Self { peer: Some(Arc::new(peer)), ..self }
    }

    /// Finds the cost of a request. Requests for which the function returns `None` have the cost of the policy.
    ///
    /// ```
    /// # use tidegate::tower::Builder;
    /// # fn example(builder: Builder) -> Builder {
    /// builder.cost(|request| (request.uri.path() == "/search").then_some(5))
    /// # }
    /// ```
    pub fn cost(self, cost: impl Fn(&Parts) -> Option<u64> + Send + Sync + 'static) -> Self {
        Self { cost: Some(Arc::new(cost)), ..self }
    }

    /// Finds the class of a request. Requests for which the function returns `None` are of the least important class. A class that
    /// the policy does not have is answered with status 400.
    ///
    /// ```
    /// # use tidegate::tower::Builder;
    /// # fn example(builder: Builder) -> Builder {
    /// builder.class(|request| (request.uri.path() == "/pay").then(|| "critical".to_owned()))
    /// # }
    /// ```
    pub fn class(self, class: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { class: Some(Arc::new(class)), ..self }
    }

    /// Reads the true cost of each request from its response. The cost of the request is then an estimate, which is reserved
    /// until the response has ended.
    ///
    /// ```
    /// use tidegate::gate::Metering;
    /// # use tidegate::tower::Builder;
    ///
    /// # fn example(builder: Builder) -> Result<Builder, Box<dyn std::error::Error>> {
    /// let metering = Metering::parse(r#"{ "actual": { "field": "usage.total_tokens" } }"#)?;
    /// let builder = builder.cost(|_| Some(4_000)).metering(metering.unwrap_or_default());
    /// # Ok(builder)
    /// # }
    /// ```
    pub fn metering(self, metering: Metering) -> Self {
        Self { metering: Some(metering), ..self }
    }

    /// Takes note of operations that the store did not do. The policy's `on_error` then decides whether the request passes.
    /// [`StoreError::without_key`] is fit for a log.
    ///
    /// ```
    /// # use tidegate::tower::Builder;
    /// # fn example(builder: Builder) -> Builder {
    /// builder.on_store_error(|error| eprintln!("tidegate: {}", error.without_key()))
    /// # }
    /// ```
    pub fn on_store_error(self, note: impl Fn(&StoreError) + Send + Sync + 'static) -> Self {
        Self { on_store_error: Arc::new(note), ..self }
    }

    /// Tells the time in place of [`clock::now`].
    ///
    /// ```
    /// use tidegate::Timestamp;
    /// # use tidegate::tower::Builder;
    /// # fn example(builder: Builder) -> Builder {
    /// builder.clock(|| Timestamp(0))
    /// # }
    /// ```
    pub fn clock(self, clock: fn() -> Timestamp) -> Self {
        Self { clock, ..self }
    }

    /// Makes the layer.
    ///
    /// # Errors
    /// Returns a [`LayerError`] if there is no such policy, if the store was made for another one, if the layer cannot read a
    /// source of the policy's keys and [`key`](Self::key) does not replace them, or if `metering` lacks `reservations`.
    ///
    /// ```
    /// use tidegate::tower::RateLimitLayer;
    /// use tidegate::{Policies, Store};
    ///
    /// // without a `key`, the policy counts by the client's address
    /// let policies = "policies.api.limits = [{ algorithm = 'fixed_window', limit = 9, period = '1m' }]";
    /// let policies = Policies::parse(policies)?;
    /// let store = Store::memory(&policies, 1 << 20)?;
    /// let error = RateLimitLayer::builder(store, &policies, "api").build().unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "policy \"api\": `key`: expected sources that the layer can read, found \"ip\"; say with `peer` where the address is",
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build(self) -> Result<RateLimitLayer, LayerError> {
        let Some(policy) = self.policy else { return Err(LayerError::NoPolicy(self.name)) };
        if !self.store.is_for(&policy) {
            return Err(LayerError::OtherStore(self.name));
        }
        if self.metering.is_some() && policy.reservations().is_none() {
            return Err(LayerError::NoReservations(self.name));
        }
        if self.key.is_none() {
            require_readable(&policy, self.peer.is_some())?;
        }
        Ok(RateLimitLayer(Arc::new(Limit {
            policy,
            gateway: self.gateway,
            store: self.store,
            key: self.key,
            peer: self.peer,
            cost: self.cost,
            class: self.class,
            metering: self.metering.map(Arc::new),
            on_store_error: self.on_store_error,
            clock: self.clock,
        })))
    }
}

/// A source that nobody reads would turn its requests away one by one.
fn require_readable(policy: &Policy, knows_peer: bool) -> Result<(), LayerError> {
    let sources = policy.key_sources().iter().flat_map(|joined| joined.sources());
    for source in sources {
        let hint = match source {
            KeySource::Ip if !knows_peer => "say with `peer` where the address is",
            KeySource::Country => "only Cloudflare tells the country of a client",
            KeySource::Jwt(_) => {
                "only the Worker verifies tokens, so verify them before and say with `key` whose they are"
            }
            _ => continue,
        };
        let (policy, found) = (policy.name().to_owned(), source.to_string());
        return Err(LayerError::Source { policy, found, hint });
    }
    Ok(())
}
