//! The middleware in front of a real server: the example.

#![expect(clippy::unwrap_used, reason = "a failed unwrap ends its test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;

#[path = "../examples/reqwest.rs"]
#[expect(dead_code, reason = "its `main` asks a fixed address")]
mod example;

/// The URL of a server that refuses its first request for a second.
async fn server() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let app = Router::new().route(
        "/",
        get(async move || match counted.fetch_add(1, Ordering::Relaxed) {
            0 => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]),
            _ => (StatusCode::OK, [("x", "y")]),
        }),
    );
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, count)
}

#[tokio::test]
async fn the_example_keeps_within_its_limit_and_waits_for_the_server() {
    let (url, count) = server().await;
    let client = example::client().unwrap();
    let began = Instant::now();
    assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    // the bucket is full again
    let began = Instant::now();
    for _ in 0..15 {
        assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    }
    // 5 at once, and one more each 20 ms
    assert!(began.elapsed() >= Duration::from_millis(190), "{:?}", began.elapsed());
    assert_eq!(count.load(Ordering::Relaxed), 17);
}
