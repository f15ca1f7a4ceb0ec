//! A request, as adapters hand it in.

use alloc::string::{String, ToString};
use core::net::IpAddr;
use core::time::Duration;

use percent_encoding::percent_decode_str;
use tidegate_gate::Timestamp;

use crate::answer::problem::{MISCONFIGURED, Problem, internal_error};
use crate::response::Response;

/// The longest body that a server accepts.
pub const MAX_BODY_BYTES: usize = 262_144;
/// The most bytes of a body that is too long which a server reads and discards before it answers. A
/// client that is still sending when its connection ends may never see the answer.
pub const MAX_DRAINED_BYTES: usize = 16_777_216;

/// A request without its body.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "holds a closure")]
pub struct Head<'a> {
    /// The method in capitals, as on the wire.
    pub method: &'a str,
    /// The host of the request's URL, with its port if it has one. Only a gateway reads it.
    pub authority: &'a str,
    /// The path, such as `/v1/check`.
    pub path: &'a str,
    /// The query after the question mark; may be empty.
    pub query: &'a str,
    /// Returns the value of a header by its name in lower case.
    pub header: &'a dyn Fn(&str) -> Option<String>,
    /// Returns the address that the request came from, if the adapter trusts its source.
    pub client_ip: &'a dyn Fn() -> Option<IpAddr>,
    /// The client's country, if the adapter knows it.
    pub country: Option<&'a str>,
    /// The time, by which tokens expire.
    pub now: Timestamp,
}

/// `GET /`, from nobody, at the start of all time.
impl Default for Head<'_> {
    fn default() -> Self {
        Self {
            method: "GET",
            authority: "",
            path: "/",
            query: "",
            header: &|_| None,
            client_ip: &|| None,
            country: None,
            now: Timestamp(0),
        }
    }
}

impl Head<'_> {
    /// Whether the body is compressed.
    pub(crate) fn is_coded(&self) -> bool {
        let is_coding = |name: String| !["", "identity"].contains(&&*name.to_ascii_lowercase());
        (self.header)("content-encoding").is_some_and(is_coding)
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
    /// The body is compressed.
    Coded,
}

impl BodyError {
    pub(crate) fn response(self) -> Response {
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
            Self::Incomplete => Problem::InvalidRequest.response(
                "expected the whole body, found a part of it, or a malformed chunk".to_string(),
            ),
            Self::Coded => {
                let detail = "`content-encoding`: expected a body as it is, found a compressed one";
                let mut response = Problem::UnsupportedCoding.response(detail.to_string());
                response.headers.push(("accept-encoding", "identity".into())); // RFC 9110 §15.5.16
                response
            }
        }
    }
}

/// Decodes a name or value of `application/x-www-form-urlencoded`; `None` if it is not UTF-8. A lossy
/// decoding would turn different bytes into one text, and count them as one key.
pub(crate) fn decoded(encoded: &str) -> Option<String> {
    let spaced = encoded.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(String::from)
}
