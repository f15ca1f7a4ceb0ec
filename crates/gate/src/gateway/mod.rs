//! The gateway: a server in front of an upstream, which decides on each request and passes it on.
//!
//! This module finds the route and the key of a request, and words the answer to a refusal. A server adds the I/O: it
//! sends a request that passes to the upstream, adds [`Pass::headers`] to the answer, and holds [`Pass::lease`] until
//! the exchange has ended.

mod admit;
mod page;
mod routes;
mod target;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_core::Micros;

use crate::ask::Asked;
use crate::http::{Access, Head, Outcome, Response, Server, bad_gateway, not_found, respond};
use crate::limit::Kind;
use crate::limits::Limits;
use crate::policy::{Policies, Policy};
use crate::quote::Quoted;
use crate::source::{FoundKey, find};
use admit::without_key;
pub use admit::{Admitted, admitted, check_of, key_of};
pub(crate) use routes::{ApiPath, RouteForm};
pub use routes::{Gateway, Route};
use target::Path;

/// The way of a request: to its answer or to the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// The request gets this response.
    Response(Response),
    /// The request passes to the upstream.
    Pass(Pass),
}

/// A request that passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// The URL to send it to; `None` for its own URL.
    pub url: Option<String>,
    /// The client's address.
    pub client: Option<String>,
    /// The headers to add to the upstream's answer.
    pub headers: Vec<(&'static str, String)>,
    /// The lease to hold until the exchange has ended.
    pub lease: Option<Lease>,
}

/// A lease that a request holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The name of the policy.
    pub policy: String,
    /// The key.
    pub key: String,
    /// The name of the lease.
    pub name: String,
    /// The time between two renewals: a third of its time to live.
    pub renew_every: Micros,
}

/// Serves a request: by the HTTP API if the policy file has no routes or if the path is the API's, and as a gateway
/// otherwise. `authority` is the host of the request's URL with its port. The future does not borrow from `head`.
pub fn serve<'a, S: Server>(
    policies: &'a Policies,
    access: &Access,
    authority: &str,
    head: &Head<'_>,
    server: &'a mut S,
) -> impl Future<Output = Served> + use<'a, S> {
    enum Begun<'a, A, S> {
        Api(A),
        Gateway(Result<Box<Arrived>, Response>, bool, &'a mut S),
    }
    let begun = match policies.gateway().api(head.path) {
        Some(path) => Begun::Api(respond(policies, access, &Head { path, ..*head }, server)),
        None => {
            let accept = (head.header)("accept");
            let prefers_page = accept.is_some_and(|accept| page::is_preferred(&accept));
            let arrived = Arrived::new(policies, authority, head).map(Box::new);
            Begun::Gateway(arrived, prefers_page, server)
        }
    };
    async move {
        match begun {
            Begun::Api(responding) => Served::Response(responding.await),
            Begun::Gateway(arrived, prefers_page, server) => {
                let passed = match arrived {
                    Ok(arrived) => arrived.admit(server).await,
                    Err(refusal) => Err(refusal),
                };
                match passed {
                    Ok(pass) => Served::Pass(pass),
                    Err(refusal) if prefers_page => Served::Response(page::of(&refusal)),
                    Err(refusal) => Served::Response(refusal),
                }
            }
        }
    }
}

/// The response to a request whose upstream did not answer.
#[must_use]
pub fn upstream_failed(accept: Option<&str>) -> Response {
    let response = bad_gateway("the upstream did not answer".to_string());
    match accept.is_some_and(page::is_preferred) {
        true => page::of(&response),
        false => response,
    }
}

/// A request that has a route.
struct Arrived {
    pass: Pass,
    counted: Option<(Arc<Policy>, FoundKey)>,
}

impl Arrived {
    fn new(policies: &Policies, authority: &str, head: &Head<'_>) -> Result<Self, Response> {
        let path = Path::read(authority, head).map_err(|error| error.response())?;
        let route = policies.gateway().route(authority, &path, head.method);
        let Some(route) = route.map_err(|error| error.response())? else {
            let (method, found) = (Quoted(head.method), Quoted(head.path));
            return Err(not_found(alloc::format!(
                "expected a request that a route matches, found {method} {found}"
            )));
        };
        let counted = route
            .policy()
            .map(|policy| (Arc::clone(policy), find(policies.gateway(), policy, head)));
        let url = route.upstream().map(|upstream| match head.query {
            "" => alloc::format!("{upstream}{}", head.path),
            query => alloc::format!("{upstream}{}?{query}", head.path),
        });
        let client = policies.gateway().client_address(head).map(|client| client.to_string());
        let pass = Pass { url, client, headers: Vec::new(), lease: None };
        Ok(Self { pass, counted })
    }

    async fn admit(self, server: &mut impl Server) -> Result<Pass, Response> {
        let Self { pass, counted: Some((policy, found)) } = self else { return Ok(self.pass) };
        let key = found.key(server).await?.ok_or_else(|| without_key(&policy))?;
        let check = check_of(&policy, &key, None, &mut || server.random())?;
        let outcome = server.decide(core::slice::from_ref(&check)).await.pop();
        let outcome = outcome.unwrap_or_else(|| Outcome::Unavailable("not decided".to_string()));
        server.decided(&check, &outcome);
        let timing = server.timing().map(|timing| ("server-timing", timing));
        match admitted(&check, &outcome, None) {
            Ok(Admitted { mut headers, lease }) => {
                headers.extend(timing);
                Ok(Pass { headers, lease, ..pass })
            }
            Err(mut refusal) => {
                refusal.headers.extend(timing);
                Err(refusal)
            }
        }
    }
}

impl Lease {
    fn of(asked: &Asked, outcome: &Outcome) -> Option<Self> {
        let Outcome::Decided(verdict) = outcome else { return None };
        let (name, resolved) = (asked.lease()?, asked.resolved());
        let limits = resolved.limits().filter(|_| verdict.decision.is_allowed());
        let leases = limits.into_iter().flat_map(Limits::iter);
        let leases = leases.filter(|limit| limit.limit.kind() == Kind::Lease);
        let shortest = leases.map(|limit| limit.limit.period()).min()?;
        let (policy, key) = (resolved.policy().name().into(), resolved.written_key().into());
        let renew_every = Micros(shortest.0 / 3);
        Some(Self { policy, key, name: name.into(), renew_every })
    }
}
