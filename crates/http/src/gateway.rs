//! The gateway: requests that pass to an upstream by a route of the policy file.
//!
//! An adapter adds the I/O: it sends a request that passes to the upstream, adds [`Pass::headers`] to the answer, and holds
//! [`Pass::leases`] until the answer has ended.

mod cross_origin;
mod target;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

use tidegate_gate::{Chance, Policies, Policy, Quoted, Route};

use crate::answer::page;
use crate::answer::problem::Problem;
use crate::head::Head;
use crate::key;
use crate::plan::Keyless;
use crate::response::{Header, Headers, Response};
use crate::served::{Pass, Served};
use crate::state::State;

/// A request that has begun, and the fields of the gateway's own answer to it, whatever comes.
pub(crate) struct Begun {
    pub(crate) state: Result<State, Response>,
    pub(crate) fields: Headers,
}

/// Finds the route of a request, and its key if the route counts.
pub(crate) fn begin(policies: &Policies, head: &Head<'_>, random: Chance<'_>) -> Begun {
    match find(policies, head) {
        Err(response) => Begun { state: Err(response), fields: Vec::new() },
        Ok(route) => {
            let fields = cross_origin::of_own_answer(route, head);
            Begun { state: by(route, policies, head, &fields, random), fields }
        }
    }
}

fn find<'p>(policies: &'p Policies, head: &Head<'_>) -> Result<&'p Route, Response> {
    let gateway = policies.gateway();
    let path = target::read(head).map_err(|error| error.response())?;
    let asked = cross_origin::preflight(head);
    let methods = [head.method, asked.as_deref().unwrap_or(head.method)];
    let route = gateway.route(head.authority, &path, &methods);
    route.map_err(|two| target::TargetError::from(two).response())?.ok_or_else(|| {
        let (method, found) = (Quoted(head.method), Quoted(head.path));
        let detail =
            alloc::format!("expected a request that a route matches, found {method} {found}");
        Problem::NotFound.response(detail)
    })
}

/// Finds the keys of a request of this route. `fields` are those of the gateway's own answer.
fn by(
    route: &Route,
    policies: &Policies,
    head: &Head<'_>,
    fields: &[Header],
    random: Chance<'_>,
) -> Result<State, Response> {
    let gateway = policies.gateway();
    let url = route.upstream().map(|upstream| match head.query {
        "" => alloc::format!("{upstream}{}", head.path),
        query => alloc::format!("{upstream}{}?{query}", head.path),
    });
    let client = key::client_address(gateway, head).map(|client| client.to_string());
    let headers = cross_origin::of_passed(route);
    let pass = Pass { url, client, headers, own_fields: fields.to_vec(), ..Pass::default() };
    let pass = Box::new(pass);
    let is_free = || !route.counts_preflights() && cross_origin::preflight(head).is_some();
    let Some(policies) = route.policies().split_first().filter(|_| !is_free()) else {
        return Ok(State::Done(Served::Pass(pass)));
    };
    let found = |policy: &Policy| key::find(gateway, policy, head);
    let keyless = Keyless::of_route(policies, route, head, pass, found);
    State::of_key(found(policies.0.policy()), keyless, random)
}

/// The response to a request whose upstream did not answer. `accept` is the header `Accept` of the request, and `fields` are
/// the [`own_fields`](Pass::own_fields) of the request.
#[must_use]
pub fn upstream_failed(accept: Option<&str>, fields: &[Header]) -> Response {
    let mut response = Problem::BadGateway.response("the upstream did not answer".to_string());
    response.headers.extend_from_slice(fields);
    match accept.is_some_and(page::is_preferred) {
        true => page::of(response),
        false => response,
    }
}
