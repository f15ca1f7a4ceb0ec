//! A certificate authority, and a Redis over TLS with a certificate of it.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;
use tidegate::local::{RedisServer, at_a_port};
use tidegate::store::{RedisClientFiles, RedisTls};

/// The years until which certificates may be used.
pub const VALID: i32 = 4096;
pub const EXPIRED: i32 = 2020;

/// An authority that keeps the files of its certificates in a folder.
pub struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut own = CertificateParams::new([]).unwrap();
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        fs::write(folder.path().join("ca.pem"), own.self_signed(&key).unwrap().pem()).unwrap();
        Self { folder, issuer: Issuer::new(own, key) }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The files of a certificate for this name or address, which may be used until this year. They replace earlier
    /// files of the same name.
    pub fn sign(&self, file: &str, name: &str, until: i32) -> RedisClientFiles {
        let mut signed = CertificateParams::new([name.to_owned()]).unwrap();
        signed.distinguished_name.push(DnType::CommonName, name); // another than that of the authority
        (signed.not_before, signed.not_after) =
            (date_time_ymd(2000, 1, 1), date_time_ymd(until, 1, 1));
        let own = KeyPair::generate().unwrap();
        let [certificate, key] = ["pem", "key"].map(|end| self.file(&format!("{file}.{end}")));
        fs::write(&certificate, signed.signed_by(&own, &self.issuer).unwrap().pem()).unwrap();
        fs::write(&key, own.serialize_pem()).unwrap();
        RedisClientFiles { certificate, key }
    }

    /// The files of a store that trusts this authority.
    pub fn trusted(&self, client: Option<RedisClientFiles>) -> RedisTls {
        RedisTls { ca: Some(self.file("ca.pem")), client }
    }

    /// A Redis with this certificate, and its URL. `None` if the program has no TLS.
    pub fn redis(&self, own: &RedisClientFiles, demand: Demand) -> Option<(RedisServer, String)> {
        self.redis_with(own, demand, &[])
    }

    /// The same with more options.
    pub fn redis_with(
        &self,
        own: &RedisClientFiles,
        demand: Demand,
        more: &[&str],
    ) -> Option<(RedisServer, String)> {
        if !*HAS_TLS {
            eprintln!("skipped: this server is built without TLS");
            return None;
        }
        let [certificate, key, ca] = [&own.certificate, &own.key, &self.file("ca.pem")]
            .map(|path| path.to_str().unwrap().to_owned());
        let clients = match demand {
            Demand::Certificate => "yes",
            Demand::Nothing => "no",
        };
        let start = |port: u16| {
            let port = port.to_string();
            let own = [
                "--bind",
                "127.0.0.1",
                "--tls-port",
                &port,
                "--tls-cert-file",
                &certificate,
                "--tls-key-file",
                &key,
                "--tls-ca-cert-file",
                &ca,
                "--tls-auth-clients",
                clients,
            ];
            let server = RedisServer::start_with([&own[..], more].concat());
            server.map(|server| (server, format!("rediss://127.0.0.1:{port}")))
        };
        Some(at_a_port(start).unwrap())
    }
}

/// What a server demands of its clients.
#[derive(Clone, Copy)]
pub enum Demand {
    Certificate,
    Nothing,
}

/// Whether the program that `TIDEGATE_REDIS_SERVER` names speaks TLS. It ends in any case, because it gets no certificate.
/// The one that is installed must speak TLS.
static HAS_TLS: LazyLock<bool> = LazyLock::new(|| {
    let Some(program) = env::var_os("TIDEGATE_REDIS_SERVER") else { return true };
    let output = Command::new(program).args(["--port", "0", "--tls-port", "1"]).output().unwrap();
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!output.status.success(), "{told}");
    !["'tls-port", "Failed finding TLS support"].iter().any(|without| told.contains(without))
});
