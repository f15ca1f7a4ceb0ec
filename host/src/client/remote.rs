//! Decisions of a server over HTTP.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Deserialize;
use tidegate_gate::OnError;
use tokio::time::timeout;
use tokio_rustls::rustls::crypto::ring;

use super::error::ClientError;
use super::message::{Reply, Sent};

/// The longest answer that is read.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// How long the client goes by what it knows of `on_error`.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// How a client asks a server.
#[derive(Clone)]
pub struct ClientOptions {
    /// The token for decisions.
    pub token: Option<String>,
    /// How long a call may take, with connecting. Then the server counts as away.
    pub deadline: Duration,
    /// Decides on a request if the server is away. `None` means the `on_error` of the policy, which the client asks the server
    /// for, beside its calls; as long as it has no answer, the request is refused. The client has no states, so under `Local`
    /// it refuses too.
    pub on_error: Option<OnError>,
    /// How many idle connections are kept open.
    pub max_idle: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { token: None, deadline: Duration::from_secs(1), on_error: None, max_idle: 32 }
    }
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token, deadline, on_error, max_idle } = self;
        f.debug_struct("ClientOptions")
            .field("token", &token.as_ref().map(|_| "…"))
            .field("deadline", deadline)
            .field("on_error", on_error)
            .field("max_idle", max_idle)
            .finish()
    }
}

#[derive(Debug)]
pub(super) struct Remote {
    /// The URL without a slash at its end.
    url: String,
    authorization: Option<HeaderValue>,
    options: ClientOptions,
    http: Http,
    known: Mutex<Known>,
}

/// The connections. Certificates are read only where they are needed.
#[derive(Debug)]
enum Http {
    Plain(Client<HttpConnector, Full<Bytes>>),
    Tls(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

/// What the client knows of the server's policies.
#[derive(Debug, Default)]
struct Known {
    /// When it last asked.
    asked: Option<Instant>,
    /// Whether requests pass while nobody decides, by policy.
    passes: HashMap<String, bool>,
}

/// The answer to `GET /v1/policies`, as far as it matters here.
#[derive(Deserialize)]
struct Policies {
    policies: Vec<OfPolicy>,
}

#[derive(Deserialize)]
struct OfPolicy {
    name: String,
    on_error: String,
}

impl Remote {
    pub(super) fn new(url: &str, options: ClientOptions) -> Result<Self, ClientError> {
        let wrong = || ClientError::Url(url.split('@').next_back().unwrap_or_default().to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        if uri.authority().is_none() || uri.query().is_some() {
            return Err(wrong());
        }
        let authorization = options.token.as_ref().map(|token| {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| ClientError::Token)?;
            value.set_sensitive(true);
            Ok(value)
        });
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(options.deadline));
        let mut pool = Client::builder(TokioExecutor::new());
        pool.pool_timer(TokioTimer::new()).pool_max_idle_per_host(options.max_idle);
        let http = match uri.scheme_str() {
            Some("http") => Http::Plain(pool.build(tcp)),
            Some("https") => Http::Tls(pool.build(tls(tcp)?)),
            _ => return Err(wrong()),
        };
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            authorization: authorization.transpose()?,
            options,
            http,
            known: Mutex::default(),
        })
    }

    /// Sends a call, and a second time if its answer was lost and a repeat is taken once.
    pub(super) async fn send(self: &Arc<Self>, sent: &Sent<'_>) -> Result<Reply, ClientError> {
        let deadline = self.options.deadline;
        let calls = async {
            match self.call(sent).await {
                Err(_) if sent.idempotency_key.is_some() => self.call(sent).await,
                reply => reply,
            }
        };
        let reply = timeout(deadline, calls)
            .await
            .unwrap_or_else(|_| Err(ClientError::Away(format!("no answer within {deadline:?}"))));
        if reply.is_ok() {
            self.learn();
        }
        reply
    }

    async fn call(&self, sent: &Sent<'_>) -> Result<Reply, ClientError> {
        let mut request =
            Request::builder().method(sent.method).uri(format!("{}{}", self.url, sent.target));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if let Some(key) = sent.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        if !sent.body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::from(sent.body.clone()));
        // a key that no header can carry; the URL is known to be one
        let request = request.map_err(|error| ClientError::Refused {
            status: 400,
            problem: "urn:tidegate:invalid-request".to_owned(),
            detail: error.to_string(),
        })?;
        let response = match &self.http {
            Http::Plain(client) => client.request(request).await,
            Http::Tls(client) => client.request(request).await,
        };
        let response = response.map_err(|error| ClientError::Away(causes(&error)))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| ClientError::Away(causes(&*error)))?.to_bytes().into();
        Ok(Reply { status, body })
    }

    /// Whether requests under this policy pass while the server is away.
    pub(super) fn passes(&self, policy: &str) -> bool {
        match self.options.on_error {
            Some(on_error) => on_error == OnError::Open,
            None => self.known().passes.get(policy).copied().unwrap_or(false),
        }
    }

    /// Asks for `on_error` of the policies, now and then and beside the calls.
    fn learn(self: &Arc<Self>) {
        if self.options.on_error.is_some() {
            return;
        }
        let mut known = self.known();
        if known.asked.is_some_and(|asked| asked.elapsed() < KNOWN_FOR) {
            return;
        }
        known.asked = Some(Instant::now());
        drop(known);
        let remote = Arc::clone(self);
        tokio::spawn(async move {
            let (target, body) = ("/v1/policies".to_owned(), String::new());
            let sent = Sent { method: "GET", target, body, idempotency_key: None };
            let reply = timeout(remote.options.deadline, remote.call(&sent)).await;
            let Ok(Ok(Reply { status: 200, body })) = reply else { return };
            let Ok(Policies { policies }) = serde_json::from_slice(&body) else { return };
            let passes = policies.into_iter().map(|own| (own.name, own.on_error == "open"));
            remote.known().passes = passes.collect();
        });
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tls(mut tcp: HttpConnector) -> Result<HttpsConnector<HttpConnector>, ClientError> {
    tcp.enforce_http(false);
    let builder = HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(ring::default_provider())
        .map_err(|error| ClientError::Tls(error.to_string()))?;
    Ok(builder.https_only().enable_http1().wrap_connector(tcp))
}

/// An error and its causes, of which the first says only that there is one.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
