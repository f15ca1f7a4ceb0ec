//! The decision API over HTTP: reads requests, asks the store, writes responses.

mod head;
mod stream;

use std::convert::Infallible;
use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::clock;
use crate::store::{Store, StoreError};
use head::joined;
use stream::Stream;

/// Expired states are forgotten this often.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// Requests under way when the server is stopped get this long.
const DRAIN_FOR: Duration = Duration::from_secs(5);

/// Where no connection can be accepted, as when all files are open, it is tried again after this.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// About so many bytes of its requests are read ahead on each connection, and a head may be so long. A
/// key in a query takes 1,536 bytes at most.
const READ_AHEAD_BYTES: usize = 65_536;

/// What is served.
#[derive(Debug)]
pub struct Service {
    /// What is limited.
    pub policies: Policies,
    /// Where states are kept.
    pub store: Store,
    /// Who may ask.
    pub access: Access,
    /// What clients may take.
    pub bounds: Bounds,
}

/// What clients may take of the server.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The longest time from the connection, or from the last answer, to the end of a request's head,
    /// and again from there to the end of its body.
    pub read_timeout: Duration,
    /// The longest time from when a connection takes no more of an answer until it has taken all.
    pub write_timeout: Duration,
    /// The most connections at a time. Others wait in the queue of the operating system.
    pub max_connections: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            // Proxies keep idle connections for a minute. A request on a connection that is being
            // closed gets no answer, so the proxy has to close first.
            read_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            max_connections: 1_000,
        }
    }
}

/// Serves until `stop` is there; requests under way are answered before it returns.
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
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {} // it is gone
            Err(error) => {
                server.failures.log(clock::now(), &error);
                sleep(ACCEPT_AGAIN_AFTER).await;
            }
        }
    }
    drop(listener);
    // whoever is not done by then is left alone
    let _ = timeout(DRAIN_FOR, connections.shutdown()).await;
    sweeper.abort();
}

/// The next connection once there is a place for it.
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
    }
}

/// All requests of a connection.
async fn talk(server: Arc<Server>, stream: TcpStream, peer: SocketAddr, watcher: Watcher) {
    let Bounds { read_timeout, write_timeout, .. } = server.service.bounds;
    let answer = service_fn(move |request| {
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(response(server.answer(peer, request).await)) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(read_timeout);
    builder.max_buf_size(READ_AHEAD_BYTES);
    let stream = TokioIo::new(Stream::new(stream, write_timeout));
    let connection = builder.serve_connection(stream, answer);
    // a client that breaks off or is too slow has nobody to tell
    let _ = watcher.watch(connection).await;
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
        let now = clock::now(); // one for the whole request; a caller's time is not honoured
        let asked: Vec<_> =
            checks.iter().map(|check| (check.resolved(), check.operation())).collect();
        let Server { service, failures } = self.server;
        let answers = service.store.operate_all(now, &asked).await;
        let outcome = |answer| match answer {
            Ok(verdict) => Outcome::Decided(verdict),
            Err(error) => {
                failures.log(now, &error);
                Outcome::Unavailable(StoreError::summary(&error).to_owned())
            }
        };
        answers.into_iter().map(outcome).collect()
    }

    /// It may become the name of a lease.
    fn random(&mut self) -> Option<u64> {
        getrandom::u64().ok()
    }
}

/// A line on standard error. Where nobody reads it any more it is lost, and the server goes on.
pub fn warn(what: impl Display) {
    let _ = writeln!(io::stderr().lock(), "warning: {what}");
}

/// What goes wrong, on standard error: a line a second is enough to see that it does.
#[derive(Debug, Default)]
struct Failures {
    /// The second of the last line.
    logged: AtomicU64,
}

impl Failures {
    fn log(&self, now: Timestamp, error: &dyn Error) {
        let second = now.0 / 1_000_000;
        if self.logged.swap(second, Ordering::Relaxed) != second {
            warn(error);
        }
    }
}
