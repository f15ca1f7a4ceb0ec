//! The decision API over HTTP: [`serve`] reads requests, asks the store and writes responses.
//!
//! ```no_run
//! use tidegate::http::{Access, Tokens};
//! use tidegate::serve::{Bounds, Files, Service, Watch, serve};
//! use tidegate::{Policies, Store};
//! use tokio::net::TcpListener;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let files = Files::new(std::fs::read_to_string("policies.toml")?);
//! let policies = Policies::parse(files.in_force())?;
//! let store = Store::memory(&policies, 256 << 20)?;
//! let tokens = Tokens { decisions: Some("secret".to_owned()), ..Tokens::default() };
//! let access = Access::new(&policies, tokens)?;
//! let (bounds, watch) = (Bounds::default(), Watch::default());
//! let service = Service { policies, files, store, access, bounds, watch };
//! let listener = TcpListener::bind("127.0.0.1:8080").await?;
//! serve(service, listener, std::future::pending()).await; // until the process ends
//! # Ok(())
//! # }
//! ```

mod durations;
mod files;
mod head;
mod stream;
mod watched;

use std::convert::Infallible;
use std::fmt::{self, Display};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tidegate_gate::{Policies, Verdict};
use tidegate_http::{
    self as http, Access, BodyError, Check, Exchange, Head, Limited, Log, LogSecret,
    MAX_BODY_BYTES, MAX_DRAINED_BYTES, NoKeys, Outcome, Served, Step,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::clock;
use crate::http_message::{joined, random, response};
use crate::store::{Store, StoreError};
use durations::Durations;
pub use files::{Files, accepts};
use files::{InForce, Swap};
use stream::Stream;

/// How often the server forgets expired states.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// How long requests under way may take after the server is stopped.
const DRAIN_FOR: Duration = Duration::from_secs(5);

/// Delay before retrying `accept`, for example when the process is out of file descriptors.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// About how many bytes the server reads ahead on each connection, and so how long a head may be. A key
/// in a query takes at most 1,536 bytes.
const READ_AHEAD_BYTES: usize = 65_536;

/// A decision API to serve.
#[derive(Debug)]
pub struct Service {
    /// The policies to decide by.
    pub policies: Policies,
    /// The file of the policies, which callers with the token for administration may replace.
    pub files: Files,
    /// The store that keeps the states.
    pub store: Store,
    /// Which callers may use the API.
    pub access: Access,
    /// How much of the server clients may use.
    pub bounds: Bounds,
    /// What the server tells about itself.
    pub watch: Watch,
}

/// What the server tells about itself.
#[derive(Clone)]
pub struct Watch {
    /// Whether answers say in `Server-Timing` how long the store took.
    pub server_timing: bool,
    /// The secret of the hashes that stand for keys in the log. Random by default, so that no one can look a key up.
    pub log_secret: String,
}

impl Default for Watch {
    fn default() -> Self {
        let random = RandomState::new(); // random keys of the standard library
        let log_secret = format!("{:x}{:x}", random.hash_one("first"), random.hash_one("second"));
        Self { server_timing: false, log_secret }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("server_timing", &self.server_timing).finish_non_exhaustive()
    }
}

/// How much of the server clients may use.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The longest time for a request's head, counted from when the connection opened or the last answer was
    /// written, and the longest time for its body, counted from the end of the head.
    pub read_timeout: Duration,
    /// The longest time for the head of the first request, counted from when the connection opened, so that
    /// silent connections give up their places. The shorter of the two times counts.
    pub first_head_timeout: Duration,
    /// The longest time that an answer may take from the first write that has to wait until the client has
    /// taken all of it.
    pub write_timeout: Duration,
    /// The largest number of open connections. Further ones wait in the queue of the operating system.
    pub max_connections: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            // Proxies keep idle connections for a minute. The proxy has to close first, because a
            // request on a connection that the server is closing gets no answer.
            read_timeout: Duration::from_secs(75),
            first_head_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(30),
            max_connections: 1_000,
        }
    }
}

/// Serves until `stop` resolves, then answers the requests under way for up to 5 s and returns.
pub async fn serve(service: Service, listener: TcpListener, stop: impl Future<Output = ()> + Send) {
    let places =
        Arc::new(Semaphore::new(service.bounds.max_connections.clamp(1, Semaphore::MAX_PERMITS)));
    let Service { policies, files, store, access, bounds, watch } = service;
    let swap = Swap::new((Arc::new(policies), access, store), files);
    let (log, log_secret) = (Mutex::default(), LogSecret::new(watch.log_secret.as_bytes()));
    let (durations, limited) = (Durations::default(), Mutex::default());
    let server = Arc::new(Server { swap, bounds, watch, log, log_secret, durations, limited });
    let sweeper = tokio::spawn(sweep(Arc::clone(&server)));
    let connections = GracefulShutdown::new();
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, peer, place)) => {
                let (server, watcher) = (Arc::clone(&server), connections.watcher());
                tokio::spawn(async move {
                    talk(server, stream, peer, watcher).await;
                    drop(place);
                });
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {} // the client has gone
            Err(error) => {
                server.log_error(&error);
                sleep(ACCEPT_AGAIN_AFTER).await;
            }
        }
    }
    drop(listener);
    // connections that take longer are dropped
    let _ = timeout(DRAIN_FOR, connections.shutdown()).await;
    sweeper.abort();
    server.log().rest().into_iter().for_each(warn);
}

/// Waits until fewer than the largest number of connections are open, then accepts the next one.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer, place))
}

async fn sweep(server: Arc<Server>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    loop {
        ticks.tick().await;
        let in_force = server.swap.in_force();
        in_force.store.announce(&in_force.policies);
        in_force.store.sweep(clock::now());
        server.log().rest().into_iter().for_each(warn);
    }
}

/// Answers all requests of a connection.
async fn talk(server: Arc<Server>, stream: TcpStream, peer: SocketAddr, watcher: Watcher) {
    let Bounds { read_timeout, first_head_timeout, write_timeout, .. } = server.bounds;
    let has_head = Arc::new(Notify::new());
    let first_head = Arc::clone(&has_head);
    let answer = service_fn(move |request| {
        has_head.notify_one();
        let server = Arc::clone(&server);
        async move {
            Ok::<_, Infallible>(response(server.answer(peer, request).await, Full::<Bytes>::from))
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(read_timeout);
    builder.max_buf_size(READ_AHEAD_BYTES);
    let stream = TokioIo::new(Stream::new(stream, write_timeout));
    let connection = builder.serve_connection(stream, answer);
    let mut connection = pin!(watcher.watch(connection));
    // an error is ignored: the client broke off or was too slow, so nobody is there to tell
    tokio::select! {
        biased;
        _ = &mut connection => {}
        () = first_head.notified() => { let _ = connection.await; }
        () = sleep(first_head_timeout) => {}
    }
}

/// Never holds more than [`MAX_BODY_BYTES`].
async fn read_body(mut body: Incoming) -> Result<Vec<u8>, BodyError> {
    let mut bytes = Vec::new();
    let mut length = 0_usize;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Err(BodyError::Incomplete) };
        let Ok(chunk) = frame.into_data() else { continue };
        length = length.saturating_add(chunk.len());
        if length > MAX_DRAINED_BYTES {
            break;
        }
        if length <= MAX_BODY_BYTES {
            bytes.extend_from_slice(&chunk);
        }
    }
    if length <= MAX_BODY_BYTES { Ok(bytes) } else { Err(BodyError::TooLarge(length)) }
}

#[derive(Debug)]
struct Server {
    swap: Swap,
    bounds: Bounds,
    watch: Watch,
    log: Mutex<Log>,
    log_secret: LogSecret,
    durations: Durations,
    limited: Mutex<Limited>,
}

impl Server {
    async fn answer(&self, peer: SocketAddr, request: Request<Incoming>) -> http::Response {
        let began = Instant::now();
        let (parts, body) = request.into_parts();
        if let Some(refusal) = head::refusal(&parts) {
            return refusal;
        }
        let in_force = self.swap.at(clock::now(), |error| self.log_error(error)).await;
        let mut exchange = self.exchange(peer, &parts, &in_force);
        let answer = self.drive(&mut exchange, body, &in_force).await;
        self.durations.add(began.elapsed());
        answer
    }

    fn exchange(&self, peer: SocketAddr, parts: &Parts, in_force: &InForce) -> Exchange {
        let InForce { policies, access, tag, .. } = in_force;
        let metrics = &|| self.metrics(in_force);
        let watched = &|what, clear| self.watched(in_force, what, clear);
        let server = http::Server { policies, access, revision: tag, metrics, watched };
        let head = Head {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or(""),
            header: &|name| joined(&parts.headers, name),
            client_ip: &|| Some(peer.ip().to_canonical().to_string()),
            now: clock::now(),
            ..Head::default()
        };
        Exchange::of_api(&server, &head, &mut random)
    }

    async fn drive(
        &self,
        exchange: &mut Exchange,
        body: Incoming,
        in_force: &InForce,
    ) -> http::Response {
        let (mut body, mut took) = (Some(body), None);
        loop {
            match exchange.step() {
                Step::Body | Step::Copy => exchange.body(self.read(body.take()).await, &mut random),
                Step::Decide(checks) => {
                    let began = self.watch.server_timing.then(Instant::now);
                    let outcomes = self.decide(checks, in_force).await;
                    took = began.map(|began| began.elapsed());
                    exchange.decided(outcomes);
                }
                Step::Change(call) => {
                    let answer = self.swap.handle(call, |error| self.log_error(error)).await;
                    if answer.status == 200 {
                        call.describe(&self.log_secret).into_iter().for_each(audit);
                        self.limited().keep(&self.swap.in_force().policies);
                    }
                    exchange.changed(answer);
                }
                Step::Verify(_) => exchange.verified(Err(NoKeys), &mut random), // `accepts` refuses such policies
                Step::Done(Served::Response(mut response)) => {
                    let timing = took.map(|took| ("server-timing", timing(in_force, took)));
                    response.headers.extend(timing);
                    return response;
                }
                Step::Done(Served::Pass(_)) => {
                    return http::internal_error("this server has no upstreams".to_owned());
                }
            }
        }
    }

    async fn read(&self, body: Option<Incoming>) -> Result<Vec<u8>, BodyError> {
        let Some(body) = body else { return Err(BodyError::Incomplete) };
        let read_timeout = self.bounds.read_timeout;
        let read = timeout(read_timeout, read_body(body)).await;
        read.unwrap_or(Err(BodyError::TooLate(read_timeout)))
    }

    async fn decide(&self, checks: &[Check], in_force: &InForce) -> Vec<Outcome> {
        let now = clock::now(); // one time for the whole request; a time given by the caller is ignored
        let asked: Vec<_> =
            checks.iter().map(|check| (check.resolved(), check.operation())).collect();
        let answers = in_force.store.operate_all(now, &asked).await;
        let outcome = |(check, answer): (&Check, Result<Verdict, StoreError>)| {
            let outcome = match answer {
                Ok(verdict) => {
                    if verdict.degraded {
                        let cause = in_force.store.outage();
                        let cause = cause.map_or_else(String::new, |error| error.without_key());
                        let told = format!("decided by this host's share of the limits: {cause}");
                        self.log_error(&self.log_secret.describe(check.resolved(), &told));
                    }
                    Outcome::Decided(verdict)
                }
                Err(error) => {
                    let cause = StoreError::without_key(&error);
                    self.log_error(&self.log_secret.describe(check.resolved(), &cause));
                    Outcome::Unavailable(StoreError::summary(&error).to_owned())
                }
            };
            if in_force.metrics.count(check, &outcome) {
                self.limited().count(check, &outcome, now);
            }
            outcome
        };
        checks.iter().zip(answers).map(outcome).collect()
    }

    fn metrics(&self, InForce { metrics, store, tag, .. }: &InForce) -> String {
        let mut text = metrics.text(tag.version, &store.local_answers());
        if let Some(hosts) = store.hosts() {
            let help = "Hosts last seen on the store, among which limits are divided in an outage";
            text += &format!(
                "# HELP tidegate_hosts {help}.\n# TYPE tidegate_hosts gauge\ntidegate_hosts {hosts}\n"
            );
        }
        self.durations.write(&mut text);
        text
    }

    fn log_error(&self, error: &dyn Display) {
        let line = self.log().line(clock::now(), error);
        line.into_iter().for_each(warn);
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The value of the header `Server-Timing`.
fn timing(in_force: &InForce, took: Duration) -> String {
    let (store, took) = (in_force.store.name(), took.as_micros());
    format!("tidegate;dur={}.{:03};desc=\"{store}\"", took / 1_000, took % 1_000)
}

/// Writes who changed what, and when, to standard error.
fn audit(what: String) {
    let _ = writeln!(io::stderr().lock(), "audit: {what}, at {} µs", clock::now().0);
}

/// Writes a warning to standard error. If that fails, the warning is lost and the server goes on.
pub fn warn(what: impl Display) {
    let _ = writeln!(io::stderr().lock(), "warning: {what}");
}
