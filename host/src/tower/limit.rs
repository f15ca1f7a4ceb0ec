//! What happens to one request: the exchange, from the head to a refusal or to what the request holds.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use tidegate_gate::{Gateway, Metering, Operation, Policy, Resolved, Timestamp};
use tidegate_http::{
    Check, Exchange, Head, Headers, Keyed, Meter, Outcome, Pass, Reservation, Response, Served,
    Step, internal_error, key_of,
};

use super::held::{Held, Ungiven};
use crate::http_message::{joined, random};
use crate::store::{AtOnce, Store, StoreError, Told};

/// Finds something of a request, if the request has it.
pub(super) type Of<T> = Arc<dyn Fn(&Parts) -> Option<T> + Send + Sync>;

/// A policy, and what its requests ask of it.
pub(super) struct Asks {
    pub(super) policy: Arc<Policy>,
    pub(super) key: Option<Of<String>>,
    pub(super) cost: Option<Of<u64>>,
    pub(super) class: Option<Of<String>>,
    pub(super) signal_ppm: Option<Of<u32>>,
    pub(super) metering: Option<Arc<Metering>>,
}

/// The policies that decide on each request, and how requests are read.
pub(super) struct Limit {
    pub(super) asks: Vec<Asks>,
    pub(super) gateway: Gateway,
    pub(super) store: Arc<Store>,
    pub(super) peer: Option<Of<IpAddr>>,
    pub(super) on_store_error: Arc<dyn Fn(&StoreError) + Send + Sync>,
    pub(super) clock: fn() -> Timestamp,
}

/// A request that passes.
#[derive(Debug)]
pub(super) struct Passed {
    /// The header fields to add to the response.
    pub(super) fields: Headers,
    /// What the request holds until its response has ended.
    pub(super) held: Option<Box<Held>>,
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies: Vec<_> = self.asks.iter().map(|asks| asks.policy.name()).collect();
        f.debug_struct("Limit").field("policies", &policies).finish_non_exhaustive()
    }
}

impl Limit {
    /// The exchange of a request, or the response to a request without a key.
    pub(super) fn begin(&self, parts: &Parts) -> Result<Exchange, Response> {
        if let [asks] = self.asks.as_slice() {
            let (key, class) = self.key_and_class(asks, parts)?;
            let asked = asks.keyed(&key, class.as_deref(), parts);
            return Ok(Exchange::of_key(&asks.policy, &asked, &mut random));
        }
        let found = self.asks.iter().map(|asks| self.key_and_class(asks, parts));
        let found: Vec<_> = found.collect::<Result<_, _>>()?;
        let asked =
            self.asks.iter().zip(&found).map(|(asks, (key, class))| {
                (&asks.policy, asks.keyed(key, class.as_deref(), parts))
            });
        Ok(Exchange::of_keys(&asked.collect::<Vec<_>>(), &mut random))
    }

    fn key_and_class(
        &self,
        asks: &Asks,
        parts: &Parts,
    ) -> Result<(String, Option<String>), Response> {
        let chosen = asks.key.as_ref().and_then(|key| key(parts));
        let key = chosen.map_or_else(|| self.key_of_sources(&asks.policy, parts), Ok)?;
        Ok((key, asks.class.as_ref().and_then(|class| class(parts))))
    }

    fn key_of_sources(&self, policy: &Policy, parts: &Parts) -> Result<String, Response> {
        let head = Head {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or_default(),
            header: &|name| joined(&parts.headers, name),
            client_ip: &|| self.peer.as_ref()?(parts),
            now: self.gateway.jwt().map_or(Timestamp::EPOCH, |_| (self.clock)()), // only tokens expire
            ..Head::default()
        };
        key_of(&self.gateway, policy, &head)
    }

    /// Decides on the request.
    pub(super) async fn decide(
        self: &Arc<Self>,
        mut exchange: Exchange,
    ) -> Result<Passed, Response> {
        loop {
            match exchange.step() {
                Step::Decide(checks) => {
                    let outcomes = self.outcomes(checks).await;
                    exchange.decided(outcomes);
                }
                step => return self.done(step),
            }
        }
    }

    /// Decides on the request in a store that does not wait.
    pub(super) fn decide_now(
        self: &Arc<Self>,
        store: AtOnce<'_>,
        parts: &Parts,
    ) -> Result<Passed, Response> {
        let decide = |check: &Check, now| {
            self.outcome(store.operate(check.resolved(), now, check.operation()).into())
        };
        if let [asks] = self.asks.as_slice() {
            let (key, class) = self.key_and_class(asks, parts)?;
            let asked = asks.keyed(&key, class.as_deref(), parts);
            let pass = Exchange::at_once(&asks.policy, &asked, &mut random, |check| {
                decide(check, (self.clock)())
            })?;
            return Ok(self.passed(pass));
        }
        let mut exchange = self.begin(parts)?;
        loop {
            match exchange.step() {
                Step::Decide(checks) => {
                    let now = (self.clock)();
                    let outcomes = checks.iter().map(|check| decide(check, now)).collect();
                    exchange.decided(outcomes);
                }
                step => return self.done(step),
            }
        }
    }

    fn done(self: &Arc<Self>, step: Step<'_>) -> Result<Passed, Response> {
        match step {
            Step::Done(Served::Pass(pass)) => Ok(self.passed(*pass)),
            Step::Done(Served::Response(refusal)) => Err(refusal),
            _ => Err(internal_error("a key asks for decisions alone".to_owned())),
        }
    }

    /// All that the layer knows of a [`Pass`].
    fn passed(self: &Arc<Self>, pass: Pass) -> Passed {
        if pass.leases.is_empty() && pass.reservations.is_empty() {
            return Passed { fields: pass.headers, held: None }; // most requests hold nothing
        }
        let leases = pass.leases;
        let reservations = pass.reservations.into_iter().map(|reservation| {
            let estimate = reservation.meter.estimate();
            let metering = self.asks(&reservation.policy).and_then(|asks| asks.metering.as_ref());
            let meter = metering.map(|metering| Meter::new(metering, estimate));
            Reservation { meter: meter.unwrap_or(reservation.meter), ..reservation }
        });
        let held = Held::begin(self, leases, reservations.collect());
        Passed { fields: pass.headers, held }
    }

    /// What is asked of the policy of this name.
    pub(super) fn asks(&self, policy: &str) -> Option<&Asks> {
        self.asks.iter().find(|asks| asks.policy.name() == policy)
    }

    async fn outcomes(self: &Arc<Self>, checks: &[Check]) -> Vec<Outcome> {
        let now = (self.clock)();
        let asked = checks.iter().map(|check| (check.resolved(), check.operation()));
        let ungiven = Ungiven::new(self, asked.clone());
        let asked = asked.map(|(resolved, operation)| ((), resolved, operation));
        let outcome = |(), told| self.outcome(told);
        let outcomes = self.store.operate_each(now, asked, outcome).await;
        ungiven.are_given();
        outcomes
    }

    fn outcome(&self, Told { verdict, cause }: Told) -> Outcome {
        cause.iter().for_each(|error| (self.on_store_error)(error));
        match verdict {
            Ok(verdict) => Outcome::Decided(verdict),
            Err(error) => {
                (self.on_store_error)(&error);
                Outcome::Unavailable(StoreError::summary(&error).to_owned())
            }
        }
    }

    /// Does an operation that nobody waits for. Returns whether the lease was live; `None` if that is not known.
    pub(super) async fn note(&self, resolved: &Resolved, operation: Operation) -> Option<bool> {
        match self.store.operate(resolved, (self.clock)(), operation).await {
            Ok(verdict) => verdict.effect.live(),
            Err(error) => {
                (self.on_store_error)(&error);
                None
            }
        }
    }
}

impl Asks {
    fn keyed<'k>(&self, key: &'k str, class: Option<&'k str>, parts: &Parts) -> Keyed<'k> {
        Keyed {
            key,
            cost: self.cost.as_ref().and_then(|cost| cost(parts)),
            class,
            signal_ppm: self.signal_ppm.as_ref().and_then(|signal| signal(parts)),
            reserves: self.metering.is_some(),
            ..Keyed::default()
        }
    }
}
