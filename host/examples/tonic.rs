//! A service of tonic whose calls are limited:
//!
//! ```sh
//! cargo run -p tidegate --no-default-features --features tower --example tonic
//! ```
//!
//! It is the standard health service, so that the example needs no file of Protocol Buffers. The layer goes around any service.

use std::error::Error;

use tidegate::tower::RateLimitLayer;
use tidegate::{Policies, Store};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

const POLICIES: &str = r#"
[policies.api] # by the client's address, because it names no other key
limits = [{ algorithm = "token_bucket", capacity = 5, rate = "10/m" }]
"#;

/// Serves until the process ends. A refused call has the status `RESOURCE_EXHAUSTED`, with a `RetryInfo`.
pub async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error + Send + Sync>> {
    let policies = Policies::parse(POLICIES)?;
    let store = Store::memory(&policies, 64 << 20)?; // at most 64 MiB
    let limit = RateLimitLayer::builder(store, &policies, "api")
        .peer(|request| Some(request.extensions.get::<TcpConnectInfo>()?.remote_addr()?.ip()))
        .on_store_error(|error| eprintln!("tidegate: {}", error.without_key()))
        .build()?;
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(limit).add_service(health);
    server.serve_with_incoming(TcpIncoming::from(listener)).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    serve(TcpListener::bind("127.0.0.1:50051").await?).await
}
