//! One connection of a client: HTTP/1 or HTTP/2, with or without TLS, within the bounds of the server.

use std::convert::Infallible;
use std::future::pending;
use std::mem::take;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::options::Bounds;
use super::server::Server;
use super::stream::Stream;
use super::tls::Tls;
use crate::http_message::response;

/// About how many bytes the server reads ahead on each connection, and so how long a head may be. A key
/// in a query takes at most 1,536 bytes.
const READ_AHEAD_BYTES: usize = 65_536;

/// The same bound for a head of HTTP/2.
const MAX_HEAD_BYTES: u32 = 65_536;

/// The most requests under way on a connection of HTTP/2.
const MAX_STREAMS: u32 = 100;

/// How often the server asks whether the client of a connection of HTTP/2 is still there, and how long it waits.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// How long a connection has no request before it may have to leave for a client that waits for a place: a client that asks all
/// the time never sees its connection closed.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// The requests of a connection.
#[derive(Debug)]
struct Requests {
    server: Arc<Server>,
    first: Notify,
    begun: AtomicU64,
    under_way: AtomicUsize,
}

/// Answers all requests of a connection.
pub(super) async fn talk(
    server: Arc<Server>,
    tls: Option<Arc<Tls>>,
    (stream, peer): (TcpStream, SocketAddr),
    stopping: watch::Receiver<bool>,
) {
    let Bounds { first_head_timeout, write_timeout, .. } = server.bounds;
    let first_head_by = Instant::now() + first_head_timeout;
    let stream = Stream::new(stream, write_timeout);
    let Some(tls) = tls else { return answer(server, stream, peer, stopping, first_head_by).await };
    #[cfg(feature = "tls")]
    {
        let handshake = tls.acceptor().get().accept(stream);
        // a client that fails the handshake or is too slow has nobody who would read an answer
        if let Ok(Ok(stream)) = tokio::time::timeout_at(first_head_by, handshake).await {
            answer(server, stream, peer, stopping, first_head_by).await;
        }
    }
    #[cfg(not(feature = "tls"))]
    match tls.acceptor().0 {}
}

async fn answer(
    server: Arc<Server>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    mut stopping: watch::Receiver<bool>,
    first_head_by: Instant,
) {
    let Bounds { read_timeout, write_timeout, first_head_timeout, .. } = server.bounds;
    let requests = Arc::new(Requests::new(server));
    let counted = Arc::clone(&requests);
    let service = service_fn(move |request: Request<Incoming>| {
        let under_way = UnderWay::new(&counted);
        async move {
            let is_head = request.method() == Method::HEAD;
            let mut answer = under_way.0.server.answer(peer, request).await;
            if is_head && !answer.body.is_empty() {
                // hyper leaves the body out of HTTP/1 only
                let length = take(&mut answer.body).len().to_string();
                answer.headers.push(("content-length", length.into()));
            }
            drop(under_way);
            Ok::<_, Infallible>(response(answer, Full::<Bytes>::from))
        }
    });
    let builder = builder(read_timeout);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // the error of a connection is ignored: the client broke off or was too slow, so nobody is there to tell
    let is_stopping = tokio::select! {
        biased;
        _ = &mut connection => return,
        () = requests.first.notified() => false,
        _ = stopping.wait_for(|is| *is) => true,
        () = sleep_until(first_head_by) => return,
    };
    let longest = write_timeout.max(read_timeout);
    let mut leaves_within = longest;
    if !is_stopping {
        let end = async {
            tokio::select! {
                _ = stopping.wait_for(|is| *is) => longest,
                () = requests.idle(read_timeout) => longest,
                () = requests.in_the_way() => first_head_timeout,
            }
        };
        // it has a waker of its own, so that a request on the connection does not poll it
        let mut end = FuturesUnordered::from_iter([end]);
        tokio::select! {
            biased;
            _ = &mut connection => return,
            Some(within) = end.next() => leaves_within = within,
        }
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(leaves_within, connection).await;
}

fn builder(read_timeout: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(read_timeout);
    builder.http1().max_buf_size(READ_AHEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES);
    builder
}

impl Requests {
    fn new(server: Arc<Server>) -> Self {
        let (begun, under_way) = (AtomicU64::new(0), AtomicUsize::new(0));
        Self { server, first: Notify::new(), begun, under_way }
    }

    /// Waits until no request was under way or has begun for a span. HTTP/1 has a timeout of its own between two requests, and
    /// HTTP/2 has none.
    async fn idle(&self, span: Duration) {
        let mut begun = self.begun.load(Ordering::Relaxed);
        loop {
            match Instant::now().checked_add(span) {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
            let now = self.begun.load(Ordering::Relaxed);
            if now == begun && self.under_way.load(Ordering::Relaxed) == 0 {
                return;
            }
            begun = now;
        }
    }

    /// Waits until no request is under way and another client needs the place.
    async fn in_the_way(&self) {
        let wanted = &self.server.places.wanted;
        loop {
            self.idle(IDLE_AFTER).await;
            let begun = self.begun.load(Ordering::Relaxed);
            wanted.notified().await;
            if self.begun.load(Ordering::Relaxed) == begun {
                return;
            }
            wanted.notify_one(); // another connection may be idle
        }
    }
}

/// A request that is under way until this is dropped.
struct UnderWay(Arc<Requests>);

impl UnderWay {
    fn new(requests: &Arc<Requests>) -> Self {
        if requests.begun.fetch_add(1, Ordering::Relaxed) == 0 {
            requests.first.notify_one();
        }
        requests.under_way.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(requests))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}
