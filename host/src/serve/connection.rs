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
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Method, Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::options::Bounds;
use super::room::{Part, Room};
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
    /// How many had an answer that not every stranger gets.
    served: AtomicU64,
    under_way: AtomicUsize,
    room: Arc<Room>,
}

/// Answers all requests of a connection.
pub(super) async fn talk(
    server: Arc<Server>,
    tls: Option<Arc<Tls>>,
    (stream, peer): (TcpStream, SocketAddr),
    mut stopping: watch::Receiver<bool>,
) {
    let Bounds { first_head_timeout, write_timeout, .. } = server.bounds;
    let first_head_by = Instant::now() + first_head_timeout;
    let requests = Arc::new(Requests::new(server));
    let mut first_byte = [0];
    // a client that has sent nothing loses nothing; `readable` may be true although it has sent nothing
    tokio::select! {
        biased;
        _ = stream.peek(&mut first_byte) => (),
        _ = stopping.wait_for(|is| *is) => return,
        () = sleep_until(first_head_by) => return,
        () = requests.in_the_way() => return,
    }
    let stream = Stream::new(stream, write_timeout);
    let Some(tls) = tls else {
        return answer(requests, stream, peer, stopping, first_head_by).await;
    };
    #[cfg(feature = "tls")]
    {
        // a client that fails the handshake or is too slow has nobody who would read an answer
        let shaken = tokio::select! {
            shaken = tls.acceptor().get().accept(stream) => shaken,
            () = sleep_until(first_head_by) => return,
        };
        if let Ok(stream) = shaken {
            answer(requests, stream, peer, stopping, first_head_by).await;
        }
    }
    #[cfg(not(feature = "tls"))]
    match tls.acceptor().0 {}
}

async fn answer(
    requests: Arc<Requests>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    mut stopping: watch::Receiver<bool>,
    first_head_by: Instant,
) {
    let Bounds { read_timeout, write_timeout, first_head_timeout, .. } = requests.server.bounds;
    let counted = Arc::clone(&requests);
    let service = service_fn(move |request: Request<Incoming>| {
        let under_way = UnderWay::new(&counted);
        let (parts, body) = request.into_parts();
        async move {
            // by reference: each future within a future would have room for a copy, and all of them are moved
            let is_shared = parts.version == Version::HTTP_2;
            let mut part = Part::new(is_shared.then(|| Arc::clone(&under_way.0.room)));
            let mut answer = under_way.0.server.answer(peer, &parts, body, &mut part).await;
            under_way.answered(&parts, answer.status);
            if parts.method == Method::HEAD && !answer.body.is_empty() {
                // hyper leaves the body out of HTTP/1 only
                let length = take(&mut answer.body).len().to_string();
                answer.headers.push(("content-length", length.into()));
            }
            drop(under_way);
            Ok::<_, Infallible>(response(answer, |body| Full::<Bytes>::new(part.hold(body))))
        }
    });
    let builder = builder(read_timeout);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // the error of a connection is ignored: the client broke off or was too slow, so nobody is there to tell
    let longest = write_timeout.max(read_timeout);
    let mut leaves_within = longest;
    let is_stopping = tokio::select! {
        biased;
        _ = &mut connection => return,
        () = requests.first.notified() => false,
        _ = stopping.wait_for(|is| *is) => true,
        () = sleep_until(first_head_by) => return,
    };
    if !is_stopping {
        let end = async {
            tokio::select! {
                _ = stopping.wait_for(|is| *is) => Some(longest),
                // HTTP/1 has a timeout of its own between two requests, and HTTP/2 has none
                () = requests.idle(&requests.begun, read_timeout) => Some(longest),
                () = requests.in_the_way() => Some(first_head_timeout),
                // a client of HTTP/2 may shut its windows, and the stream does not notice
                () = requests.room.overdue(write_timeout) => None,
            }
        };
        // it has a waker of its own, so that a request on the connection does not poll it
        let mut end = FuturesUnordered::from_iter([end]);
        match select(connection.as_mut(), end.next()).await {
            Either::Left(_) => return,
            Either::Right((Some(None), _)) => return,
            Either::Right((within, _)) => leaves_within = within.flatten().unwrap_or(longest),
        }
    }
    connection.as_mut().graceful_shutdown();
    let has_left = timeout(leaves_within, connection.as_mut()).await.is_ok();
    if !has_left && leaves_within < longest && requests.under_way.load(Ordering::Relaxed) > 0 {
        let _ = timeout(longest, connection).await; // the head of a request had begun before, and came whole
    }
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
        let (begun, served) = (AtomicU64::new(0), AtomicU64::new(0));
        let (under_way, room) = (AtomicUsize::new(0), Arc::new(Room::new()));
        Self { server, first: Notify::new(), begun, served, under_way, room }
    }

    /// Waits until none of these requests came for a span, and none is under way on a connection that had one.
    async fn idle(&self, requests: &AtomicU64, span: Duration) {
        let mut before = requests.load(Ordering::Relaxed);
        loop {
            match Instant::now().checked_add(span) {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
            let now = requests.load(Ordering::Relaxed);
            if now == before && (now == 0 || self.under_way.load(Ordering::Relaxed) == 0) {
                return;
            }
            before = now;
        }
    }

    /// Waits until the connection is idle and another client needs the place.
    async fn in_the_way(&self) {
        let wanted = &self.server.places.wanted;
        loop {
            self.idle(&self.served, IDLE_AFTER).await;
            let served = self.served.load(Ordering::Relaxed);
            wanted.notified().await;
            if self.served.load(Ordering::Relaxed) == served {
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

    /// Takes note of an answer, unless every stranger gets it: strangers could keep all places by asking all the time.
    fn answered(&self, parts: &Parts, status: u16) {
        if parts.uri.path().starts_with("/v1/") && !matches!(status, 401 | 404 | 405) {
            self.0.served.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}
