//! A layer that limits the requests of a service: of axum, tonic, hyper or any other [`Service`](tower_service::Service).
//!
//! ```
//! use std::convert::Infallible;
//!
//! use http::{Request, Response};
//! use tidegate::tower::RateLimitLayer;
//! use tidegate::{Policies, Store};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policies = Policies::parse(
//!     "[policies.api]
//!      key = ['header:x-api-key']
//!      limits = [{ algorithm = 'token_bucket', capacity = 1, rate = '1/h' }]",
//! )?;
//! let store = Store::memory(&policies, 1 << 20)?;
//! let limit = RateLimitLayer::builder(store, &policies, "api").build()?;
//! let hello = service_fn(async |_: Request<()>| {
//!     Ok::<_, Infallible>(Response::new(axum::body::Body::from("hello")))
//! });
//! let service = ServiceBuilder::new().layer(limit).service(hello);
//!
//! let request = || Request::get("/").header("x-api-key", "42").body(());
//! let passed = service.clone().oneshot(request()?).await?;
//! assert_eq!(passed.status(), 200);
//! assert_eq!(passed.headers()["ratelimit"], "\"api\";r=0;t=3600");
//! let refused = service.oneshot(request()?).await?;
//! assert_eq!(refused.status(), 429);
//! assert_eq!(refused.headers()["retry-after"], "3600");
//! # Ok(())
//! # }
//! ```
//!
//! The layer drives an [`Exchange`](tidegate_http::Exchange), as the gateway does, so refusals and header fields have its words.

mod body;
mod builder;
mod future;
mod grpc;
mod held;
mod limit;
mod service;
#[cfg(test)]
mod tests;

pub use body::ResponseBody;
pub use builder::{Builder, LayerError};
pub use future::ResponseFuture;
pub use service::{RateLimit, RateLimitLayer};
