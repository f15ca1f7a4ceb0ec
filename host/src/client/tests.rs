//! Tests of the client of a store, and of servers that fail.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::*;
use crate::gate::OnError;

const POLICIES: &str = "
    [policies.login]
    limits = [{ algorithm = 'fixed_window', limit = 3, period = '365d' }]
    deny = ['bad']
    idempotency = '1d'
    reservations = {}
    [policies.jobs]
    limits = [{ algorithm = 'concurrency', capacity = 1, time_to_live = '1d' }]
";

fn of_store() -> Client {
    let policies = Policies::parse(POLICIES).unwrap();
    Client::of_store(Store::memory(&policies, 1 << 20).unwrap(), policies)
}

fn login() -> Call<'static> {
    Call::new("login", "user:42")
}

#[tokio::test]
async fn a_store_decides_as_a_server_does() {
    let client = of_store();
    let peeked = client.peek(&login().cost(4)).await.unwrap_err();
    assert!(
        matches!(&peeked, ClientError::Refused { status: 400, problem, .. }
        if problem == "urn:tidegate:cost-exceeds-capacity"),
        "{peeked:?}"
    );
    let taken = client.check(&login().cost(2)).await.unwrap();
    assert_eq!((taken.allowed, taken.limit, taken.remaining), (true, 3, 1));
    assert_eq!((taken.policy.as_str(), taken.limits[0].name.as_str()), ("login", "login"));
    assert_eq!(taken.retry_after(), None);
    let refused = client.check(&login().cost(2)).await.unwrap();
    assert!(!refused.allowed && refused.retry_after().unwrap() > Duration::from_secs(1));
    assert_eq!(client.peek(&login()).await.unwrap().remaining, 1);

    let denied = client.check(&Call::new("login", "bad")).await.unwrap();
    assert_eq!((denied.allowed, denied.denied, denied.retry_after()), (false, true, None));
    let unknown = client.check(&Call::new("none", "k")).await.unwrap_err();
    assert!(matches!(unknown, ClientError::Refused { status: 404, .. }), "{unknown:?}");
}

#[tokio::test]
async fn a_call_with_an_idempotency_key_is_taken_once() {
    let client = of_store();
    for _ in 0..5 {
        let answer = client.check(&login().idempotency_key("once")).await.unwrap();
        assert_eq!((answer.allowed, answer.remaining), (true, 2));
    }
    assert_eq!(client.peek(&login()).await.unwrap().remaining, 2);
}

#[tokio::test]
async fn a_reservation_is_committed_at_its_true_cost() {
    let client = of_store();
    let reserved = client.reserve(&login().cost(3)).await.unwrap();
    assert_eq!((reserved.allowed, reserved.reserved), (true, Some(3)));
    let id = reserved.id.unwrap();
    let committed = client.commit(&login().id(&id), 1).await.unwrap();
    assert_eq!((committed.charged, committed.late, committed.remaining), (Some(1), false, 2));
    client.reserve(&login().cost(2).id("second")).await.unwrap();
    let cancelled = client.cancel(&login().id("second")).await.unwrap();
    assert_eq!((cancelled.charged, cancelled.remaining), (Some(0), 2));
    assert_eq!(client.commit(&login(), 1).await, Err(ClientError::NoId));
}

#[tokio::test]
async fn a_lease_is_acquired_renewed_and_released() {
    let client = of_store();
    let job = Call::new("jobs", "a/b ä");
    let acquired = client.acquire(&job).await.unwrap();
    let name = acquired.lease.unwrap();
    assert!(!client.acquire(&job.id("another")).await.unwrap().allowed);
    assert_eq!(client.renew(&job.id(&name)).await.unwrap().live, Some(true));
    assert_eq!(client.release(&job.id(&name)).await.unwrap().live, Some(true));
    assert_eq!(client.release(&job.id(&name)).await.unwrap().live, Some(false));
    assert!(client.acquire(&job.id("a/b?c")).await.unwrap().allowed);
    assert_eq!(client.release(&job.id("a/b?c")).await.unwrap().live, Some(true));
}

/// The URL of a server that does this with each connection.
async fn server<F>(talk: impl Fn(TcpStream) -> F + Send + 'static) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(talk(stream));
        }
    });
    url
}

/// Reads a request, which ends with its head or with the brace of its body.
async fn read(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    loop {
        let is_whole =
            text.ends_with(b"}") || text.starts_with(b"GET") && text.ends_with(b"\r\n\r\n");
        if is_whole || stream.read_buf(&mut text).await.unwrap_or(0) == 0 {
            break;
        }
    }
    String::from_utf8(text).unwrap()
}

async fn answer(stream: &mut TcpStream, body: &str) {
    let length = body.len();
    let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await.unwrap();
}

fn closed_after(deadline: Duration) -> ClientOptions {
    ClientOptions { deadline, ..ClientOptions::default() }
}

const SOON: Duration = Duration::from_millis(50);
const LATE: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn without_a_server_on_error_decides() {
    let nobody = TcpSocket::new_v4().unwrap(); // has a port, and does not listen
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", nobody.local_addr().unwrap());
    for (on_error, allowed) in
        [(None, false), (Some(OnError::Closed), false), (Some(OnError::Open), true)]
    {
        let options = ClientOptions { on_error, ..closed_after(LATE) };
        let client = Client::of_server(&url, options).unwrap();
        for answer in [
            client.check(&login()).await,
            client.peek(&login()).await,
            client.reserve(&login()).await,
            client.acquire(&login()).await,
        ] {
            let answer = answer.unwrap();
            assert_eq!((answer.allowed, answer.policy.as_str()), (allowed, "login"));
            assert!(answer.degraded.is_some() && answer.retry_after().is_none());
        }
        let commit = client.commit(&login().id("x"), 1).await;
        assert!(matches!(commit, Err(ClientError::Away(_))), "{commit:?}");
    }
}

#[tokio::test]
async fn a_silent_server_is_away_after_the_deadline() {
    let url = server(async |stream| {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let client = Client::of_server(&url, closed_after(SOON)).unwrap();
    let answer = client.check(&login()).await.unwrap();
    assert_eq!(answer.degraded.as_deref(), Some("no answer within 50ms"));
}

#[tokio::test]
async fn an_answer_of_something_else_is_no_grant() {
    for body in
        ["", "{", "{}", "[]", "[\"login\",true]", "<html>", "{\"policy\":\"login\",\"allowed\":1}"]
    {
        let url = server(async move |mut stream| {
            read(&mut stream).await;
            answer(&mut stream, body).await;
        })
        .await;
        let client = Client::of_server(&url, closed_after(LATE)).unwrap();
        let answer = client.check(&login()).await.unwrap();
        assert!(!answer.allowed && answer.degraded.is_some(), "{body}: {answer:?}");
    }
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_only_if_the_call_is_taken_once() {
    let (sender, mut requests) = tokio::sync::mpsc::unbounded_channel();
    let url = server(move |mut stream| {
        let sender = sender.clone();
        async move {
            sender.send(read(&mut stream).await).unwrap(); // and closes the connection
        }
    })
    .await;
    let client = Client::of_server(&url, closed_after(LATE)).unwrap();
    client.check(&login()).await.unwrap();
    assert!(requests.recv().await.unwrap().starts_with("POST /v1/check"));
    client.check(&login().idempotency_key("once")).await.unwrap();
    for _ in 0..2 {
        let repeat = requests.recv().await.unwrap();
        assert!(repeat.contains("idempotency-key: once\r\n"), "{repeat}");
    }
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn the_policy_says_on_error_once_the_server_has_told_it() {
    let (sender, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let url = server(move |mut stream| {
        let sender = sender.clone();
        async move {
            // one answer on each connection; `open` is asked for after the end
            let request = read(&mut stream).await;
            let body = match request.starts_with("GET /v1/policies ") {
                true => r#"{"policies":[{"name":"login","on_error":"open"},{"name":"jobs","on_error":"closed"}]}"#,
                false if request.contains("\"id\"") => "nonsense",
                false => r#"{"policy":"login","allowed":true,"new_field":1}"#,
            };
            answer(&mut stream, body).await;
            sender.send(request).unwrap();
        }
    })
    .await;
    let client = Client::of_server(&url, closed_after(LATE)).unwrap();
    let fails = login().id("makes it fail");
    assert!(!client.reserve(&fails).await.unwrap().allowed, "not known yet");
    assert!(client.check(&login()).await.unwrap().allowed);
    while !asked.recv().await.unwrap().starts_with("GET /v1/policies") {}
    let jobs = Call::new("jobs", "k").id("makes it fail");
    // what was told arrives a moment after it was sent
    while !client.reserve(&fails).await.unwrap().allowed {}
    assert!(!client.reserve(&jobs).await.unwrap().allowed);
}

#[test]
fn a_wrong_url_or_token_is_refused_without_its_password() {
    for url in ["", "limiter", "ftp://h", "http://", "http://h?x=1", "redis://me:secret@h"] {
        let error = Client::of_server(url, ClientOptions::default()).unwrap_err();
        assert!(matches!(error, ClientError::Url(_)), "{url}: {error:?}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let options = ClientOptions { token: Some("a\nb".to_owned()), ..ClientOptions::default() };
    assert!(!format!("{options:?}").contains("a\\nb"));
    let error = Client::of_server("http://h", options).unwrap_err();
    assert_eq!(error, ClientError::Token);
}
