//! Requests in, responses out.

use futures_util::StreamExt;
use tidegate_gate::Policies;
use tidegate_gate::http::{self, Access, Head, MAX_BODY_BYTES, MAX_DRAINED_BYTES, Step};
use worker::{Context, Env, Request, Response, ResponseBuilder, Result, event};

use crate::decide::decide;
use crate::policies::policies;

#[event(fetch)]
async fn fetch(mut request: Request, env: Env, _context: Context) -> Result<Response> {
    let answer = match policies() {
        Ok(policies) => respond(policies, &mut request, &env).await?,
        Err(reason) => http::internal_error(reason),
    };
    send(answer)
}

async fn respond(policies: &Policies, request: &mut Request, env: &Env) -> Result<http::Response> {
    let plan = match step(policies, request, env)? {
        Step::Answer(response) => return Ok(response),
        Step::Decide(plan) => plan,
        Step::ReadBody(call) => {
            let body = match read_body(request).await? {
                Ok(body) => body,
                Err(length) => return Ok(http::body_too_large(length)),
            };
            match http::read(policies, &call, &body, &mut chance) {
                Ok(plan) => plan,
                Err(response) => return Ok(response),
            }
        }
    };
    let outcomes = decide(policies, &plan, env).await;
    Ok(plan.respond(policies, &outcomes))
}

fn step(policies: &Policies, request: &Request, env: &Env) -> Result<Step> {
    let token = env.var("TIDEGATE_TOKEN").ok().map(|token| token.to_string());
    let (method, headers) = (request.method().to_string(), request.headers());
    let url = request.inner().url();
    let (path, query) = path_and_query(&url);
    // a header that cannot be read is not there: whoever depends on it is refused
    let header = |name: &str| headers.get(name).ok().flatten();
    let client_ip = header("cf-connecting-ip"); // Cloudflare sets it, whatever the client sent
    let head =
        Head { method: &method, path, query, header: &header, client_ip: client_ip.as_deref() };
    Ok(match Access::new(policies, token) {
        Ok(access) => http::step(policies, &access, &head, &mut chance),
        Err(error) => Step::Answer(http::internal_error(error.to_string())),
    })
}

/// The runtime has parsed and normalized the URL already: cutting it up needs no second parser,
/// and that one's Unicode tables would be a third of the bundle.
fn path_and_query(url: &str) -> (&str, &str) {
    let url = url.split_once('#').map_or(url, |(url, _fragment)| url);
    let (url, query) = url.split_once('?').unwrap_or((url, ""));
    let rest = url.split_once("://").map_or(url, |(_scheme, rest)| rest);
    let path = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/");
    (path, query)
}

/// Its length if it is longer than allowed: not more than that is ever held.
async fn read_body(request: &mut Request) -> Result<std::result::Result<Vec<u8>, usize>> {
    let mut body = Vec::new();
    if request.inner().body().is_none() {
        return Ok(Ok(body));
    }
    let mut length = 0_usize;
    let mut stream = request.stream()?;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        length = length.saturating_add(chunk.len());
        if length > MAX_DRAINED_BYTES {
            break;
        }
        if length <= MAX_BODY_BYTES {
            body.extend_from_slice(&chunk);
        }
    }
    Ok(if length <= MAX_BODY_BYTES { Ok(body) } else { Err(length) })
}

fn send(answer: http::Response) -> Result<Response> {
    let builder = ResponseBuilder::new().with_status(answer.status);
    let mut response =
        if answer.body.is_empty() { builder.empty() } else { builder.ok(answer.body)? };
    let headers = response.headers_mut(); // after the body, which brings a content type
    for (name, value) in &answer.headers {
        headers.set(name, value)?;
    }
    Ok(response)
}

/// A random number that nobody can guess: it may become the name of a lease.
fn chance() -> Option<u64> {
    getrandom::u64().ok()
}
