//! TLS of the server itself: a certificate and its key, which are read again when they are renewed.

use std::io;
use std::path::PathBuf;

#[cfg(feature = "tls")]
pub(super) use with_tls::Acceptor;
#[cfg(not(feature = "tls"))]
pub(super) use without_tls::Acceptor;

/// The certificate of a server and its private key, in files.
#[derive(Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    acceptor: Acceptor,
}

impl Tls {
    /// Reads the certificates, the server's own first, and the key, each in PEM.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, if it holds something else, or if the program was built without the feature `tls`.
    pub fn read(certificate: PathBuf, key: PathBuf) -> io::Result<Self> {
        let acceptor = Acceptor::read(&certificate, &key)?;
        Ok(Self { certificate, key, acceptor })
    }

    /// Reads the files again. Returns whether new connections get another certificate.
    ///
    /// # Errors
    /// As [`read`](Self::read); the earlier certificate then stays.
    pub(super) fn reread(&self) -> io::Result<bool> {
        self.acceptor.reread(&self.certificate, &self.key)
    }

    pub(super) const fn acceptor(&self) -> &Acceptor {
        &self.acceptor
    }
}

#[cfg(feature = "tls")]
mod with_tls {
    use std::io;
    use std::path::Path;
    use std::sync::{Arc, PoisonError, RwLock};

    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio_rustls::rustls::{Error, ServerConfig};

    use crate::file::read_regular;

    /// The protocols that the server speaks, the preferred one first.
    const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

    /// The configuration of new connections, and the bytes of the files that it was made of.
    #[derive(Debug)]
    pub(in super::super) struct Acceptor(RwLock<(Arc<ServerConfig>, [Vec<u8>; 2])>);

    impl Acceptor {
        pub(super) fn read(certificate: &Path, key: &Path) -> io::Result<Self> {
            let files = read(certificate, key)?;
            Ok(Self(RwLock::new((Arc::new(config(certificate, key, &files)?), files))))
        }

        pub(super) fn reread(&self, certificate: &Path, key: &Path) -> io::Result<bool> {
            let files = read(certificate, key)?;
            if self.0.read().unwrap_or_else(PoisonError::into_inner).1 == files {
                return Ok(false);
            }
            let config = Arc::new(config(certificate, key, &files)?);
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = (config, files);
            Ok(true)
        }

        pub(in super::super) fn get(&self) -> TlsAcceptor {
            let config = self.0.read().unwrap_or_else(PoisonError::into_inner);
            TlsAcceptor::from(Arc::clone(&config.0))
        }
    }

    fn read(certificate: &Path, key: &Path) -> io::Result<[Vec<u8>; 2]> {
        let read = |path: &Path| read_regular(path).map_err(|error| named(path, &error));
        Ok([read(certificate)?, read(key)?])
    }

    fn config(
        certificate: &Path,
        key: &Path,
        [chain, own_key]: &[Vec<u8>; 2],
    ) -> io::Result<ServerConfig> {
        let damaged = "expected certificates in PEM, found one that is cut off or damaged";
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|_| named(certificate, &damaged))?;
        if chain.is_empty() {
            return Err(named(certificate, &"expected a certificate in PEM, found none"));
        }
        let own_key = PrivateKeyDer::from_pem_slice(own_key).map_err(|error| {
            let found = match error {
                pem::Error::NoItemsFound => "none",
                _ => "one that is cut off or damaged",
            };
            named(key, &format!("expected a private key in PEM without a password, found {found}"))
        })?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(chain, own_key)
            .map_err(|error| match error {
                Error::InconsistentKeys(_) => named(
                    key,
                    &format!("expected the key of {}, found another one", certificate.display()),
                ),
                error => named(certificate, &error),
            })?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(config)
    }

    fn named(path: &Path, error: &dyn std::fmt::Display) -> io::Error {
        io::Error::other(format!("{}: {error}", path.display()))
    }
}

#[cfg(not(feature = "tls"))]
mod without_tls {
    use std::convert::Infallible;
    use std::io;
    use std::path::Path;

    #[derive(Debug)]
    pub(in super::super) struct Acceptor(pub(in super::super) Infallible);

    impl Acceptor {
        pub(super) fn read(_: &Path, _: &Path) -> io::Result<Self> {
            Err(io::Error::other("this program was built without the feature `tls`"))
        }

        pub(super) fn reread(&self, _: &Path, _: &Path) -> io::Result<bool> {
            match self.0 {}
        }
    }
}
