//! The options that name the files of a Redis over TLS.

use std::path::PathBuf;

use tidegate::store::{RedisClientFiles, RedisTls};

/// The files of a Redis over TLS, the same for every command.
#[derive(Clone, clap::Args)]
pub(crate) struct RedisFiles {
    /// Trust a Redis at rediss://… whose certificate a CA in this PEM file has signed, instead of the system's CAs
    #[arg(long, value_name = "FILE", requires = "redis")]
    redis_ca: Option<PathBuf>,
    /// Show this certificate to a Redis that demands one: a PEM file, with the certificates between it and the CA
    #[arg(long, value_name = "FILE", requires_all = ["redis", "redis_key"])]
    redis_cert: Option<PathBuf>,
    /// The private key of --redis-cert: a PEM file without a password
    #[arg(long, value_name = "FILE", requires_all = ["redis", "redis_cert"])]
    redis_key: Option<PathBuf>,
}

impl RedisFiles {
    pub(crate) fn tls(self) -> RedisTls {
        let client = self.redis_cert.zip(self.redis_key);
        let client = client.map(|(certificate, key)| RedisClientFiles { certificate, key });
        RedisTls { ca: self.redis_ca, client }
    }
}
