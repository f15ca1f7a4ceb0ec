//! The functions that JavaScript calls in an isolate, and the texts in which it gets the answers.

use std::sync::Arc;

use tidegate_gate::gateway::{self, Pass, Served};
use tidegate_gate::http::{self, BodyError, Response, Tokens};
use tidegate_gate::{Policy, Verify};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::exchange::{OwnHead, Tells};
use crate::node::{self, End, Held, Node, Told, Wants, with};
use crate::policies;

/// The bit in the number of an exchange that waits for a verification, which JavaScript takes off.
const VERIFICATION: i32 = 1 << 30;

/// The functions that JavaScript calls in an isolate. An exchange is one request, under a number.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Isolate;

#[wasm_bindgen]
extern "C" {
    /// The headers of a request.
    pub type Headers;

    #[wasm_bindgen(method, catch)]
    pub(crate) fn get(this: &Headers, name: &str) -> Result<Option<String>, JsValue>;
}

/// A question for an object.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Question {
    object: String,
    policy: Arc<Policy>,
    bytes: Vec<u8>,
    number: u64,
}

#[wasm_bindgen]
impl Question {
    /// The name of the object.
    #[wasm_bindgen(getter)]
    #[must_use]
    pub fn object(&self) -> String {
        self.object.clone()
    }

    /// The hash of the edition of the policies by which the question must be answered; `undefined` for the deployed one.
    #[wasm_bindgen(getter)]
    #[must_use]
    pub fn edition(&self) -> Option<String> {
        policies::hash_of(&self.policy)
    }

    /// The bytes to send. Can be taken once.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// The number of the question.
    #[wasm_bindgen(getter)]
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }
}

#[wasm_bindgen]
impl Isolate {
    /// Reads the policy file. Returns a response if the Worker cannot work, which must be sent to every request.
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
            Err(reason) => Some(text(&http::internal_error(reason))),
        }
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
        with(now_ms, |node, _, _| node.in_force.edition.policies.reads_country())
    }

    /// Begins an exchange and returns its number. A negative number, less one, waits for its body: it must get the body
    /// at once, or be given up and begun again once the body has arrived. A number of 2^30 or more, less 2^30, waits for
    /// the verification of its token.
    #[must_use]
    pub fn begin(
        method: String,
        url: String,
        headers: Headers,
        country: Option<String>,
        now_ms: f64,
    ) -> i32 {
        // an unreadable header counts as missing, so a request that depends on it is refused
        let header = move |name: &str| headers.get(name).ok().flatten();
        with(now_ms, |node, now, at| {
            let id = node.begin(OwnHead { method, url, country, now, header }, at);
            let wants = node.step(id, now, at);
            match (wants, i32::try_from(id).unwrap_or(0)) {
                (Wants::Nothing, id) => id,
                (Wants::Body, id) => -id - 1,
                (Wants::Verification, id) => id | VERIFICATION,
            }
        })
    }

    /// Gives up an exchange that waits for its body.
    pub fn give_up(exchange: u32, now_ms: f64) {
        with(now_ms, |node, _, _| node.exchanges.remove(&exchange));
    }

    /// Goes on with the body of an exchange.
    pub fn body(exchange: u32, body: Vec<u8>, now_ms: f64) {
        go_on(exchange, Ok(body), now_ms);
    }

    /// Goes on with a body that is longer than any call takes. This many bytes were read.
    pub fn too_large(exchange: u32, bytes: u32, now_ms: f64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        go_on(exchange, Err(BodyError::TooLarge(bytes)), now_ms);
    }

    /// Goes on without a body, because it did not arrive whole.
    pub fn incomplete(exchange: u32, now_ms: f64) {
        go_on(exchange, Err(BodyError::Incomplete), now_ms);
    }

    /// The token to verify: algorithm, name of the binding, signed bytes, signature, and the name of the key if there is
    /// one, each on a line.
    #[must_use]
    pub fn token(exchange: u32, now_ms: f64) -> Option<String> {
        let running = |node: &mut Node, _, _| node.exchanges.get_mut(&exchange)?.verify.take();
        let Verify { algorithm, keys, signed, signature, key_id } = with(now_ms, running)?;
        let key_id = key_id.unwrap_or_default();
        Some([algorithm.name(), &keys, &signed, &signature, &key_id].join("\n"))
    }

    /// Goes on with an exchange whose token was verified, or was not.
    pub fn verified(exchange: u32, is_verified: bool, now_ms: f64) {
        with(now_ms, |node, now, at| {
            if let Some(running) = node.exchanges.get_mut(&exchange) {
                running.exchange.verified(is_verified);
                node.step(exchange, now, at);
            }
        });
    }

    /// Renews a lease, or releases it.
    pub fn hold(renews: bool, policy: &str, key: &str, name: &str, now_ms: f64) {
        let lease = Held { renews, policy, key, name };
        with(now_ms, |node, now, at| node.hold(&lease, now, at));
    }

    /// The response to a request whose upstream did not answer.
    #[must_use]
    pub fn upstream_failed(accept: Option<String>) -> String {
        text(&gateway::upstream_failed(accept.as_deref()))
    }

    /// What an exchange waits for: 1 for the replies to its questions, 2 for the object of the editions, 0 for nothing.
    /// The node itself may ask something too, and no request waits for that.
    #[must_use]
    pub fn waits(exchange: u32, now_ms: f64) -> u32 {
        with(now_ms, |node, _, _| {
            let running = node.exchanges.get(&exchange);
            running.map_or(0, |running| match running.end {
                None => 1,
                Some(End::Asks(_)) => 2,
                Some(End::Served(_)) => 0,
            })
        })
    }

    /// The next question to send.
    #[must_use]
    pub fn transmit(now_ms: f64) -> Option<Question> {
        with(now_ms, |node, _, at| {
            let question = node.flights.poll_transmit(at)?;
            let object = question.to.object_name();
            let policy = Arc::clone(question.to.policy());
            Some(Question { object, policy, bytes: question.bytes, number: question.number })
        })
    }

    /// Takes the reply to a question. Bytes that are no reply change nothing.
    pub fn reply(bytes: &[u8], now_ms: f64) {
        with(now_ms, |node, _, at| {
            let _ = node.flights.handle_reply(bytes, at); // the question then gets its answer by `lost`
            node.settle();
        });
    }

    /// Takes note that a question has no reply, or none that could be read.
    pub fn lost(number: u64, now_ms: f64) {
        with(now_ms, |node, _, at| {
            node.flights.handle_lost(number, at);
            node.settle();
        });
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

fn go_on(exchange: u32, body: Result<Vec<u8>, BodyError>, now_ms: f64) {
    with(now_ms, |node, now, at| {
        if let Some(running) = node.exchanges.get_mut(&exchange) {
            running.exchange.body(body);
            node.step(exchange, now, at);
        }
    });
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
