//! A service of axum whose requests are limited:
//!
//! ```sh
//! cargo run -p tidegate --no-default-features --features tower --example axum
//! for n in 1 2 3 4 5 6; do curl -i localhost:3000; done
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::routing::get;
use futures_util::stream;
use tidegate::tower::RateLimitLayer;
use tidegate::{Policies, Store};
use tokio::net::TcpListener;

const POLICIES: &str = r#"
trusted_proxies = ["127.0.0.1"] # the client is behind the proxy on this machine

[policies.api] # by the client's address, because it names no other key
limits = [{ algorithm = "token_bucket", capacity = 5, rate = "10/m" }]

[policies.export]
limits = [{ algorithm = "concurrency", capacity = 1, time_to_live = "30s" }]
"#;

/// The routes, each with its limit.
pub fn app() -> Result<Router, Box<dyn Error>> {
    let policies = Policies::parse(POLICIES)?;
    let store = Arc::new(Store::memory(&policies, 64 << 20)?); // at most 64 MiB
    let limit = |policy| {
        RateLimitLayer::builder(Arc::clone(&store), &policies, policy)
            .peer(|request| Some(request.extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip()))
            .on_store_error(|error| eprintln!("tidegate: {}", error.without_key()))
            .build()
    };
    let hello = get(async || "hello\n").post(async |sent: Bytes| sent);
    let export = get(async || Body::from_stream(stream::iter((0..10_000).map(page))));
    Ok(Router::new()
        .route("/", hello.layer(limit("api")?))
        .route("/export", export.layer(limit("export")?)))
}

fn page(number: u32) -> Result<String, std::convert::Infallible> {
    Ok(format!("{number:>4095}\n"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app()?.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
