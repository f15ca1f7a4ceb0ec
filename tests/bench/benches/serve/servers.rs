//! The servers, each with a thread of its own.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate::http::{Access, Tokens};
use tidegate::serve::{Bounds, Files, Reload, Service, Watch, serve};
use tidegate::tower::RateLimitLayer;
use tidegate::{Policies, Redis, RedisOptions, Store};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

/// All requests pass.
const POLICIES: &str = "auth = 'none'
[policies.plenty]
limits = [{ algorithm = 'token_bucket', capacity = 1000000000, rate = '1000000000/s' }]
";

/// Runs a server in a thread until the process ends, and returns its URL.
fn start<F: Future<Output = ()>>(
    serve: impl FnOnce(TcpListener) -> F + Send + 'static,
) -> Result<String> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let url = format!("http://{}", listener.local_addr()?);
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    thread::spawn(move || {
        runtime.block_on(async {
            match TcpListener::from_std(listener) {
                Ok(listener) => serve(listener).await,
                Err(error) => eprintln!("{error}"),
            }
        });
    });
    Ok(url)
}

/// `tidegate serve` in memory, or on a Redis.
pub(crate) fn tidegate(redis: Option<&str>) -> Result<String> {
    let policies = Policies::parse(POLICIES)?;
    let store = match redis {
        None => Store::memory(&policies, 256 << 20)?,
        Some(url) => Store::Redis(Arc::new(Redis::new(url, RedisOptions::default())?)),
    };
    let access = Access::new(&policies, Tokens::default())?;
    let (files, bounds, watch) =
        (Files::new(POLICIES.to_owned()), Bounds::default(), Watch::default());
    let reload = Reload::default();
    let service = Service { policies, files, store, access, bounds, watch, reload };
    start(|listener| serve(service, vec![listener], std::future::pending()))
}

/// Answers each request with this response, as soon as it has read the body.
pub(crate) fn constant(response: String) -> Result<String> {
    let (head, body) = response.split_once("\r\n\r\n").context("expected a head")?;
    let mut answer = Response::new(Full::new(Bytes::from(body.to_owned())));
    for line in head.lines().skip(1) {
        let (name, value) = line.split_once(": ").context("expected a field")?;
        // hyper writes these by itself
        if !["content-length", "date"].contains(&name) {
            answer.headers_mut().append(name.parse::<hyper::header::HeaderName>()?, value.parse()?);
        }
    }
    start(move |listener| async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            let answer = service_fn(move |request: Request<Incoming>| {
                let answer = answer.clone();
                async move {
                    let _ = request.into_body().collect().await; // a caller that breaks off gets no answer
                    Ok::<_, Infallible>(answer)
                }
            });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()); // the head has a deadline, as that of `tidegate serve` has
            let _ = stream.set_nodelay(true);
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), answer));
        }
    })
}

/// A handler of axum alone, behind the layer, and behind the layer of tower_governor. Both count by the address of the peer.
pub(crate) fn axum() -> Result<[String; 3]> {
    let app = || Router::new().route("/", get(async || "hello"));
    let run = |app: Router| {
        start(|listener| async {
            let app = app.into_make_service_with_connect_info::<SocketAddr>();
            if let Err(error) = axum::serve(listener, app).await {
                eprintln!("{error}");
            }
        })
    };
    let policies = Policies::parse(POLICIES)?;
    let store = Store::memory(&policies, 256 << 20)?;
    let layer = RateLimitLayer::builder(store, &policies, "plenty")
        .peer(|request| Some(request.extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip()))
        .build()?;
    let peer = GovernorConfigBuilder::default()
        .per_nanosecond(1)
        .burst_size(1_000_000)
        .use_headers()
        .finish();
    let peer = GovernorLayer::new(peer.context("expected a quota")?);
    Ok([run(app())?, run(app().layer(layer))?, run(app().layer(peer))?])
}
