//! The I/O of a server, with its requests and responses.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_core::Timestamp;

use super::problem::Problem;
use super::{
    Check, MAX_BODY_BYTES, MAX_DRAINED_BYTES, MISCONFIGURED, Outcome, PolicyCall, Stamp,
    internal_error,
};
use crate::source::token::Verify;

/// A request without its body.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "holds a closure")]
pub struct Head<'a> {
    /// The method in capitals, as on the wire.
    pub method: &'a str,
    /// The path, such as `/v1/check`.
    pub path: &'a str,
    /// The query after the question mark; may be empty.
    pub query: &'a str,
    /// Returns the value of a header by its name in lower case.
    pub header: &'a dyn Fn(&str) -> Option<String>,
    /// Returns the address that the request came from, if the adapter trusts its source.
    pub client_ip: &'a dyn Fn() -> Option<String>,
    /// The client's country, if the adapter knows it.
    pub country: Option<&'a str>,
    /// The time, by which tokens expire.
    pub now: Timestamp,
}

/// A response, which the server sends unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The names and values of the headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body: JSON, or empty.
    pub body: String,
}

/// The I/O of a server: bodies, decisions and random numbers.
#[expect(async_fn_in_trait, reason = "servers decide by themselves what their futures can do")]
pub trait Server {
    /// Reads the body of the request.
    ///
    /// # Errors
    /// Fails with [`BodyError`] if the server cannot read the whole body.
    async fn body(&mut self) -> Result<Vec<u8>, BodyError>;

    /// Decides each check in its store. Checks on one key are decided in their order. Returns one outcome
    /// for each check, in the order of the checks.
    async fn decide(&mut self, checks: &[Check]) -> Vec<Outcome>;

    /// Whether the signature of a token holds. By default a server has no keys.
    ///
    /// # Errors
    /// Fails with [`NoKeys`] if the server cannot judge any token. The request is then refused: a token that counted as
    /// absent would let its request pass as another caller's.
    async fn verify(&mut self, _: &Verify) -> Result<bool, NoKeys> {
        Err(NoKeys)
    }

    /// Returns a random number that nobody can guess, because it may become the name of a lease. `None` if
    /// the server has no random numbers.
    fn random(&mut self) -> Option<u64>;

    /// Takes note of the outcome of a check, for [`Metrics::count`](super::Metrics::count).
    fn decided(&mut self, _: &Check, _: &Outcome) {}

    /// The text of [`Metrics`](super::Metrics), with the server's own counters.
    fn metrics(&self) -> String {
        String::new()
    }

    /// The header `Server-Timing` of the decisions that were made last, if the server measures them.
    fn timing(&self) -> Option<String> {
        None
    }

    /// The edition of the policies by which the request is answered.
    fn stamp(&self) -> Stamp {
        Stamp::default()
    }

    /// Answers a call about the editions of the policies by [`Editions::handle`](super::Editions::handle). By default a
    /// server has no editions.
    async fn editions(&mut self, _: PolicyCall) -> Response {
        Problem::NotFound.response("this server has no editions of its policies".to_string())
    }
}

/// The keys of the tokens are missing or cannot be used. The server has written the reason to its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoKeys;

impl From<NoKeys> for Response {
    fn from(NoKeys: NoKeys) -> Self {
        internal_error(MISCONFIGURED.to_string())
    }
}

/// The reason why the server cannot read a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The body is longer than [`MAX_BODY_BYTES`]. The server read this many bytes.
    TooLarge(usize),
    /// The rest of the body had not arrived after this time.
    TooLate(Duration),
    /// The client closed the connection within the body.
    Incomplete,
}

impl BodyError {
    pub(super) fn response(self) -> Response {
        match self {
            Self::TooLarge(bytes) => {
                let found = match bytes > MAX_DRAINED_BYTES {
                    true => alloc::format!("more than {MAX_DRAINED_BYTES}"),
                    false => bytes.to_string(),
                };
                Problem::BodyTooLarge.response(alloc::format!(
                    "expected a body of at most {MAX_BODY_BYTES} bytes, found {found}"
                ))
            }
            Self::TooLate(after) => Problem::BodyTooLate.response(alloc::format!(
                "expected the whole body within {after:?} after the head, found a part of it"
            )),
            Self::Incomplete => Problem::InvalidRequest
                .response("expected the whole body, found a part of it".to_string()),
        }
    }
}
