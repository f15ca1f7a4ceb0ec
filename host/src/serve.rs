//! The decision API over HTTP: reads requests, asks the store, writes responses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use futures_util::StreamExt;
use futures_util::future::join_all;
use tidegate_gate::Policies;
use tidegate_gate::http::{
    self, Access, Check, Head, MAX_BODY_BYTES, MAX_DRAINED_BYTES, Outcome, Plan, Step,
};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::clock;
use crate::store::Store;

/// Expired states are forgotten this often.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// Requests under way when the server is stopped get this long.
const DRAIN_FOR: Duration = Duration::from_secs(5);

/// What is served.
#[derive(Debug)]
pub struct Service {
    /// What is limited.
    pub policies: Policies,
    /// Where states are kept.
    pub store: Store,
    /// Who may ask.
    pub access: Access,
}

/// Serves until `stop` is there; requests under way are answered before it returns.
///
/// # Errors
/// What the operating system says of the listener.
pub async fn serve(
    service: Service,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let service = Arc::new(service);
    let sweeper = tokio::spawn(sweep(Arc::clone(&service)));
    let router = Router::new().fallback(handle).with_state(service);
    let serving = axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>());
    let (stopping, stopped) = oneshot::channel();
    let stop = async move {
        stop.await;
        let _ = stopping.send(()); // nobody listens if serving has ended by itself
    };
    let drained = async {
        if stopped.await.is_ok() {
            tokio::time::sleep(DRAIN_FOR).await;
        }
    };
    let result = tokio::select! {
        result = serving.with_graceful_shutdown(stop) => result,
        () = drained => Ok(()),
    };
    sweeper.abort();
    result
}

async fn sweep(service: Arc<Service>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    loop {
        ticks.tick().await;
        service.store.sweep(clock::now());
    }
}

async fn handle(
    State(service): State<Arc<Service>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    let answer = service.answer(peer, request).await;
    let mut response = Response::new(Body::from(answer.body));
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

/// Its length if it is longer than allowed: not more than that is ever held. One that breaks off
/// is none: nothing is decided on half a request.
async fn read_body(body: Body) -> Result<Vec<u8>, usize> {
    let mut bytes = Vec::new();
    let mut length = 0_usize;
    let mut stream = body.into_data_stream();
    while let Some(chunk) = stream.next().await {
        let Ok(chunk) = chunk else { return Ok(Vec::new()) };
        length = length.saturating_add(chunk.len());
        if length > MAX_DRAINED_BYTES {
            break;
        }
        if length <= MAX_BODY_BYTES {
            bytes.extend_from_slice(&chunk);
        }
    }
    if length <= MAX_BODY_BYTES { Ok(bytes) } else { Err(length) }
}

/// A random number that nobody can guess: it may become the name of a lease.
fn chance() -> Option<u64> {
    getrandom::u64().ok()
}

impl Service {
    async fn answer(&self, peer: SocketAddr, request: Request) -> http::Response {
        let (parts, body) = request.into_parts();
        let plan = match self.step(peer, &parts) {
            Step::Answer(response) => return response,
            Step::Decide(plan) => plan,
            Step::ReadBody(call) => {
                let body = match read_body(body).await {
                    Ok(body) => body,
                    Err(length) => return http::body_too_large(length),
                };
                match http::read(&self.policies, &call, &body, &mut chance) {
                    Ok(plan) => plan,
                    Err(response) => return response,
                }
            }
        };
        let outcomes = self.decide(&plan).await;
        plan.respond(&self.policies, &outcomes)
    }

    fn step(&self, peer: SocketAddr, parts: &Parts) -> Step {
        // as the Worker's runtime has them: fields of one name joined, each byte a character
        let header = |name: &str| {
            let fields = parts.headers.get_all(name).iter();
            let text =
                |value: &HeaderValue| value.as_bytes().iter().copied().map(char::from).collect();
            fields.map(text).reduce(|all: String, next: String| all + ", " + &next)
        };
        let client_ip = peer.ip().to_canonical().to_string();
        let head = Head {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or(""),
            header: &header,
            client_ip: Some(&client_ip),
        };
        http::step(&self.policies, &self.access, &head, &mut chance)
    }

    /// All at once: a store keeps the order of the checks on one key.
    async fn decide(&self, plan: &Plan) -> Vec<Outcome> {
        let now = clock::now(); // one for the whole request
        join_all(plan.checks.iter().map(async |check| {
            let Check { policy, key, operation, .. } = check; // a caller's time is not honoured
            match self.store.operate(&self.policies, *policy, key, now, *operation).await {
                Ok(verdict) => Outcome::Decided(verdict),
                Err(error) => Outcome::Unavailable(error.to_string()),
            }
        }))
        .await
    }
}
