//! The decision API over HTTP: [`serve`] reads requests, asks the store and writes responses.
//!
//! ```no_run
//! use tidegate::gate::{Policies, http::{Access, Tokens}};
//! use tidegate::serve::{Bounds, Service, serve};
//! use tidegate::store::Store;
//! use tokio::net::TcpListener;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policies = Policies::parse(&std::fs::read_to_string("policies.toml")?)?;
//! let store = Store::memory(&policies, 256 << 20)?;
//! let tokens = Tokens { decisions: Some("secret".to_owned()), ..Tokens::default() };
//! let access = Access::new(&policies, tokens)?;
//! let service = Service { policies, store, access, bounds: Bounds::default() };
//! let listener = TcpListener::bind("127.0.0.1:8080").await?;
//! serve(service, listener, std::future::pending()).await; // until the process ends
//! # Ok(())
//! # }
//! ```

mod head;
mod stream;

use std::convert::Infallible;
use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::mem;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tidegate_gate::http::{
    self, Access, BodyError, Check, Head, MAX_BODY_BYTES, MAX_DRAINED_BYTES, Outcome,
};
use tidegate_gate::{Policies, Timestamp};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::clock;
use crate::store::{Store, StoreError};
use head::joined;
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
    /// The store that keeps the states.
    pub store: Store,
    /// Which callers may use the API.
    pub access: Access,
    /// How much of the server clients may use.
    pub bounds: Bounds,
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
    let server = Arc::new(Server { service, failures: Failures::default() });
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
                server.failures.line(clock::now(), &error).into_iter().for_each(warn);
                sleep(ACCEPT_AGAIN_AFTER).await;
            }
        }
    }
    drop(listener);
    // connections that take longer are dropped
    let _ = timeout(DRAIN_FOR, connections.shutdown()).await;
    sweeper.abort();
    server.failures.rest().into_iter().for_each(warn);
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
        server.service.store.sweep(clock::now());
        server.failures.rest().into_iter().for_each(warn);
    }
}

/// Answers all requests of a connection.
async fn talk(server: Arc<Server>, stream: TcpStream, peer: SocketAddr, watcher: Watcher) {
    let Bounds { read_timeout, first_head_timeout, write_timeout, .. } = server.service.bounds;
    let has_head = Arc::new(Notify::new());
    let first_head = Arc::clone(&has_head);
    let answer = service_fn(move |request| {
        has_head.notify_one();
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(response(server.answer(peer, request).await)) }
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

fn response(answer: http::Response) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(answer.body));
    match StatusCode::from_u16(answer.status) {
        Ok(status) => *response.status_mut() = status,
        Err(_) => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
    }
    for (name, value) in answer.headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
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
    service: Service,
    failures: Failures,
}

impl Server {
    async fn answer(&self, peer: SocketAddr, request: Request<Incoming>) -> http::Response {
        let (parts, body) = request.into_parts();
        if let Some(refusal) = head::refusal(&parts) {
            return refusal;
        }
        let mut exchange = Exchange { server: self, body: Some(body) };
        let Service { policies, access, .. } = &self.service;
        let responding = {
            let header = |name: &str| joined(&parts, name);
            let client_ip = peer.ip().to_canonical().to_string();
            let head = Head {
                method: parts.method.as_str(),
                path: parts.uri.path(),
                query: parts.uri.query().unwrap_or(""),
                header: &header,
                client_ip: Some(&client_ip),
                country: None,
                now: clock::now(),
            };
            http::respond(policies, access, &head, &mut exchange)
        };
        responding.await
    }
}

/// One request to the server.
struct Exchange<'a> {
    server: &'a Server,
    body: Option<Incoming>,
}

impl http::Server for Exchange<'_> {
    async fn body(&mut self) -> Result<Vec<u8>, BodyError> {
        let Some(body) = self.body.take() else { return Err(BodyError::Incomplete) };
        let read_timeout = self.server.service.bounds.read_timeout;
        let read = timeout(read_timeout, read_body(body)).await;
        read.unwrap_or(Err(BodyError::TooLate(read_timeout)))
    }

    async fn decide(&mut self, checks: &[Check]) -> Vec<Outcome> {
        let now = clock::now(); // one time for the whole request; a time given by the caller is ignored
        let asked: Vec<_> =
            checks.iter().map(|check| (check.resolved(), check.operation())).collect();
        let Server { service, failures } = self.server;
        let answers = service.store.operate_all(now, &asked).await;
        let outcome = |answer| match answer {
            Ok(verdict) => Outcome::Decided(verdict),
            Err(error) => {
                failures.line(now, &error).into_iter().for_each(warn);
                Outcome::Unavailable(StoreError::summary(&error).to_owned())
            }
        };
        answers.into_iter().map(outcome).collect()
    }

    /// The number may become the name of a lease, so it must not be guessable.
    fn random(&mut self) -> Option<u64> {
        getrandom::u64().ok()
    }
}

/// Writes a warning to standard error. If that fails, the warning is lost and the server goes on.
pub fn warn(what: impl Display) {
    let _ = writeln!(io::stderr().lock(), "warning: {what}");
}

/// What to log of the errors: at most one of them a second. The others are counted.
#[derive(Debug, Default)]
struct Failures(Mutex<Unlogged>);

#[derive(Debug, Default)]
struct Unlogged {
    /// The second of the last line.
    second: u64,
    /// The number of errors since then.
    errors: u64,
}

impl Failures {
    /// The line for an error. `None` if the error is only counted.
    fn line(&self, now: Timestamp, error: &dyn Error) -> Option<String> {
        let mut unlogged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let second = now.0 / 1_000_000;
        if unlogged.second == second {
            unlogged.errors = unlogged.errors.saturating_add(1);
            return None;
        }
        unlogged.second = second;
        Some(match mem::take(&mut unlogged.errors) {
            0 => error.to_string(),
            errors => format!("{error}; {}", since_the_last_line(errors)),
        })
    }

    /// The line for the errors that were counted since the last line, if there are any.
    fn rest(&self) -> Option<String> {
        let mut unlogged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let errors = mem::take(&mut unlogged.errors);
        (errors > 0).then(|| since_the_last_line(errors))
    }
}

fn since_the_last_line(errors: u64) -> String {
    let errors =
        if errors == 1 { "1 more error".to_owned() } else { format!("{errors} more errors") };
    format!("{errors} since the last line")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_are_not_logged_are_counted() {
        let failures = Failures::default();
        let line = |ms: u64| failures.line(Timestamp(ms * 1_000), &io::Error::other("away"));
        let logged = |text: &str| Some(text.to_owned());
        assert_eq!(failures.rest(), None);
        assert_eq!(line(8_000), logged("away"));
        assert_eq!([line(8_001), line(8_999)], [None, None]);
        assert_eq!(line(9_000), logged("away; 2 more errors since the last line"));
        assert_eq!(line(9_001), None);
        assert_eq!(failures.rest(), logged("1 more error since the last line"));
        assert_eq!(failures.rest(), None);
        assert_eq!(line(12_000), logged("away"));
    }
}
