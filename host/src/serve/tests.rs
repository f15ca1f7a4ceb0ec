//! Connections: both versions of HTTP, TLS, and their bounds.

#![cfg(feature = "tls")]

use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Context;

use futures_util::future::join_all;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;

const POLICIES: &str =
    "[policies.api]\nlimits = [{ algorithm = 'fixed_window', limit = 5, period = '365d' }]";

struct Running {
    address: SocketAddr,
    reload: Reload,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

async fn start(bounds: Bounds, reload: Reload) -> Running {
    let policies = Policies::parse(POLICIES).unwrap();
    let store = Store::memory(&policies, 1 << 20).unwrap();
    let (files, access) = (Files::new(POLICIES.to_owned()), Access::OPEN);
    let watch = Watch::default();
    let service = Service { policies, files, store, access, bounds, watch, reload: reload.clone() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let ended = tokio::spawn(serve(service, vec![listener], async { drop(stopped.await) }));
    Running { address, reload, stop, ended }
}

impl Running {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn stop(self) {
        let _ = self.stop.send(());
        self.ended.await.unwrap();
    }
}

type Client2 = http2::SendRequest<Empty<Bytes>>;

/// A connection of HTTP/2, and a task that ends with it.
async fn client2(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> (Client2, JoinHandle<hyper::Result<()>>) {
    let io = TokioIo::new(stream);
    let (client, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    (client, tokio::spawn(connection))
}

fn request(uri: &str) -> Request<Empty<Bytes>> {
    Request::get(uri).body(Empty::new()).unwrap()
}

const GATE: &str = "http://tidegate/v1/gate?policy=api&key=k";

#[tokio::test]
async fn one_port_answers_both_versions_of_http_by_the_same_limits() {
    let server = start(Bounds::default(), Reload::default()).await;
    let (mut two, _connection) = client2(server.connect().await).await;
    let io = TokioIo::new(server.connect().await);
    let (mut one, connection) = http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    for left in [4, 2] {
        let response = two.send_request(request(GATE)).await.unwrap();
        assert_eq!(
            (response.status(), response.version()),
            (204.try_into().unwrap(), Version::HTTP_2)
        );
        let said = response.headers()["ratelimit"].to_str().unwrap().to_owned();
        assert!(said.contains(&format!("r={left}")), "{said}");
        let mut head = request("/v1/gate?policy=api&key=k");
        head.headers_mut().insert("host", "tidegate".parse().unwrap());
        let response = one.send_request(head).await.unwrap();
        assert_eq!(
            (response.status(), response.version()),
            (204.try_into().unwrap(), Version::HTTP_11)
        );
    }
    assert_eq!(two.send_request(request(GATE)).await.unwrap().status(), 204);
    let refused = two.send_request(request(GATE)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("quota-exceeded"));
    server.stop().await;
}

#[tokio::test]
async fn a_head_gets_the_length_of_the_body_and_no_body() {
    let server = start(Bounds::default(), Reload::default()).await;
    let (mut two, _connection) = client2(server.connect().await).await;
    for uri in ["http://tidegate/healthz", "http://tidegate/nothing"] {
        let length = two.send_request(request(uri)).await.unwrap().into_body().collect().await;
        let length = length.unwrap().to_bytes().len().to_string();
        let head = Request::head(uri).body(Empty::new()).unwrap();
        let answer = two.send_request(head).await.unwrap();
        assert_eq!(answer.headers()["content-length"], length.as_str());
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(body.is_empty(), "{body:?}");
    }
    server.stop().await;
}

/// A body of zeros, of which this many bytes are not read yet.
struct Zeros(Arc<AtomicUsize>);

impl Body for Zeros {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let read = self.0.load(Ordering::Relaxed).min(65_536);
        self.0.fetch_sub(read, Ordering::Relaxed);
        Poll::Ready((read > 0).then(|| Ok(Frame::data(vec![0; read].into()))))
    }
}

#[tokio::test]
async fn an_early_answer_of_http_2_comes_after_the_body_was_read() {
    let server = start(Bounds::default(), Reload::default()).await;
    let io = TokioIo::new(server.connect().await);
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    for path in ["nothing", "healthz", "v1/keys/api/k", "v1/check"] {
        let left = Arc::new(AtomicUsize::new(40 << 20)); // more than hyper reads ahead, and than HTTP/1.1 discards
        let request = Request::post(format!("http://tidegate/{path}"));
        let request = request.header("origin", "null").body(Zeros(Arc::clone(&left))).unwrap();
        let answer = client.send_request(request).await.unwrap();
        assert!(answer.status().is_client_error(), "{}", answer.status());
        assert_eq!(left.load(Ordering::Relaxed), 0, "{path}");
    }
    server.stop().await;
}

/// Windows of 0: the client takes no byte of an answer.
#[tokio::test]
async fn a_client_of_http_2_that_takes_no_answer_holds_a_bounded_number_of_bytes_until_it_is_cut_off()
 {
    let bounds = Bounds { write_timeout: Duration::from_secs(1), ..Bounds::default() };
    let server = start(bounds, Reload::default()).await;
    let io = TokioIo::new(server.connect().await);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let (client, connection) = builder.initial_stream_window_size(0).handshake(io).await.unwrap();
    let connection = tokio::spawn(connection);
    let batch = vec![r#"{"policy":"api","key":"k","cost":0}"#; 1_000].join(",");
    let batch = Bytes::from(format!("{{\"checks\":[{batch}]}}"));
    let answers = join_all((0..100).map(|_| {
        let batch = Full::new(batch.clone());
        let mut client = client.clone();
        let head = Request::post("http://tidegate/v1/check");
        async move { client.send_request(head.body(batch).unwrap()).await }
    }));
    let answers = answers.await;
    let _ = connection.await; // it is cut off
    let length = |answer: &Response<Incoming>| {
        answer.headers()["content-length"].to_str().unwrap().parse::<usize>().unwrap()
    };
    let held: Vec<_> = answers.iter().flatten().map(length).collect();
    assert!(!held.is_empty() && held.iter().sum::<usize>() < 8 << 20, "{held:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_head_of_http_2_is_bounded() {
    let server = start(Bounds::default(), Reload::default()).await;
    let (mut client, _connection) = client2(server.connect().await).await;
    let mut status = async |bytes: usize| {
        let mut head = request("http://tidegate/healthz");
        head.headers_mut().insert("x-long", "a".repeat(bytes).parse().unwrap());
        client.send_request(head).await.map(|response| response.status())
    };
    assert_eq!(status(60_000).await.unwrap(), StatusCode::OK);
    let status = status(70_000).await;
    assert!(
        !status.as_ref().is_ok_and(StatusCode::is_success),
        "a head of more than 64 KiB: {status:?}"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_connection_of_http_2_without_requests_is_closed() {
    let bounds = Bounds { read_timeout: Duration::from_secs(1), ..Bounds::default() };
    let server = start(bounds, Reload::default()).await;
    let (mut client, connection) = client2(server.connect().await).await;
    assert_eq!(client.send_request(request(GATE)).await.unwrap().status(), 204);
    let _ = connection.await; // the client keeps its side open
    drop(client);
    server.stop().await;
}

#[tokio::test]
async fn an_idle_connection_of_http_2_gives_its_place_to_a_new_one() {
    let bounds = Bounds { max_connections: 1, ..Bounds::default() };
    let server = start(bounds, Reload::default()).await;
    let mut idle = Vec::new();
    for _ in 0..2 {
        let (mut client, connection) = client2(server.connect().await).await;
        let answer = client.send_request(request(GATE)).await.unwrap();
        assert_eq!(answer.status(), 204);
        idle.push((client, connection));
    }
    let (mut client, connection) = idle.remove(0);
    let _ = connection.await; // the client keeps its side open
    assert!(client.send_request(request(GATE)).await.is_err());
    server.stop().await;
}

#[tokio::test]
async fn a_silent_connection_gives_its_place_to_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let trusted = certificate(folder.path());
    let bounds = Bounds {
        max_connections: 1,
        first_head_timeout: Duration::from_secs(3_600),
        ..Bounds::default()
    };
    for is_tls in [false, true] {
        let reload = if is_tls { with_tls(folder.path()).unwrap() } else { Reload::default() };
        let server = start(bounds, reload).await;
        let mut silent = server.connect().await;
        let answered = async {
            let (mut client, _connection) = match is_tls {
                true => client2(handshake(&server, &trusted, "h2").await.unwrap()).await,
                false => client2(server.connect().await).await,
            };
            client.send_request(request(GATE)).await.unwrap().status()
        };
        assert_eq!(answered.await, 204, "TLS: {is_tls}");
        assert_eq!(silent.read(&mut [0]).await.unwrap(), 0, "it is closed");
        server.stop().await;
    }
}

#[tokio::test]
async fn a_server_that_stops_closes_idle_connections() {
    let server = start(Bounds::default(), Reload::default()).await;
    let mut silent = server.connect().await; // accepted before the next one, which gets an answer
    let (mut client, connection) = client2(server.connect().await).await;
    assert_eq!(client.send_request(request(GATE)).await.unwrap().status(), 204);
    server.stop().await;
    let _ = connection.await;
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0, "it is closed");
}

/// Writes a certificate for `localhost` and its key, and returns the certificate.
fn certificate(folder: &Path) -> CertificateDer<'static> {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("key.pem"), signing_key.serialize_pem()).unwrap();
    std::fs::write(folder.join("cert.pem"), cert.pem()).unwrap();
    CertificateDer::from_pem_slice(cert.pem().as_bytes()).unwrap()
}

fn with_tls(folder: &Path) -> io::Result<Reload> {
    Ok(Reload::default().with_tls(Tls::read(folder.join("cert.pem"), folder.join("key.pem"))?))
}

async fn handshake(
    server: &Running,
    trusted: &CertificateDer<'static>,
    protocol: &str,
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.into()];
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, server.connect().await).await
}

#[tokio::test]
async fn tls_offers_both_versions_and_takes_a_renewed_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let first = certificate(folder.path());
    let server = start(Bounds::default(), with_tls(folder.path()).unwrap()).await;
    let stream = handshake(&server, &first, "h2").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut client, _connection) = client2(stream).await;
    assert_eq!(client.send_request(request(GATE)).await.unwrap().status(), 204);
    let mut stream = handshake(&server, &first, "http/1.1").await.unwrap();
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text).await;
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");

    let second = certificate(folder.path());
    server.reload.again();
    while handshake(&server, &second, "h2").await.is_err() {}
    assert_eq!(client.send_request(request(GATE)).await.unwrap().status(), 204, "it goes on");
    std::fs::write(folder.path().join("cert.pem"), "garbage").unwrap();
    let reread = server.reload.tls().unwrap().reread(); // as the server does
    assert!(reread.is_err(), "{reread:?}");
    assert!(handshake(&server, &second, "h2").await.is_ok(), "the earlier certificate stays");
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_begins_no_handshake_or_speaks_no_tls_loses_its_place() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let bounds = Bounds {
        first_head_timeout: Duration::from_millis(200),
        max_connections: 1,
        ..Bounds::default()
    };
    let server = start(bounds, with_tls(folder.path()).unwrap()).await;
    for sent in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"] {
        let mut stream = server.connect().await;
        stream.write_all(sent).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }
    server.stop().await;
}

#[test]
fn files_that_hold_no_certificate_or_key_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = |expected: &str| {
        let error = with_tls(folder.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    wrong("cert.pem: No such file");
    certificate(folder.path());
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("key.pem", "garbage");
    wrong("key.pem: expected a private key in PEM without a password, found none");
    let whole = std::fs::read_to_string(folder.path().join("cert.pem")).unwrap();
    certificate(folder.path());
    write("cert.pem", &whole);
    wrong("key.pem: expected the key of");
    certificate(folder.path());
    write("cert.pem", "garbage");
    wrong("cert.pem: expected a certificate in PEM, found none");
    write("cert.pem", "-----BEGIN CERTIFICATE-----\nMIIB");
    wrong("cert.pem: expected certificates in PEM, found one that is cut off or damaged");
    for name in ["cert.pem", "key.pem"] {
        certificate(folder.path());
        let path = folder.path().join(name);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        wrong(&format!("{name}: expected a regular file"));
        std::fs::remove_file(&path).unwrap();
    }
}
