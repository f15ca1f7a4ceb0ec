//! TLS to Redis: which certificates the store trusts and shows, and what an error of the handshake means.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::SockRef;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult,
};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, AlertDescription, CertificateError, ClientConfig, RootCertStore};

use super::dialer::{Open, no_handshake};
use super::options::{RedisClientFiles, RedisTls};
use crate::file;
use crate::store::error::StoreError;

/// Connects over TLS.
///
/// The library could connect, too, but it reads the system's certificates anew for each connection, fails if one of
/// them cannot be read, and goes by a cryptography that the whole process shares.
#[derive(Clone)]
pub(super) struct Tls {
    connector: TlsConnector,
}

impl Tls {
    /// Reads the files.
    pub(super) fn new(files: &RedisTls) -> Result<Self, StoreError> {
        Ok(Self { connector: TlsConnector::from(Arc::new(config(files)?)) })
    }

    pub(super) async fn connect(
        &self,
        to: &ConnectionInfo,
        deadline: Duration,
        config: AsyncConnectionConfig,
        in_handshake: &AtomicBool,
    ) -> RedisResult<Open> {
        match timeout(deadline, self.open(to, config, in_handshake)).await {
            Ok(connected) => connected,
            Err(_) if in_handshake.load(Ordering::Relaxed) => Err(no_handshake(deadline)),
            Err(elapsed) => Err(io::Error::from(elapsed).into()),
        }
    }

    async fn open(
        &self,
        to: &ConnectionInfo,
        config: AsyncConnectionConfig,
        in_handshake: &AtomicBool,
    ) -> RedisResult<Open> {
        let (name, host, port) = name(to)?;
        let stream = reach(host, port, to.tcp_settings()).await?;
        in_handshake.store(true, Ordering::Relaxed);
        let stream = self.connector.connect(name, stream).await.map_err(|e| explained(&e))?;
        in_handshake.store(false, Ordering::Relaxed);
        // a server tells after the handshake that it does not accept the client's certificate
        let (connection, driver) =
            MultiplexedConnection::new_with_config(to.redis_settings(), stream, config)
                .await
                .map_err(|error| as_io(&error).map_or(error.clone(), |e| explained(e).into()))?;
        let mut task = JoinSet::new();
        task.spawn(driver);
        Ok(Open { connection, _driver: Some(Arc::new(task)) })
    }
}

/// The name or address that the server's certificate must have, and where the server is.
fn name(to: &ConnectionInfo) -> RedisResult<(ServerName<'static>, &str, u16)> {
    let refused = |reason| RedisError::from((ErrorKind::InvalidClientConfig, reason));
    let ConnectionAddr::Tcp(host, port) = to.addr() else {
        return Err(refused("expected `rediss://HOST:PORT`"));
    };
    let name = ServerName::try_from(host.clone());
    let name = name.map_err(|_| refused("expected a host that a certificate can name"))?;
    Ok((name, host, *port))
}

/// Connects to the address of the host that answers first.
async fn reach(host: &str, port: u16, tcp: &TcpSettings) -> io::Result<TcpStream> {
    let addresses: Vec<_> = lookup_host((host, port)).await?.collect();
    if addresses.is_empty() {
        return Err(io::Error::other("the host has no address"));
    }
    let attempts = addresses.into_iter().map(|address| Box::pin(TcpStream::connect(address)));
    let (stream, _) = select_ok(attempts).await?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_nodelay(tcp.nodelay())?;
    if let Some(keepalive) = tcp.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(tcp.user_timeout())?;
    Ok(stream)
}
fn config(files: &RedisTls) -> Result<ClientConfig, StoreError> {
    let provider = Arc::new(ring::default_provider());
    let roots = match &files.ca {
        Some(file) => roots_of(file)?,
        None => roots_of_the_system()?,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| StoreError::Tls(format!("TLS: {error}")))?
        .with_root_certificates(roots);
    let Some(RedisClientFiles { certificate, key }) = &files.client else {
        return Ok(config.with_no_client_auth());
    };
    let chain = certificates("client certificate", certificate)?;
    config.with_client_auth_cert(chain, private_key(key)?).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => wrong(
            "client key",
            key,
            &format!("expected the key of the certificate {certificate:?}, found another one"),
        ),
        error => wrong("client certificate", certificate, &format!("cannot be used: {error}")),
    })
}

fn roots_of(file: &Path) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("CA", file)? {
        roots
            .add(certificate)
            .map_err(|error| wrong("CA", file, &format!("cannot be used: {error}")))?;
    }
    Ok(roots)
}

/// One that cannot be read does no harm: what it signed is not trusted.
fn roots_of_the_system() -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        false => Ok(roots),
        true => Err(StoreError::Tls(
            "TLS: expected certificates of CAs in this system, found none: install the package `ca-certificates`, \
             or name the CA of the server (`--redis-ca`, `RedisTls::ca`)"
                .to_owned(),
        )),
    }
}

fn certificates(what: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let text = read(what, file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        // what the parser says may repeat the file
        _ => Err(wrong(
            what,
            file,
            "expected PEM, which begins with `-----BEGIN CERTIFICATE-----`, found no certificate",
        )),
    }
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, StoreError> {
    let text = read("client key", file)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        let expected = "expected PEM without a password, which begins with `-----BEGIN PRIVATE KEY-----`, found no \
                        such key";
        wrong("client key", file, expected)
    })
}

fn read(what: &str, path: &Path) -> Result<Vec<u8>, StoreError> {
    file::read(path).map_err(|error| wrong(what, path, &format!("cannot be read: {error}")))
}

fn wrong(what: &str, file: &Path, reason: &str) -> StoreError {
    StoreError::Tls(format!("{what} {file:?}: {reason}"))
}

/// The error with what it means.
fn explained(error: &io::Error) -> io::Error {
    use AlertDescription as Alert;
    use CertificateError as Certificate;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let meaning = match inner {
        Some(rustls::Error::InvalidCertificate(reason)) => match reason {
            Certificate::Expired | Certificate::ExpiredContext { .. } => {
                "the certificate of the server has expired"
            }
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                "the certificate of the server has another name than the URL"
            }
            // one that has the name of a trusted CA and another key
            Certificate::UnknownIssuer | Certificate::BadSignature => {
                "no trusted CA has signed the certificate of the server (`--redis-ca` and `RedisTls::ca` name the CA)"
            }
            _ => "the certificate of the server is not accepted",
        },
        Some(rustls::Error::InvalidMessage(_)) => "the server does not speak TLS at this port",
        Some(rustls::Error::AlertReceived(alert)) => match alert {
            Alert::CertificateRequired => "the server demands a client certificate",
            Alert::HandshakeFailure => {
                "the server refuses the handshake; it may demand a client certificate"
            }
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::AccessDenied
            | Alert::DecryptError => "the server does not accept the client certificate",
            _ => "the server refuses the connection",
        },
        _ if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the server closed the connection during the handshake"
        }
        _ => "the handshake failed",
    };
    io::Error::new(error.kind(), format!("TLS: {meaning}: {error}"))
}

/// The error of rustls that is behind an error of the library.
fn as_io(error: &RedisError) -> Option<&io::Error> {
    let shared = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    let error = shared.downcast_ref::<io::Error>()?;
    error.get_ref()?.is::<rustls::Error>().then_some(error)
}
