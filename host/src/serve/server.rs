//! From a request to its response: drives the exchange, and asks the store.

use std::future::poll_fn;
use std::mem::replace;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::http::request::Parts;
use hyper::{Method, Version};
use tidegate_gate::Timestamp;
use tidegate_http::{
    self as http, BodyError, Check, Counted, Exchange, Head, Limited, LogSecret, MAX_BODY_BYTES,
    MAX_DRAINED_BYTES, NoKeys, Outcome, Served, Step,
};
use tokio::time::timeout;

use super::durations::Durations;
use super::files::{InForce, Swap};
use super::log::{Caller, ServerLog};
use super::metrics::{StoreErrors, write_calendars, write_hosts, write_in_force};
use super::options::{Bounds, Watch};
use super::places::Places;
use super::readiness::Readiness;
use super::room::Part;
use super::spans::Spans;
use super::{calendar, head, log};
use crate::clock::{self, Began};
use crate::http_message::{joined, random};
use crate::store::{Store, StoreError, Told};

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) swap: Swap,
    pub(super) bounds: Bounds,
    pub(super) places: Places,
    pub(super) log: ServerLog,
    server_timing: bool,
    durations: Durations,
    store_errors: StoreErrors,
    /// The kind of the last error in counting this host, which was told.
    uncounted: Mutex<Option<&'static str>>,
    readiness: Readiness,
    pub(super) limited: Mutex<Limited>,
}

/// A request on its way to its response.
struct Asked<'r> {
    caller: Caller<'r>,
    in_force: &'r InForce,
    spans: Spans,
    /// How many bytes of a body that is too long are read before the answer.
    most_drained: usize,
}

impl Server {
    pub(super) fn new(swap: Swap, bounds: Bounds, watch: &Watch) -> Self {
        Self {
            swap,
            bounds,
            places: Places::new(bounds.max_connections),
            log: ServerLog::new(LogSecret::new(watch.log_secret.as_bytes())),
            server_timing: watch.server_timing,
            durations: Durations::default(),
            store_errors: StoreErrors::default(),
            uncounted: Mutex::default(),
            readiness: Readiness::default(),
            limited: Mutex::default(),
        }
    }

    pub(super) async fn answer(
        &self,
        peer: SocketAddr,
        parts: &Parts,
        body: Incoming,
        part: &mut Part,
    ) -> http::Response {
        let mut body = Some(body);
        if !matches!(parts.method, Method::POST | Method::PUT) {
            part.answer(0).await; // of the others the body is read first
        }
        let mut answer = match head::refusal(parts) {
            Some(refusal) => refusal,
            None => self.answer_to(peer, parts, &mut body, part).await,
        };
        if body
            .as_ref()
            .is_some_and(|rest| !rest.is_end_stream() && parts.version != Version::HTTP_2)
        {
            // hyper closes a connection whose body nobody has read, and a client must know it (RFC 9112 §9.6)
            answer.headers.push(("connection", "close".into()));
        }
        // RFC 9113 §8.1 lets a server end a stream whose body it has not read, but clients such as curl 7.88 take that for an error
        // and show no answer
        if let Some(rest) = body.filter(|_| parts.version == Version::HTTP_2) {
            let _ = Box::pin(timeout(self.bounds.read_timeout, drain(rest))).await;
        }
        answer
    }

    async fn answer_to(
        &self,
        peer: SocketAddr,
        parts: &Parts,
        body: &mut Option<Incoming>,
        part: &mut Part,
    ) -> http::Response {
        let began = Began::now();
        let now = clock::now();
        let in_force = self.swap.at(now, |error| self.log.error(error)).await;
        let mut exchange = self.exchange(peer, parts, now, &in_force);
        let caller = Caller { client: peer.ip(), headers: &parts.headers };
        let spans = Spans::of(&parts.headers);
        let most_drained = match parts.version {
            Version::HTTP_2 => usize::MAX, // as long as the time lasts, because the stream could not end with an answer
            _ => MAX_DRAINED_BYTES,
        };
        let asked = Asked { caller, in_force: &in_force, spans, most_drained };
        let answer = self.drive(&mut exchange, body, &asked, part).await;
        self.durations.add(began.elapsed());
        answer
    }

    fn exchange(
        &self,
        peer: SocketAddr,
        parts: &Parts,
        now: Timestamp,
        in_force: &InForce,
    ) -> Exchange {
        let InForce { policies, access, tag, .. } = in_force;
        let metrics = &|| self.metrics(in_force);
        let server = http::Server { policies, access, revision: tag, metrics };
        let head = Head {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or(""),
            header: &|name| joined(&parts.headers, name),
            client_ip: &|| Some(peer.ip()),
            now,
            ..Head::default()
        };
        Exchange::of_api(&server, &head, &mut random)
    }

    async fn drive(
        &self,
        exchange: &mut Exchange,
        body: &mut Option<Incoming>,
        asked: &Asked<'_>,
        part: &mut Part,
    ) -> http::Response {
        let (in_force, mut took) = (asked.in_force, None);
        loop {
            match exchange.step() {
                Step::Body | Step::Copy => {
                    let read = self.read(body.take(), asked.most_drained, part).await;
                    part.answer(read.as_ref().map_or(0, Vec::len)).await;
                    exchange.body(read, &mut random);
                }
                Step::Decide(checks) => {
                    let began = self.server_timing.then(Began::now);
                    let outcomes = self.decide(checks, asked).await;
                    took = began.map(|began| began.elapsed());
                    exchange.decided(outcomes);
                }
                Step::Change(call) => {
                    // boxed, as below: the future of every request would have room for this one
                    let answer = self.swap.handle(call, |error| self.log.error(error));
                    let answer = Box::pin(answer).await;
                    if answer.status == 200 {
                        self.audit(call, &asked.caller);
                        self.limited().keep(&self.swap.in_force().policies);
                    }
                    exchange.changed(answer);
                }
                Step::Probe => {
                    let ready = Box::pin(self.readiness.ask(&in_force.store)).await;
                    let warnings = |()| calendar::warnings(&in_force.calendars, clock::now());
                    exchange.probed(ready.map(warnings));
                }
                Step::Watch { what, clear } => {
                    exchange.watched(Ok(self.watched(in_force, what, clear)));
                }
                Step::Verify(_) => exchange.verified(Err(NoKeys), &mut random), // `accepts` refuses such policies
                Step::Done(Served::Response(mut response)) => {
                    let timing = took.map(|took| ("server-timing", timing(in_force, took).into()));
                    response.headers.extend(timing);
                    return response;
                }
                Step::Done(Served::Pass(_)) => {
                    return http::internal_error("this server has no upstreams".to_owned());
                }
            }
        }
    }

    async fn read(
        &self,
        body: Option<Incoming>,
        most_drained: usize,
        part: &mut Part,
    ) -> Result<Vec<u8>, BodyError> {
        let Some(body) = body else { return Err(BodyError::Incomplete) };
        let mut read = pin!(read_body(body, most_drained, part));
        // most bodies come with their heads, and need no timer
        if let Poll::Ready(read) = poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await
        {
            return read;
        }
        let read_timeout = self.bounds.read_timeout;
        let read = Box::pin(timeout(read_timeout, read)).await;
        read.unwrap_or(Err(BodyError::TooLate(read_timeout)))
    }

    async fn decide(&self, checks: &[Check], asked: &Asked<'_>) -> Vec<Outcome> {
        let Asked { caller, in_force, spans, .. } = asked;
        let began = spans.begin();
        let now = clock::now(); // one time for the whole request; a time given by the caller is ignored
        let operations = checks.iter().map(|check| (check, check.resolved(), check.operation()));
        let outcome = |check: &Check, Told { verdict, mut cause }: Told| {
            let outcome = match verdict {
                Ok(verdict) => {
                    if verdict.degraded {
                        cause.iter().for_each(|error| self.store_errors.count(error));
                        self.log.share(check.resolved(), cause.as_ref());
                    }
                    Outcome::Decided(verdict)
                }
                Err(error) => {
                    self.store_errors.count(&error);
                    self.log.store_error(check.resolved(), &error);
                    let summary = StoreError::summary(&error).to_owned();
                    let is_unreadable = error.is_unreadable();
                    cause = Some(error);
                    match is_unreadable {
                        true => Outcome::Unreadable(summary),
                        false => Outcome::Unavailable(summary),
                    }
                }
            };
            if in_force.metrics.count(check, &outcome) {
                let mut limited = self.limited();
                limited.count(check, &outcome, now);
                cause.iter().for_each(|cause| limited.explain(cause.without_key()));
            }
            self.tell(check, &outcome, caller);
            spans.end(began, check, &outcome);
            outcome
        };
        in_force.store.operate_each(now, operations, outcome).await
    }

    /// Tells the log of a refusal, and of a change of a key.
    fn tell(&self, check: &Check, outcome: &Outcome, caller: &Caller<'_>) {
        let Outcome::Decided(verdict) = outcome else { return };
        self.log.audit_key(check.resolved(), &check.operation(), caller);
        if !verdict.decision.is_allowed() && Counted::of(check, outcome).is_some() {
            self.log.refusal(check.resolved(), verdict.decision.retry_after().0);
        }
    }

    /// Tells once that the store does not count this host, and why.
    pub(super) fn note_uncounted(&self, store: &Store) {
        let mut told = self.uncounted.lock().unwrap_or_else(PoisonError::into_inner);
        let error = store.uncounted();
        let kind = error.as_ref().map(StoreError::kind);
        let is_new = replace(&mut *told, kind) != kind;
        if let Some(error) = error.filter(|_| is_new) {
            self.store_errors.count(&error);
            self.log.uncounted(&error);
        }
    }

    fn metrics(&self, in_force: &InForce) -> String {
        let InForce { metrics, policies, store, tag, calendars, .. } = in_force;
        self.note_uncounted(store);
        let mut text = metrics.text(tag.version, &store.local_answers());
        write_in_force(&mut text, policies, tag);
        write_calendars(&mut text, calendars);
        write_hosts(&mut text, store.hosts());
        self.places.write(&mut text);
        self.store_errors.write(&mut text);
        self.durations.write(&mut text);
        text
    }

    fn audit(&self, call: &http::PolicyCall, caller: &Caller<'_>) {
        if let Some(change) = call.audited(&self.log.secret) {
            self.log.audit(&change, caller.client);
            log::in_force(&self.swap.in_force().tag, "the policies were changed");
        }
    }
}

/// Never holds more than [`MAX_BODY_BYTES`].
async fn read_body(
    mut body: Incoming,
    most_drained: usize,
    part: &mut Part,
) -> Result<Vec<u8>, BodyError> {
    let mut bytes = Vec::new();
    let mut length = 0_usize;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Err(BodyError::Incomplete) };
        let Ok(chunk) = frame.into_data() else { continue };
        length = length.saturating_add(chunk.len());
        if length > most_drained {
            break;
        }
        if length <= MAX_BODY_BYTES {
            part.body(chunk.len()).await;
            bytes.extend_from_slice(&chunk);
        }
    }
    if length <= MAX_BODY_BYTES { Ok(bytes) } else { Err(BodyError::TooLarge(length)) }
}

/// Reads a body that nobody needs.
async fn drain(mut body: Incoming) {
    while let Some(Ok(_)) = body.frame().await {}
}

/// The value of the header `Server-Timing`.
fn timing(in_force: &InForce, took: Duration) -> String {
    let (store, took) = (in_force.store.name(), took.as_micros());
    format!("tidegate;dur={}.{:03};desc=\"{store}\"", took / 1_000, took % 1_000)
}
