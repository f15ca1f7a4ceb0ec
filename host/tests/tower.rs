//! The layer in front of real servers: the example, and services whose store fails.

#![expect(clippy::unwrap_used, reason = "a failed unwrap ends its test")]
#![expect(clippy::panic, reason = "it ends its test")]

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use http::request::Builder;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tidegate::tower::RateLimitLayer;
use tidegate::{Policies, Resolved, Store, Timestamp};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

#[path = "../examples/axum.rs"]
#[expect(dead_code, reason = "its `main` listens on a fixed port")]
mod example;

/// Serves until the runtime of the test ends.
async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// A connection to a server.
struct Client {
    requests: SendRequest<Full<Bytes>>,
    connection: JoinHandle<hyper::Result<()>>,
}

impl Client {
    async fn new(server: SocketAddr) -> Self {
        let stream = TcpStream::connect(server).await.unwrap();
        let (requests, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        Self { requests, connection: tokio::spawn(connection) }
    }

    async fn send(&mut self, request: Builder, body: impl Into<Bytes>) -> Response<Incoming> {
        self.requests.ready().await.unwrap();
        let request = request.header("host", "test").body(Full::new(body.into())).unwrap();
        self.requests.send_request(request).await.unwrap()
    }

    /// The status, header fields and body of the response.
    async fn get(&mut self, path: &str, client: &str) -> (u16, HeaderMap, String) {
        let request = Request::get(path).header("x-forwarded-for", client);
        let (head, body) = self.send(request, "").await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), head.headers, String::from_utf8(body.into()).unwrap())
    }

    async fn status(&mut self, path: &str, client: &str) -> u16 {
        let request = Request::head(path).header("x-forwarded-for", client);
        self.send(request, "").await.status().as_u16()
    }

    /// The response to the first request that passes. A server notices some requests later that a client has left.
    async fn passed(&mut self, path: &str, client: &str) -> Response<Incoming> {
        for _ in 0..10_000 {
            let request = Request::get(path).header("x-forwarded-for", client);
            let response = self.send(request, "").await;
            if response.status() == 200 {
                return response;
            }
        }
        panic!("no request passes");
    }
}

#[tokio::test]
async fn the_example_refuses_a_client_and_says_when_to_come_back() {
    let server = serve(example::app().unwrap()).await;
    let mut client = Client::new(server).await;
    let (status, fields, body) = client.get("/", "192.0.2.7").await;
    assert_eq!((status, body.as_str()), (200, "hello\n"));
    assert_eq!(fields["ratelimit-policy"], "\"api\";q=5;w=30");
    assert!(fields["ratelimit"].to_str().unwrap().starts_with("\"api\";r=4;t="), "{fields:?}");

    let mut passed = 1;
    let (status, fields, body) = loop {
        match client.get("/", "192.0.2.7").await {
            (200, ..) if passed < 1_000 => passed += 1,
            refused => break refused,
        }
    };
    assert!(passed >= 5, "{passed} passed");
    assert_eq!(
        (status, &fields["content-type"]),
        (429, &"application/problem+json".parse().unwrap())
    );
    assert!(
        (1..=6).contains(&fields["retry-after"].to_str().unwrap().parse().unwrap()),
        "{fields:?}"
    );
    assert!(
        body.contains(
            "\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\""
        ),
        "{body}"
    );

    // a second client has a key of its own, and so does the client without a proxy
    assert_eq!(client.get("/", "192.0.2.8").await.0, 200);
    assert_eq!(client.get("/", "").await.0, 200);
}

#[tokio::test]
async fn a_body_passes_untouched() {
    let server = serve(example::app().unwrap()).await;
    let sent: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    let response = Client::new(server).await.send(Request::post("/"), sent.clone()).await;
    assert_eq!(response.headers()["content-length"], sent.len().to_string());
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), sent);
}

#[tokio::test]
async fn a_lease_is_held_until_the_response_has_ended_or_the_client_has_left() {
    let server = serve(example::app().unwrap()).await;
    let (mut first, mut second) = (Client::new(server).await, Client::new(server).await);

    let response = first.passed("/export", "192.0.2.7").await;
    let (status, fields, _) = second.get("/export", "192.0.2.7").await;
    assert_eq!(status, 429);
    assert_eq!(fields["ratelimit-policy"], "\"export\";q=1;qu=\"concurrent-requests\"");
    assert_eq!(second.status("/export", "192.0.2.8").await, 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body.len(), 4_096 * 10_000);

    let response = second.passed("/export", "192.0.2.7").await;
    assert_eq!(first.status("/export", "192.0.2.7").await, 429);
    second.connection.abort(); // which closes the connection
    drop((second, response));
    first.passed("/export", "192.0.2.7").await;
}

/// A server whose store has no room for another key.
async fn with_a_full_store(more: &str) -> SocketAddr {
    let file = format!(
        "[policies.p]
         limits = [{{ algorithm = 'fixed_window', limit = 9, period = '365d' }}]
         {more}"
    );
    let policies = Policies::parse(&file).unwrap();
    let store = Arc::new(Store::memory(&policies, 1 << 15).unwrap());
    let mut number = 0;
    let is_full = async |number: u32| {
        let key = Resolved::new(&policies.all()[0], &format!("k{number}")).unwrap();
        store.operate(&key, Timestamp(0), 1).await.is_err()
    };
    while !is_full(number).await {
        number += 1;
    }
    let layer = RateLimitLayer::builder(store, &policies, "p")
        .key(|_| Some("another".to_owned()))
        .clock(|| Timestamp(0))
        .build()
        .unwrap();
    serve(Router::new().route("/", get(async || "hello\n")).layer(layer)).await
}

#[tokio::test]
async fn on_error_decides_if_the_store_fails() {
    let open = with_a_full_store("on_error = 'open'").await;
    let (status, fields, body) = Client::new(open).await.get("/", "").await;
    assert_eq!((status, body.as_str()), (200, "hello\n"));
    assert!(!fields.contains_key("ratelimit"), "nobody knows what is left: {fields:?}");

    let closed = with_a_full_store("on_error = 'closed'").await;
    let (status, _, body) = Client::new(closed).await.get("/", "").await;
    assert_eq!(status, 503);
    assert!(body.contains("the store is full"), "{body}");
}
