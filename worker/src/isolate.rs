//! The functions that JavaScript calls in an isolate, and the texts in which it gets the answers.

use std::panic;
use std::rc::Rc;

use js_sys::Date;
use tidegate_http::{
    self as http, BodyError, Exchange, NoKeys, Outcome, Response, Served, Step, upstream_failed,
};
use tidegate_tier::wire::{Failure, Question};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use worker::Env;

use crate::bindings::Bindings;
use crate::clock::whole;
use crate::exchange::{InForce, OwnRequest, parts, random};
use crate::fields::Fields;
use crate::keys::STORAGE_FAILED;
use crate::node::{self, End, Held, NextStep, Node, with};
use crate::tell::panicked;
use crate::{packed, policies, token};

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
    /// Reads the bindings and the policy file. Returns what is wrong with them, for the log: then the Worker cannot work,
    /// and every request gets the response of `misconfigured`.
    #[must_use]
    pub fn start(env: &Env) -> Option<String> {
        panic::set_hook(Box::new(|_| panicked()));
        Bindings::read(env).and_then(Node::new).map(node::set).err()
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

    /// How many bits of what `begin` returns are the [`NextStep`].
    #[must_use]
    pub fn step_bits() -> u32 {
        NextStep::BITS
    }

    /// Begins an exchange, with the body of the request or without it. `unread` says why a body could not be read: 0 if
    /// it did not arrive whole, else how many bytes were read of one that is too long. Returns the number of the
    /// exchange, and behind it the [`NextStep`] in [`step_bits`](Self::step_bits) bits.
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

    /// Verifies the token of an exchange, and goes on with it. Returns the same as `begin`.
    pub async fn verify(exchange: u32, env: Env) -> u32 {
        let token =
            with(Date::now(), |node, _, _| node.exchanges.get_mut(&exchange)?.token().cloned());
        let is_verified = match token {
            Some(token) => token::is_verified(&token, &env).await,
            None => None,
        };
        with(Date::now(), |node, now, at| {
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

    /// The next question to send, in fields: its number, the hash of the revision of the policies by which it must be
    /// answered, which is empty for the deployed one, the object's name, and the question.
    #[must_use]
    pub fn transmit(now_ms: f64) -> Option<String> {
        with(now_ms, |node, _, at| {
            let question = node.asks.outbox().poll_transmit(at);
            node.settle(&JsValue::UNDEFINED); // operations that have waited too long have an answer now
            let Question { number, to, bytes } = question?;
            let revision = policies::hash_of(to.policy()).unwrap_or_default();
            let mut fields = Fields::with_capacity(2 * bytes.len() + 128);
            fields
                .number(number)
                .text(&revision)
                .text(&to.object_name())
                .text(&packed::pack(&bytes));
            Some(fields.into_text())
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
                let _ = node.asks.outbox().handle_reply(&bytes, at); // the question then gets its answer by the next line
            }
            node.asks.outbox().handle_lost(whole(number), &failure, at); // does nothing if the reply came
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

    /// Ends an exchange with a request that was under way when WebAssembly ended: what its checks asked is not known.
    /// Returns the number of the exchange.
    #[must_use]
    pub fn unavailable(
        request: Request,
        country: Option<String>,
        body: Option<String>,
        now_ms: f64,
    ) -> u32 {
        let body = Some(body.map(String::into_bytes).ok_or(BodyError::Incomplete));
        with(now_ms, |node, now, at| {
            let id = node.begin(OwnRequest { request, country, now, body }, at);
            let in_force = Rc::clone(&node.in_force);
            if let Some(running) = node.exchanges.get_mut(&id) {
                running.end = Some(End::Served(unavailable(&in_force, &mut running.exchange)));
            }
            id
        })
    }

    /// The response of an exchange, in fields: the status, the headers, the body. `undefined` for a request that passes:
    /// [`forward`](Self::forward) then ends the exchange.
    #[must_use]
    pub fn finish(exchange: u32, now_ms: f64) -> Option<String> {
        with(now_ms, |node, _, _| {
            let running = node.exchanges.remove(&exchange);
            match running.as_ref().and_then(|running| running.end.as_ref()) {
                Some(End::Served(Served::Response(response))) => Some(text(response)),
                Some(End::Served(Served::Pass(_))) => {
                    running.and_then(|running| node.exchanges.insert(exchange, running));
                    None
                }
                _ => Some(text(&http::internal_error("the request has no response".into()))),
            }
        })
    }
}

/// What is done with a request whose checks have no outcomes.
fn unavailable(in_force: &InForce, exchange: &mut Exchange) -> Served {
    loop {
        match exchange.step() {
            Step::Decide(checks) => {
                let reason = "the Worker began anew, so the outcome is unknown";
                let outcome = |check| {
                    let outcome = Outcome::Unavailable(reason.to_owned());
                    in_force.metrics.count(check, &outcome);
                    outcome
                };
                let outcomes = checks.iter().map(outcome).collect();
                exchange.decided(outcomes);
            }
            Step::Change(_) | Step::Body | Step::Verify(_) => {
                let response = http::internal_error("the Worker began anew".to_owned());
                return Served::Response(response);
            }
            Step::Done(served) => return served,
        }
    }
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
    let Response { status, headers, body } = response;
    let lengths = headers.iter().map(|(name, value)| name.len() + value.len() + 4);
    let mut fields = Fields::with_capacity(lengths.fold(body.len() + 8, usize::saturating_add));
    fields.number(u64::from(*status)).headers(headers).text(body);
    fields.into_text()
}
