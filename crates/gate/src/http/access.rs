//! Access to the decision API.

use alloc::string::{String, ToString};

use subtle::ConstantTimeEq;

use super::Response;
use super::problem::Problem;
use crate::policy::Policies;

/// The callers that may ask for decisions.
#[derive(Clone)]
pub enum Access {
    /// Every caller: the policy file says `auth = "none"`, or the adapter listens only to its own machine.
    Open,
    /// Callers that send this bearer token.
    Token(String),
    /// No caller: the policy file needs a token, and no token is configured.
    Shut,
}

/// The error for a configured token that no HTTP header can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidToken;

impl core::fmt::Display for InvalidToken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(
            "TIDEGATE_TOKEN: expected printable ASCII without spaces around it, found other characters",
        )
    }
}

impl core::error::Error for InvalidToken {}

impl core::fmt::Debug for Access {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Open => "Open",
            Self::Token(_) => "Token(…)",
            Self::Shut => "Shut",
        })
    }
}

impl Access {
    /// The access that follows from the policy file and the configured token.
    ///
    /// # Errors
    /// Fails with [`InvalidToken`] if no HTTP header can carry the token.
    pub fn new(policies: &Policies, token: Option<String>) -> Result<Self, InvalidToken> {
        let printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        match token.filter(|token| !token.is_empty()) {
            Some(token) if token.trim() != token || !token.bytes().all(printable) => {
                Err(InvalidToken)
            }
            Some(token) => Ok(Self::Token(token)),
            None if policies.needs_token() => Ok(Self::Shut),
            None => Ok(Self::Open),
        }
    }

    pub(super) fn check(&self, authorization: Option<&str>) -> Result<(), Response> {
        let detail = match self {
            Self::Open => return Ok(()),
            Self::Shut => {
                "no token is configured: set TIDEGATE_TOKEN, or auth = \"none\" in the policy file"
            }
            Self::Token(token) => match authorization.and_then(bearer) {
                Some(found) if bool::from(found.as_bytes().ct_eq(token.as_bytes())) => {
                    return Ok(());
                }
                Some(_) => "expected the configured bearer token, found another",
                None => "expected the header `Authorization: Bearer TOKEN`, found no bearer token",
            },
        };
        let mut response = Problem::Unauthorized.response(detail.to_string());
        response.headers.push(("www-authenticate", "Bearer".to_string()));
        Err(response)
    }
}

/// The token of an `Authorization` header (RFC 6750 §2.1). The scheme's name is matched without regard to
/// case (RFC 9110 §11.1).
fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
