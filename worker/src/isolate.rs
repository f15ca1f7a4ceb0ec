//! The functions that JavaScript calls in an isolate: the requests that it hands in, and the texts in which it gets the answers.

use std::rc::Rc;

use js_sys::Function;
use tidegate_gate::{Micros, Timestamp};
use tidegate_http::{
    self as http, BodyError, Exchange, Head, Outcome, Response, Served, Server, Step,
    upstream_failed,
};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use worker::Env;

use crate::bindings::Bindings;
use crate::clock::whole;
use crate::exchanges::{End, NextStep};
use crate::fields::Fields;
use crate::in_force::{InForce, Needs};
use crate::node::{self, LeaseOrReservation, Node, with};
use crate::policies::Revision;

/// How the URL of a call by RPC begins. The call is for the API, which routes may hide from requests over HTTP.
pub(crate) const RPC: &str = "rpc://";

/// How long an exchange waits for another one's call before it looks by itself whether it can go on.
const LONGEST_TURN_MS: u32 = 2_000;

/// The functions that JavaScript calls in an isolate. An exchange is one request, under a number.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Isolate;

#[wasm_bindgen]
impl Isolate {
    /// Reads the bindings and the policy file, and sets what each request needs from now on. Returns what is wrong with
    /// them, for the log: then the Worker cannot work, and every request gets the response of `misconfigured`.
    #[must_use]
    pub fn start(env: &Env, needs: Needs) -> Option<String> {
        let bindings = Bindings::read(env);
        bindings.and_then(|bindings| Node::new(bindings, needs)).map(node::set).err()
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
        let body = read(body, unread);
        with(now_ms, |node, now, at| {
            let id = begin(node, (&request, country.as_deref()), body, (now, at));
            node.step(id, now, at).of(id)
        })
    }

    /// Renews a lease, or releases it, or commits a reservation at its actual cost.
    pub fn hold(
        renews: bool,
        policy: &str,
        key: &str,
        name: &str,
        actual: Option<f64>,
        now_ms: f64,
    ) {
        let held = LeaseOrReservation { renews, policy, key, name, actual: actual.map(whole) };
        with(now_ms, |node, now, at| node.hold(&held, now, at));
    }

    /// The response to a request whose upstream did not answer before WebAssembly ended.
    #[must_use]
    pub fn upstream_failed(request: &Request) -> String {
        text(&upstream_failed(request.header("accept").as_deref(), &[]))
    }

    /// The calls that are due, in fields: how many, and of each the name of the object, the numbers of the questions, for
    /// [`reply`](Self::reply), and what to send.
    #[must_use]
    pub fn transmit(now_ms: f64) -> String {
        with(now_ms, |node, _, at| node.transmit(at))
    }

    /// Takes the reply of an object to the questions with these numbers. No reply, or one that cannot be read, leaves their
    /// outcomes unknown. `cause` is the error of a call that failed.
    pub fn reply(numbers: &str, reply: Option<String>, cause: &JsValue, now_ms: f64) {
        with(now_ms, |node, _, at| node.reply(numbers, &reply.unwrap_or_default(), cause, at));
    }

    /// Whether an exchange waits for replies.
    #[must_use]
    pub fn waits(exchange: u32, now_ms: f64) -> bool {
        with(now_ms, |node, _, at| {
            node.forget(at);
            node.exchanges.get(exchange).is_some_and(|running| running.end.is_none())
        })
    }

    /// Sets what lets an exchange go on that waits for another one's call: to its end, or to make the next call. Returns the
    /// time in ms after which it looks by itself whether it can go on.
    pub fn on_turn(exchange: u32, go_on: Function, now_ms: f64) -> u32 {
        with(now_ms, |node, _, _| {
            if let Some(running) = node.exchanges.get(exchange) {
                running.go_on = Some(go_on);
            }
        });
        LONGEST_TURN_MS
    }

    /// Ends an exchange with a request that was under way when WebAssembly ended: what its checks asked is not known.
    /// Takes and returns the same as `begin`.
    #[must_use]
    pub fn unavailable(
        request: Request,
        country: Option<String>,
        body: Option<String>,
        unread: Option<u32>,
        now_ms: f64,
    ) -> u32 {
        let body = read(body, unread).or(Some(Err(BodyError::Incomplete)));
        with(now_ms, |node, now, at| {
            let id = begin(node, (&request, country.as_deref()), body, (now, at));
            let in_force = Rc::clone(&node.in_force);
            if let Some(running) = node.exchanges.get(id) {
                running.end = Some(End::Served(unavailable(&in_force, &mut running.exchange)));
            }
            NextStep::Finish.of(id)
        })
    }

    /// The response of an exchange, in fields: the status, the headers, the body. `undefined` for a request that passes:
    /// [`forward`](Self::forward) then ends the exchange.
    #[must_use]
    pub fn finish(exchange: u32, now_ms: f64) -> Option<String> {
        with(now_ms, |node, _, _| {
            let running = node.exchanges.remove(exchange);
            match running.as_ref().and_then(|running| running.end.as_ref()) {
                Some(End::Served(Served::Response(response))) => Some(text(response)),
                Some(End::Answered(response)) => Some(response.clone()),
                Some(End::Served(Served::Pass(_))) => {
                    if let Some(running) = running {
                        node.exchanges.insert(exchange, running);
                    }
                    None
                }
                _ => Some(text(&http::internal_error("the request has no response".into()))),
            }
        })
    }
}

/// Begins an exchange with a request. `body` is `None` if it was not read.
fn begin(
    node: &mut Node,
    (request, country): (&Request, Option<&str>),
    body: Option<Result<Vec<u8>, BodyError>>,
    (now, at): (Timestamp, Micros),
) -> u32 {
    let (method, url) = (request.method(), request.url());
    let (authority, path, query) = parts(&url);
    let head = Head {
        method: &method,
        authority,
        path,
        query,
        header: &|name| request.header(name),
        // Cloudflare overwrites whatever the client sent
        client_ip: &|| request.header("cf-connecting-ip")?.parse().ok(),
        country,
        now,
    };
    node.begin((now, at), |InForce { revision, access, metrics, answers, .. }| {
        let Revision { policies, tag, .. } = &**revision;
        let metrics = &|| metrics.text(tag.version, &answers.all());
        let server = Server { policies, access, revision: tag, metrics };
        let mut exchange = match url.starts_with(RPC) {
            true => Exchange::of_api(&server, &head, &mut random),
            false => Exchange::new(&server, &head, &mut random),
        };
        if let Some(body) = body {
            exchange.body(body, &mut random);
        }
        exchange
    })
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
            Step::Probe => exchange.probed(Ok(Vec::new())),
            Step::Watch { .. } => exchange.watched(Err("the Worker began anew".to_owned())),
            Step::Change(_) | Step::Body | Step::Copy | Step::Verify(_) => {
                let response = http::internal_error("the Worker began anew".to_owned());
                return Served::Response(response);
            }
            Step::Done(served) => return served,
        }
    }
}

pub(crate) fn size(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A body as `begin` takes it.
fn read(body: Option<String>, unread: Option<u32>) -> Option<Result<Vec<u8>, BodyError>> {
    let error = |bytes| match usize::try_from(bytes) {
        Ok(0) => BodyError::Incomplete,
        bytes => BodyError::TooLarge(bytes.unwrap_or(usize::MAX)),
    };
    body.map(|text| Ok(text.into_bytes())).or_else(|| unread.map(|bytes| Err(error(bytes))))
}

pub(crate) fn text(response: &Response) -> String {
    let Response { status, headers, body } = response;
    let lengths = headers.iter().map(|(name, value)| name.len() + value.len() + 4);
    let mut fields = Fields::with_capacity(lengths.fold(body.len() + 8, usize::saturating_add));
    fields.number(u64::from(*status)).headers(headers).text(body);
    fields.into_text()
}

#[wasm_bindgen]
extern "C" {
    /// A request of the runtime. To read a field of it takes time, so only the fields that are needed are read.
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

/// The number may become the name of a lease, so it must not be guessable.
pub(crate) fn random() -> Option<u64> {
    getrandom::u64().ok()
}

/// The authority, path and query of a URL. The runtime has already parsed and normalized it, so no second parser is
/// needed; the Unicode tables of one would be a third of the bundle.
pub(crate) fn parts(url: &str) -> (&str, &str, &str) {
    let url = url.split_once('#').map_or(url, |(url, _fragment)| url);
    let (url, query) = url.split_once('?').unwrap_or((url, ""));
    let rest = url.split_once("://").map_or(url, |(_scheme, rest)| rest);
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    (authority, if path.is_empty() { "/" } else { path }, query)
}
