//! The layer, and the service behind it.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use http_body::Body;
use tidegate_gate::Policies;
use tower_layer::Layer;
use tower_service::Service;

use super::body::ResponseBody;
use super::builder::Builder;
use super::future::ResponseFuture;
use super::grpc;
use super::limit::Limit;
use crate::store::Store;

/// Limits the requests of a service by a policy.
///
/// A request that passes reaches the service unchanged, and the response has the fields `RateLimit-Policy` and `RateLimit`
/// beside its own. Another request gets a refusal: status 429, 503 or 403 with `Retry-After` and problem details.
///
/// All clones share the states of their keys. Leases need a runtime of tokio, which renews and releases them.
#[derive(Clone, Debug)]
pub struct RateLimitLayer(pub(super) Arc<Limit>);

/// A service whose requests are limited: see [`RateLimitLayer`].
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    limit: Arc<Limit>,
}

impl RateLimitLayer {
    /// Begins with a policy of a file. The file also says which proxies are trusted.
    pub fn builder(store: impl Into<Arc<Store>>, policies: &Policies, policy: &str) -> Builder {
        Builder::new(store.into(), policies, policy)
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit { inner, limit: Arc::clone(&self.0) }
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send + 'static> + Clone + Send + 'static,
    B: Send + 'static,
    R: Body,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, R, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let is_grpc = || grpc::is_call(&parts.headers);
        let answers_head = parts.method == Method::HEAD;
        if let Some(store) = self.limit.store.at_once() {
            return match self.limit.decide_now(store, &parts) {
                Ok(passed) => {
                    let response = self.inner.call(Request::from_parts(parts, body));
                    ResponseFuture::passed(response, passed, answers_head)
                }
                Err(refusal) => ResponseFuture::refused(refusal, is_grpc()),
            };
        }
        let exchange = match self.limit.begin(&parts) {
            Ok(exchange) => exchange,
            Err(refusal) => return ResponseFuture::refused(refusal, is_grpc()),
        };
        let another = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, another); // the one that is ready
        let limit = Arc::clone(&self.limit);
        ResponseFuture::waiting(async move {
            match limit.decide(exchange).await {
                Ok(passed) => {
                    let response = inner.call(Request::from_parts(parts, body));
                    ResponseFuture::passed(response, passed, answers_head).await
                }
                Err(refusal) => {
                    let is_grpc = grpc::is_call(&parts.headers);
                    ResponseFuture::<S::Future, _, _>::refused(refusal, is_grpc).await
                }
            }
        })
    }
}
