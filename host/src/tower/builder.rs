//! What a service says of its requests.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use tidegate_gate::{Gateway, KeySource, Limits, Metering, Policies, Policy, Timestamp};

use super::limit::{Asks, Limit, Of};
use super::service::RateLimitLayer;
use crate::clock;
use crate::store::{Store, StoreError};

/// A [`RateLimitLayer`] that is being made.
///
/// Each function gets the head of a request: its method, URI, header fields and extensions, in which layers around this one
/// leave what they found out, such as the user.
#[must_use = "only `build` makes a layer"]
pub struct Builder {
    policies: Vec<Arc<Policy>>,
    /// The policies that were named, the last one last.
    named: Vec<Named>,
    gateway: Gateway,
    store: Arc<Store>,
    peer: Option<Of<IpAddr>>,
    on_store_error: Arc<dyn Fn(&StoreError) + Send + Sync>,
    clock: fn() -> Timestamp,
}

/// A policy that was named, and what requests ask of it.
#[derive(Default)]
struct Named {
    name: String,
    key: Option<Of<String>>,
    cost: Option<Of<u64>>,
    class: Option<Of<String>>,
    signal_ppm: Option<Of<u32>>,
    metering: Option<Arc<Metering>>,
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
    /// Units that a payer has granted cannot come back if a later policy refuses.
    #[error(
        "policy {0:?}: expected payers in the last policy of the layer alone, found them in an earlier one"
    )]
    Payers(String),
    /// Each policy decides once.
    #[error("expected each policy once, found {0:?} twice")]
    Twice(String),
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.named.iter().map(|named| &named.name).collect();
        f.debug_struct("Builder").field("policies", &names).finish_non_exhaustive()
    }
}

impl Builder {
    pub(super) fn new(store: Arc<Store>, policies: &Policies, name: &str) -> Self {
        Self {
            policies: policies.all().to_vec(),
            named: [Named { name: name.to_owned(), ..Named::default() }].into(),
            gateway: policies.gateway().clone(),
            store,
            peer: None,
            on_store_error: Arc::new(|_| ()),
            clock: clock::now,
        }
    }

    /// Lets another policy of the file decide too, all or nothing: if one refuses, none is charged. What is said after this about
    /// key, cost, class, signal and metering is said of this policy.
    ///
    /// ```
    /// # use tidegate::tower::Builder;
    /// # fn example(builder: Builder) -> Builder {
    /// let user = |request: &http::request::Parts| Some(request.headers.get("user")?.to_str().ok()?.to_owned());
    /// builder.key(user).and("exports").key(user).cost(|_| Some(10))
    /// # }
    /// ```
    pub fn and(mut self, policy: &str) -> Self {
        self.named.push(Named { name: policy.to_owned(), ..Named::default() });
        self
    }

    fn of_last(mut self, change: impl FnOnce(&mut Named)) -> Self {
        if let Some(last) = self.named.last_mut() {
            change(last); // there always is one
        }
        self
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
        self.of_last(|named| named.key = Some(Arc::new(key)))
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
        self.of_last(|named| named.cost = Some(Arc::new(cost)))
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
        self.of_last(|named| named.class = Some(Arc::new(class)))
    }

    /// Finds the signal of a limit `utilization`, in parts per million: the share of something that is in use. Without this no
    /// request is shed, because nobody tells the limit how busy the service is.
    ///
    /// ```
    /// use tokio::sync::Semaphore;
    /// # use tidegate::tower::Builder;
    ///
    /// static WORKERS: Semaphore = Semaphore::const_new(20); // of the service
    ///
    /// # fn example(builder: Builder) -> Builder {
    /// builder.signal(|_| Some(1_000_000 - u32::try_from(WORKERS.available_permits()).ok()? * 50_000))
    /// # }
    /// ```
    pub fn signal(self, signal: impl Fn(&Parts) -> Option<u32> + Send + Sync + 'static) -> Self {
        self.of_last(|named| named.signal_ppm = Some(Arc::new(signal)))
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
        self.of_last(|named| named.metering = Some(Arc::new(metering)))
    }

    /// Takes note of operations that the store did not do, for a log or a count. The policy's `on_error` then decides whether the request
    /// passes: under `"local"` this host's share does, and the note says why.
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
        let Self { policies, named, gateway, store, peer, on_store_error, clock } = self;
        let mut asks: Vec<Asks> = Vec::new();
        for Named { name, key, cost, class, signal_ppm, metering } in named {
            let Some(policy) = policies.iter().find(|policy| policy.name() == name).cloned() else {
                return Err(LayerError::NoPolicy(name));
            };
            if !store.is_for(&policy) {
                return Err(LayerError::OtherStore(name));
            }
            if metering.is_some() && policy.reservations().is_none() {
                return Err(LayerError::NoReservations(name));
            }
            if key.is_none() {
                require_readable(&policy, peer.is_some())?;
            }
            if asks.iter().any(|asks| asks.policy.name() == name) {
                return Err(LayerError::Twice(name));
            }
            asks.push(Asks { policy, key, cost, class, signal_ppm, metering });
        }
        let earlier = asks.split_last().map_or(&[][..], |(_, earlier)| earlier);
        if let Some(asks) = earlier.iter().find(|asks| has_payers(&asks.policy)) {
            return Err(LayerError::Payers(asks.policy.name().to_owned()));
        }
        Ok(RateLimitLayer(Arc::new(Limit { asks, gateway, store, peer, on_store_error, clock })))
    }
}

fn has_payers(policy: &Policy) -> bool {
    let overrides = policy.overrides().iter().map(|(_, limits)| limits);
    overrides.chain([policy.limits()]).any(Limits::have_payers)
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
