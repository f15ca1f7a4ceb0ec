//! The entry of the Worker: reads requests and writes responses.

use futures_util::StreamExt;
use tidegate_gate::Policies;
use tidegate_gate::http::{
    self, Access, BodyError, Check, Head, MAX_BODY_BYTES, MAX_DRAINED_BYTES, Outcome, Tokens,
};
use worker::{Context, Env, Request, Response, ResponseBuilder, Result, event};

use crate::decide::decide;
use crate::policies::policies;

#[event(fetch)]
async fn fetch(request: Request, env: Env, _context: Context) -> Result<Response> {
    let answer = match policies() {
        Ok(policies) => respond(policies, request, &env).await?,
        Err(reason) => http::internal_error(reason),
    };
    send(answer)
}

async fn respond(policies: &Policies, request: Request, env: &Env) -> Result<http::Response> {
    let token = |name: &str| env.var(name).ok().map(|token| token.to_string());
    let tokens = Tokens {
        decisions: token("TIDEGATE_TOKEN"),
        administration: token("TIDEGATE_ADMIN_TOKEN"),
    };
    let access = match Access::new(policies, tokens) {
        Ok(access) => access,
        Err(error) => return Ok(http::internal_error(error.to_string())),
    };
    let (method, headers) = (request.method().to_string(), request.headers().clone());
    let url = request.inner().url();
    let (path, query) = path_and_query(&url);
    // an unreadable header counts as missing, so a request that depends on it is refused
    let header = |name: &str| headers.get(name).ok().flatten();
    let client_ip = header("cf-connecting-ip"); // Cloudflare overwrites whatever the client sent
    let head =
        Head { method: &method, path, query, header: &header, client_ip: client_ip.as_deref() };
    let mut exchange = Exchange { request, env };
    Ok(http::respond(policies, &access, &head, &mut exchange).await)
}

/// One request to the Worker.
struct Exchange<'a> {
    request: Request,
    env: &'a Env,
}

impl http::Server for Exchange<'_> {
    async fn body(&mut self) -> std::result::Result<Vec<u8>, BodyError> {
        read_body(&mut self.request).await.unwrap_or(Err(BodyError::Incomplete))
    }

    async fn decide(&mut self, checks: &[Check]) -> Vec<Outcome> {
        decide(checks, self.env).await
    }

    /// The number may become the name of a lease, so it must not be guessable.
    fn random(&mut self) -> Option<u64> {
        getrandom::u64().ok()
    }
}

/// Splits a URL. The runtime has already parsed and normalized it, so no second parser is needed; the
/// Unicode tables of one would be a third of the bundle.
fn path_and_query(url: &str) -> (&str, &str) {
    let url = url.split_once('#').map_or(url, |(url, _fragment)| url);
    let (url, query) = url.split_once('?').unwrap_or((url, ""));
    let rest = url.split_once("://").map_or(url, |(_scheme, rest)| rest);
    let path = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/");
    (path, query)
}

/// Never holds more than [`MAX_BODY_BYTES`].
async fn read_body(request: &mut Request) -> Result<std::result::Result<Vec<u8>, BodyError>> {
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
    Ok(if length <= MAX_BODY_BYTES { Ok(body) } else { Err(BodyError::TooLarge(length)) })
}

fn send(answer: http::Response) -> Result<Response> {
    let builder = ResponseBuilder::new().with_status(answer.status);
    let mut response =
        if answer.body.is_empty() { builder.empty() } else { builder.ok(answer.body)? };
    let headers = response.headers_mut(); // after the body, which sets a content type
    for (name, value) in &answer.headers {
        headers.set(name, value)?;
    }
    Ok(response)
}
