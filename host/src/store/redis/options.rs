//! How a store uses its Redis.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_gate::{Micros, Timestamp};

use crate::clock;

/// How a [`Redis`](super::Redis) store uses its server.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// How long Redis may be silent after a question, connecting included. Time in the store's own queue
    /// does not count, nor does time in which Redis answers earlier questions. An operation that has waited
    /// in the queue for 16 deadlines is not begun. A deadline of more than an hour counts as an hour.
    pub deadline: Duration,
    /// The prefix of every name that the store uses.
    pub prefix: String,
    /// The largest difference between any two clocks of the hosts and of Redis. States are kept this much
    /// longer, because they expire by the clock of Redis while hosts decide by their own clocks.
    pub ttl_margin: Micros,
    /// The clock of this host. An operation is decided at the time that its caller gives. An
    /// operation that has waited for more than half the period of its limits is decided at the time of
    /// this clock, because an older time can turn a key's clock back. By default this is
    /// [`clock::now`](crate::clock::now). With `None` the caller's time always counts, and every operation asks Redis: `remember`,
    /// `local` and `reports` of a policy then do nothing. Replays need both.
    pub clock: Option<fn() -> Timestamp>,
    /// The files of a Redis over TLS, whose URL begins with `rediss://`.
    pub tls: RedisTls,
}

/// The files of a Redis over TLS, in PEM. They are read when the store is made.
///
/// The certificate of the server is always verified, and so is its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisTls {
    /// The certificates of the CAs that the store trusts. `None` for those of the system.
    pub ca: Option<PathBuf>,
    /// What the store shows to a server that demands a certificate.
    pub client: Option<RedisClientFiles>,
}

/// The certificate of a client, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisClientFiles {
    /// The certificate, followed by those between it and the CA, if there are any.
    pub certificate: PathBuf,
    /// The private key of the certificate, without a password.
    pub key: PathBuf,
}

impl Default for RedisOptions {
    fn default() -> Self {
        let (prefix, ttl_margin) = (String::new(), Micros(10_000_000));
        let (deadline, tls) = (Duration::from_millis(250), RedisTls::default());
        Self { deadline, prefix, ttl_margin, clock: Some(clock::now), tls }
    }
}
