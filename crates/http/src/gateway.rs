//! The gateway: requests that pass to an upstream by a route of the policy file.
//!
//! An adapter adds the I/O: it sends a request that passes to the upstream, adds [`Pass::headers`] to the answer, and holds
//! [`Pass::lease`] until the answer has ended.

mod target;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::string::ToString;

use tidegate_gate::{Chance, Policies, Quoted};

use crate::answer::page;
use crate::answer::problem::Problem;
use crate::head::Head;
use crate::key;
use crate::plan::Keyless;
use crate::response::Response;
use crate::served::{Pass, Served};
use crate::state::State;

/// Finds the route of a request, and its key if the route counts.
pub(crate) fn begin(
    policies: &Policies,
    head: &Head<'_>,
    random: Chance<'_>,
) -> Result<State, Response> {
    let gateway = policies.gateway();
    let path = target::read(head).map_err(|error| error.response())?;
    let route = gateway.route(head.authority, &path, head.method);
    let Some(route) = route.map_err(|two| target::TargetError::from(two).response())? else {
        let (method, found) = (Quoted(head.method), Quoted(head.path));
        let detail =
            alloc::format!("expected a request that a route matches, found {method} {found}");
        return Err(Problem::NotFound.response(detail));
    };
    let url = route.upstream().map(|upstream| match head.query {
        "" => alloc::format!("{upstream}{}", head.path),
        query => alloc::format!("{upstream}{}?{query}", head.path),
    });
    let client = key::client_address(gateway, head).map(|client| client.to_string());
    let pass = Pass { url, client, ..Pass::default() };
    let Some(policy) = route.policy() else { return Ok(State::Done(Served::Pass(pass))) };
    let keyless = Keyless::of_route(policy, Box::new(pass));
    State::of_key(key::find(gateway, policy, head), keyless, random)
}

/// The response to a request whose upstream did not answer. `accept` is the header `Accept` of the request.
#[must_use]
pub fn upstream_failed(accept: Option<&str>) -> Response {
    let response = Problem::BadGateway.response("the upstream did not answer".to_string());
    match accept.is_some_and(page::is_preferred) {
        true => page::of(response),
        false => response,
    }
}
