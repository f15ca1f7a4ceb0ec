//! The functions that JavaScript calls in an isolate, and the texts in which it gets the answers.

use tidegate_http::{
    self as http, BodyError, NoKeys, Pass, Response, Served, Tokens, Verify, upstream_failed,
};
use tidegate_tier::wire::{Failure, Question};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::clock::whole;
use crate::exchange::{OwnRequest, Tells, parts, random};
use crate::keys::STORAGE_FAILED;
use crate::node::{self, End, Held, Node, Told, with};
use crate::{packed, policies};

/// The functions that JavaScript calls in an isolate. An exchange is one request, under a number.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Isolate;

#[wasm_bindgen]
extern "C" {
    /// A request. What is read of it costs time, so only what is needed is read.
    pub type Request;

    #[wasm_bindgen(method, getter)]
    pub(crate) fn method(this: &Request) -> String;

    #[wasm_bindgen(method, getter)]
    pub(crate) fn url(this: &Request) -> String;

    #[wasm_bindgen(method, getter)]
    fn headers(this: &Request) -> Headers;

    type Headers;

    #[wasm_bindgen(method, catch)]
    fn get(this: &Headers, name: &str) -> Result<Option<String>, JsValue>;
}

impl Request {
    /// A header; `None` if it is missing or unreadable, so that a request which depends on it is refused.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.headers().get(name).ok().flatten()
    }
}

#[wasm_bindgen]
impl Isolate {
    /// Reads the policy file. Returns what is wrong with it or with a token, for the log: then the Worker cannot work,
    /// and every request gets the response of `misconfigured`.
    #[must_use]
    pub fn start(
        token: Option<String>,
        admin_token: Option<String>,
        trusts_caller_time: bool,
        log_secret: Option<String>,
        events: bool,
        timing: bool,
    ) -> Option<String> {
        let tokens = Tokens { decisions: token, administration: admin_token };
        let told = Told { tells: Tells { events, timing }, log_secret };
        match Node::new(tokens, trusts_caller_time, told) {
            Ok(node) => {
                node::set(node);
                None
            }
            Err(reason) => Some(reason),
        }
    }

    /// The response to a request while the Worker cannot work.
    #[must_use]
    pub fn misconfigured(url: &str) -> String {
        let (_authority, path, _query) = parts(url);
        text(&http::misconfigured(path))
    }

    /// The longest body of a call.
    #[must_use]
    pub fn max_body() -> u32 {
        size(http::MAX_BODY_BYTES)
    }

    /// The most of a longer body that is read before it is refused.
    #[must_use]
    pub fn max_drained() -> u32 {
        size(http::MAX_DRAINED_BYTES)
    }

    /// Whether `begin` needs the client's country, which is dear to find out.
    #[must_use]
    pub fn reads_country(now_ms: f64) -> bool {
        with(now_ms, |node, _, _| node.in_force.revision.policies.reads_country())
    }

    /// Whether some requests pass to an upstream, which then reads their bodies.
    #[must_use]
    pub fn has_routes(now_ms: f64) -> bool {
        with(now_ms, |node, _, _| !node.in_force.revision.policies.gateway().routes().is_empty())
    }

    /// Begins an exchange, with the body of the request or without it. `unread` says why a body could not be read: 0 if
    /// it did not arrive whole, else how many bytes were read of one that is too long. Returns eight times the number
    /// of the exchange, and the [`NextStep`](crate::node::NextStep).
    #[must_use]
    pub fn begin(
        request: Request,
        country: Option<String>,
        body: Option<String>,
        unread: Option<u32>,
        now_ms: f64,
    ) -> u32 {
        let body = body
            .map(|text| Ok(text.into_bytes()))
            .or_else(|| unread.map(|bytes| Err(body_error(bytes))));
        with(now_ms, |node, now, at| {
            let id = node.begin(OwnRequest { request, country, now, body }, at);
            node.step(id, now, at).of(id)
        })
    }

    /// The token to verify: algorithm, name of the binding, signed bytes, signature, and the name of the key if there is
    /// one, each on a line.
    #[must_use]
    pub fn token(exchange: u32, now_ms: f64) -> Option<String> {
        with(now_ms, |node, _, _| {
            let token = node.exchanges.get_mut(&exchange)?.token()?;
            let Verify { algorithm, keys, signed, signature, key_id } = token;
            let key_id = key_id.as_deref().unwrap_or_default();
            Some([algorithm.name(), keys, signed, signature, key_id].join("\n"))
        })
    }

    /// Goes on with an exchange whose token was verified, or was not, or could not be. Returns the same as `begin`.
    #[must_use]
    pub fn verified(exchange: u32, is_verified: Option<bool>, now_ms: f64) -> u32 {
        with(now_ms, |node, now, at| {
            if let Some(running) = node.exchanges.get_mut(&exchange) {
                running.exchange.verified(is_verified.ok_or(NoKeys), &mut random);
            }
            node.step(exchange, now, at).of(exchange)
        })
    }

    /// Renews a lease, or releases it.
    pub fn hold(renews: bool, policy: &str, key: &str, name: &str, now_ms: f64) {
        let lease = Held { renews, policy, key, name };
        with(now_ms, |node, now, at| node.hold(&lease, now, at));
    }

    /// The response to a request whose upstream did not answer.
    #[must_use]
    pub fn upstream_failed(accept: Option<String>) -> String {
        text(&upstream_failed(accept.as_deref()))
    }

    /// The next question to send: on lines its number, the hash of the revision of the policies by which it must be
    /// answered, which is empty for the deployed one, and the number of UTF-16 units of the object's name; then that
    /// name and the question.
    #[must_use]
    pub fn transmit(now_ms: f64) -> Option<String> {
        with(now_ms, |node, _, at| {
            let question = node.outbox.poll_transmit(at);
            node.settle(&JsValue::UNDEFINED); // operations that have waited too long have an answer now
            let Question { number, to, bytes } = question?;
            let revision = policies::hash_of(to.policy()).unwrap_or_default();
            let object = to.object_name();
            let units = object.encode_utf16().count();
            Some(format!("{number}\n{revision}\n{units}\n{object}{}", packed::pack(&bytes)))
        })
    }

    /// Takes the reply to a question. No reply, or one that cannot be read, leaves the outcome unknown. `cause` is the
    /// error of a call that failed, for the log. The storage of the object may be known to be the reason.
    pub fn reply(
        number: f64,
        reply: Option<String>,
        storage_failed: bool,
        cause: &JsValue,
        now_ms: f64,
    ) {
        let failure = match storage_failed {
            true => Failure::Store(STORAGE_FAILED.to_owned()),
            false => Failure::Unknown,
        };
        with(now_ms, |node, _, at| {
            if let Some(bytes) = reply.and_then(|reply| packed::unpack(&reply)) {
                let _ = node.outbox.handle_reply(&bytes, at); // the question then gets its answer by the next line
            }
            node.outbox.handle_lost(whole(number), &failure, at); // does nothing if the reply came
            node.settle(cause);
        });
    }

    /// The exchanges that share a call and must go on.
    #[must_use]
    pub fn woken(now_ms: f64) -> Vec<u32> {
        with(now_ms, |node, _, at| {
            node.forget(at);
            node.woken()
        })
    }

    /// Whether an exchange waits for replies.
    #[must_use]
    pub fn waits(exchange: u32, now_ms: f64) -> bool {
        with(now_ms, |node, _, _| {
            node.exchanges.get(&exchange).is_some_and(|running| running.end.is_none())
        })
    }

    /// Whether some policy lets checks share calls.
    #[must_use]
    pub fn shares_calls(now_ms: f64) -> bool {
        with(now_ms, |node, _, _| node.in_force.shares_calls)
    }

    /// The response of an exchange: the status, the names and values of its headers each on a line, an empty line, the
    /// body. For a request that passes the status is 0, the headers are those to add, and the body says on lines: the
    /// upstream's URL, the client's address, and of the lease, if one is held, the milliseconds between two renewals,
    /// policy, key and name.
    #[must_use]
    pub fn finish(exchange: u32, now_ms: f64) -> String {
        let running = with(now_ms, |node, _, _| node.exchanges.remove(&exchange));
        match running.and_then(|running| running.end) {
            Some(End::Served(served)) => served_text(served),
            _ => text(&http::internal_error("the request has no response".into())),
        }
    }
}

/// The text of what is done with a request.
pub(crate) fn served_text(served: Served) -> String {
    match served {
        Served::Response(response) => text(&response),
        Served::Pass(pass) => text(&passed(pass)),
    }
}

/// The form in which JavaScript gets a request that passes.
fn passed(Pass { url, client, headers, lease }: Pass) -> Response {
    let mut body = [url.unwrap_or_default(), client.unwrap_or_default()].join("\n");
    if let Some(lease) = lease {
        let renew_every_ms = (lease.renew_every.0 / 1_000).max(1).to_string();
        for line in [&renew_every_ms, &lease.policy, &lease.key, &lease.name] {
            body.push('\n');
            body.push_str(line); // no line contains a line break: keys from requests are escaped
        }
    }
    Response { status: 0, headers, body }
}

fn size(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// What `begin` means by the number of bytes that were read of a body.
pub(crate) fn body_error(bytes: u32) -> BodyError {
    match usize::try_from(bytes) {
        Ok(0) => BodyError::Incomplete,
        bytes => BodyError::TooLarge(bytes.unwrap_or(usize::MAX)),
    }
}

pub(crate) fn text(response: &Response) -> String {
    let headers = response.headers.iter().map(|(name, value)| name.len() + value.len() + 2);
    let length = headers.fold(response.body.len() + 5, usize::saturating_add);
    let mut text = String::with_capacity(length);
    text.push_str(&response.status.to_string());
    for (name, value) in &response.headers {
        for part in ["\n", name, "\n", value] {
            text.push_str(part);
        }
    }
    text.push_str("\n\n");
    text.push_str(&response.body);
    text
}
