//! The layer, and the service behind it.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use http_body::Body;
use tidegate_gate::Policies;
use tidegate_http::AnswerEnd;
use tower_layer::Layer;
use tower_service::Service;

use super::body::ResponseBody;
use super::builder::Builder;
use super::grpc;
use super::limit::{Limit, Passed};
use crate::http_message;
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
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let begun = self.limit.begin(&parts);
        let is_grpc = grpc::is_call(&parts.headers);
        let answers_head = parts.method == Method::HEAD;
        let request = Request::from_parts(parts, body);
        let decided = match begun {
            Ok(exchange) if self.limit.store.waits() => {
                let another = self.inner.clone();
                let mut inner = mem::replace(&mut self.inner, another); // the one that is ready
                let limit = Arc::clone(&self.limit);
                return Box::pin(async move {
                    match limit.decide(exchange).await {
                        Ok(passed) => respond(inner.call(request), passed, answers_head).await,
                        Err(refused) => Ok(refusal(refused, is_grpc)),
                    }
                });
            }
            Ok(exchange) => self.limit.decide_now(exchange),
            Err(refused) => Err(refused),
        };
        match decided {
            Ok(passed) => {
                let response = self.inner.call(request);
                Box::pin(async move { respond(response, passed, answers_head).await })
            }
            Err(refused) => Box::pin(async move { Ok(refusal(refused, is_grpc)) }),
        }
    }
}

fn refusal<R: Body>(refused: tidegate_http::Response, is_grpc: bool) -> Response<ResponseBody<R>> {
    let refused = if is_grpc { grpc::refusal(refused) } else { refused };
    http_message::response(refused, ResponseBody::refusal)
}

/// The response of the service, with the fields about the limits.
async fn respond<R: Body, E>(
    response: impl Future<Output = Result<Response<R>, E>>,
    Passed { fields, mut held }: Passed,
    answers_head: bool,
) -> Result<Response<ResponseBody<R>>, E> {
    let (mut parts, body) = match response.await {
        Ok(response) => response.into_parts(),
        Err(error) => {
            held.iter_mut().for_each(|held| held.end(AnswerEnd::Failed));
            return Err(error);
        }
    };
    for (name, value) in fields.into_iter().filter_map(http_message::header) {
        // the fields are lists, which may have the limits of another layer
        parts.headers.append(name, value);
    }
    held.iter_mut().for_each(|held| held.answered(&parts));
    Ok(Response::from_parts(parts, ResponseBody::passed(body, held, answers_head)))
}
