//! Why a call has no answer.

use serde::Deserialize;

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The URL is none of a server.
    #[error("expected a URL such as https://limiter.example, found {0:?}")]
    Url(String),
    /// The token has characters that no header can carry.
    #[error("the token: expected printable ASCII, found other characters")]
    Token,
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(String),
    /// The call ends or renews something, and does not name it.
    #[error("expected a call with an `id`, found none")]
    NoId,
    /// The call is wrong, or the token does not permit it. Nothing was taken.
    #[error("{status}: {detail}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The type of the problem, such as `urn:tidegate:unknown-policy`; empty if the answer has none.
        problem: String,
        /// What was expected, and what was found.
        detail: String,
    },
    /// The server did not answer, or not as a Tidegate does. The call may have been taken nevertheless.
    #[error("the server is away: {0}")]
    Away(String),
}

/// The body of a problem.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Problem {
    r#type: String,
    detail: String,
}

impl ClientError {
    /// The error of a server that answered with this status and body.
    pub(super) fn refused(status: u16, body: &[u8]) -> Self {
        let Problem { r#type, detail } = serde_json::from_slice(body).unwrap_or_default();
        Self::Refused { status, problem: r#type, detail }
    }
}
