//! What the server says in its log, by `tracing`: errors and refusals at a bounded rate, and a line for each change of the server.
//! No key is written, only its hash.

use std::fmt::{Display, Formatter};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hyper::HeaderMap;
use tidegate_gate::{Micros, Operation, Resolved};
use tidegate_http::{self as http, Audited, Log, LogSecret, Origin, RevisionTag};
use tracing::field::display;
use tracing::{Level, enabled, info, warn};

use crate::clock;
use crate::http_message::joined;
use crate::store::StoreError;

/// The caller of a request.
pub(super) struct Caller<'r> {
    /// The address of the other end of the connection.
    pub(super) client: IpAddr,
    pub(super) headers: &'r HeaderMap,
}

impl Caller<'_> {
    /// The name that the caller gives itself. `None` if the header is invalid; such a call has changed nothing.
    fn actor(&self) -> Option<String> {
        http::actor(&|name| joined(self.headers, name)).ok()
    }
}

/// The log of a server.
#[derive(Debug)]
pub(super) struct ServerLog {
    pub(super) secret: LogSecret,
    errors: Mutex<Log>,
    refusals: Mutex<Log>,
}

impl ServerLog {
    pub(super) fn new(secret: LogSecret) -> Self {
        Self { secret, errors: Mutex::default(), refusals: Mutex::default() }
    }

    /// An error that concerns no key.
    pub(super) fn error(&self, error: &dyn Display) {
        if let Some(more) = lock(&self.errors).due(clock::now()) {
            warn!(more = more.0, "{error}");
        }
    }

    /// The store did not do an operation on a key.
    pub(super) fn store_error(&self, resolved: &Resolved, error: &StoreError) {
        if let Some(more) = lock(&self.errors).due(clock::now()) {
            let (policy, key) = (resolved.policy().name(), self.hash(resolved));
            let (kind, error) = (error.kind(), error.without_key());
            warn!(policy, %key, kind, error, more = more.0, "the store did not decide");
        }
    }

    /// The store does not count this host among those that share the limits in an outage.
    pub(super) fn uncounted(&self, error: &StoreError) {
        warn!(kind = error.kind(), %error, "the store does not count this host among those that share the limits in an outage");
    }

    /// The host has decided by its share of the limits, because the store is away.
    pub(super) fn share(&self, resolved: &Resolved, cause: Option<&StoreError>) {
        if let Some(more) = lock(&self.errors).due(clock::now()) {
            let (policy, key) = (resolved.policy().name(), self.hash(resolved));
            let (kind, error) = cause.map(|error| (error.kind(), error.without_key())).unzip();
            warn!(policy, %key, kind, error, more = more.0, "decided by this host's share of the limits");
        }
    }

    /// A sample of the refusals: at most one a second, which says how many others there were.
    pub(super) fn refusal(&self, resolved: &Resolved, retry_after_us: u64) {
        if !enabled!(Level::INFO) {
            return;
        }
        if let Some(more) = lock(&self.refusals).due(clock::now()) {
            let (policy, key) = (resolved.policy().name(), self.hash(resolved));
            info!(policy, %key, retry_after_us, more = more.0, "refused");
        }
    }

    /// Says how many errors and refusals came since the last line about them.
    pub(super) fn flush(&self) {
        if let Some(more) = lock(&self.errors).rest() {
            warn!(more = more.0, "more errors");
        }
        if let Some(more) = lock(&self.refusals).rest() {
            info!(more = more.0, "more refusals");
        }
    }

    pub(super) fn start(&self, tag: &RevisionTag) {
        in_force(tag, "the server has started");
    }

    /// Whether all requests were answered, and how many units went back to the store; `None` if the store did not answer.
    pub(super) fn stop(&self, is_drained: bool, units: Option<u64>) {
        self.flush();
        match units {
            Some(returned_units) => info!(is_drained, returned_units, "the server has stopped"),
            None => warn!(is_drained, "the server has stopped; its units did not all go back"),
        }
    }

    /// Who changed the policies. This line is written at every level of the log, and so is the next one.
    pub(super) fn audit(&self, change: &Audited<'_>, client: IpAddr) {
        let Audited { what, key, until, by, .. } = *change;
        let (policy, key) = key.map(|(policy, key)| (policy, display(Hash(key)))).unzip();
        let until_us = until.map(|until| until.0);
        info!(target: AUDIT, policy, key, until_us, by, %client, "audit: policies: {what}");
    }

    /// A block or a reset of a key that the store has done for this caller.
    pub(super) fn audit_key(
        &self,
        resolved: &Resolved,
        operation: &Operation,
        caller: &Caller<'_>,
    ) {
        let (what, for_us) = match *operation {
            Operation::Block(Micros(0)) => ("unblocked", None),
            Operation::Block(Micros(for_us)) => ("blocked", Some(for_us)),
            Operation::Reset(_) => ("reset", None),
            _ => return,
        };
        let (policy, key) = (resolved.policy().name(), self.hash(resolved));
        let (by, client) = (caller.actor(), caller.client);
        info!(target: AUDIT, policy, %key, for_us, by, %client, "audit: a key was {what}");
    }

    fn hash(&self, resolved: &Resolved) -> Hash {
        Hash(self.secret.hash(resolved.policy().name(), resolved.key()))
    }
}

/// The target of the lines about changes that callers have made.
pub const AUDIT: &str = "tidegate::audit";

/// Says which revision is in force, and why.
pub(super) fn in_force(tag: &RevisionTag, why: &str) {
    let RevisionTag { version, hash, origin } = tag;
    match origin {
        Some(Origin { source, at, by }) => {
            let (source, at_us) = (source.name(), at.0);
            info!(version, hash, source, by, at_us, "{why}");
        }
        None => info!(version, hash, "{why}"),
    }
}

/// The hash that stands for a key.
struct Hash(u64);

impl Display for Hash {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}
