//! Access to the HTTP API: who may ask for decisions, and who may administrate keys.

use alloc::string::{String, ToString};

use subtle::ConstantTimeEq;
use tidegate_gate::Policies;

use crate::answer::problem::Problem;
use crate::response::Response;

/// The configured bearer tokens.
#[derive(Clone, Default)]
pub struct Tokens {
    /// The token of callers that ask for decisions.
    pub decisions: Option<String>,
    /// The token of callers that also reset and block keys. It may be the same as the other one.
    pub administration: Option<String>,
}

/// The callers that may use the API.
#[derive(Clone)]
pub struct Access {
    tokens: Tokens,
    /// What needs no token.
    open_to_all: Option<Scope>,
    /// Every caller may use every call whatever the policy file says.
    is_always_open: bool,
}

/// A right that a call may need. Administration includes decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// To ask for decisions.
    Decisions,
    /// To reset and block keys.
    Administration,
    /// To change the policies, or to see keys as they are. Only the token for administration gives this right: a server that is
    /// open to every caller does not let them change its rules, and a page whose name is bound to the server's address can send a
    /// `GET` that nothing tells from one of a caller on this machine.
    Policies,
}

/// The error for a configured token that no HTTP header can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidToken {
    variable: &'static str,
    found: &'static str,
}

impl core::fmt::Display for InvalidToken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { variable, found } = self;
        write!(f, "{variable}: expected printable ASCII without spaces around it, found {found}")
    }
}

impl core::error::Error for InvalidToken {}

impl Tokens {
    /// Whether an HTTP header can carry this token.
    #[must_use]
    pub fn may_be(text: &str) -> bool {
        let printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        !text.is_empty() && text.trim() == text && text.bytes().all(printable)
    }
}

impl core::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let shown = |token: &Option<String>| token.as_ref().map(|_| "…");
        f.debug_struct("Tokens")
            .field("decisions", &shown(&self.decisions))
            .field("administration", &shown(&self.administration))
            .finish()
    }
}

impl core::fmt::Debug for Access {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { tokens, open_to_all, .. } = self;
        f.debug_struct("Access").field("tokens", tokens).field("open_to_all", open_to_all).finish()
    }
}

impl Access {
    /// Every caller may use every call but those that change the policies or show keys, for instance because only this machine can
    /// reach the server.
    pub const OPEN: Self = Self {
        tokens: Tokens { decisions: None, administration: None },
        open_to_all: Some(Scope::Administration),
        is_always_open: true,
    };

    /// The access that follows from the policy file and the configured tokens. If one of the tokens is configured,
    /// only that one gives rights: without a token for administration no caller may administrate. If none is, every
    /// caller may do everything under `auth = "none"`, and nothing otherwise.
    ///
    /// # Errors
    /// Fails with [`InvalidToken`] if no HTTP header can carry a token.
    pub fn new(policies: &Policies, tokens: Tokens) -> Result<Self, InvalidToken> {
        let decisions = valid("TIDEGATE_TOKEN", tokens.decisions)?;
        let administration = valid("TIDEGATE_ADMIN_TOKEN", tokens.administration)?;
        let tokens = Tokens { decisions, administration };
        Ok(Self { open_to_all: open_to_all(policies, &tokens), tokens, is_always_open: false })
    }

    /// The access that follows from the same tokens and another policy file.
    #[must_use]
    pub fn under(&self, policies: &Policies) -> Self {
        if self.is_always_open {
            return self.clone(); // the policy file does not change who can reach the server
        }
        let tokens = self.tokens.clone();
        Self { open_to_all: open_to_all(policies, &tokens), tokens, is_always_open: false }
    }

    /// Whether some caller may change the policies.
    #[must_use]
    pub const fn lets_policies_change(&self) -> bool {
        self.tokens.administration.is_some()
    }

    /// Whether no caller may use any call, because the policy file needs a token and none is configured.
    #[must_use]
    pub const fn is_shut(&self) -> bool {
        let Tokens { decisions, administration } = &self.tokens;
        self.open_to_all.is_none() && decisions.is_none() && administration.is_none()
    }

    pub(crate) fn check(
        &self,
        scope: Scope,
        header: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), Response> {
        if self.open_to_all >= Some(scope) {
            return if scope == Scope::Decisions { Ok(()) } else { of_no_page(header) };
        }
        let Tokens { decisions, administration } = &self.tokens;
        let decisions = decisions.as_ref().filter(|_| scope == Scope::Decisions);
        let authorization = header("authorization");
        let found = authorization.as_deref().and_then(bearer);
        let is = |token: Option<&String>| {
            let same =
                token.zip(found).map(|(token, found)| token.as_bytes().ct_eq(found.as_bytes()));
            same.is_some_and(bool::from)
        };
        if is(decisions) | is(administration.as_ref()) {
            return Ok(());
        }
        let is_configured = decisions.is_some() || administration.is_some();
        let detail = match (scope, is_configured, found) {
            (Scope::Decisions, false, _) => {
                "no token is configured: set TIDEGATE_TOKEN, or auth = \"none\" in the policy file"
            }
            (Scope::Administration | Scope::Policies, false, _) => {
                "no token for administration is configured: set TIDEGATE_ADMIN_TOKEN"
            }
            (_, true, None) => {
                "expected the header `Authorization: Bearer TOKEN`, found no bearer token"
            }
            (Scope::Decisions, true, Some(_)) => {
                "expected the configured bearer token, found another"
            }
            (Scope::Administration | Scope::Policies, true, Some(_)) => {
                "expected the bearer token for administration, found another"
            }
        };
        Err(unauthorized(detail))
    }
}

fn unauthorized(detail: &str) -> Response {
    let mut response = Problem::Unauthorized.response(detail.to_string());
    response.headers.push(("www-authenticate", "Bearer".into()));
    response
}

/// Refuses what a page in a browser sends. Any page can send a simple `POST` to any server that the browser reaches, also to one
/// on loopback, without asking for leave.
///
/// With every method but `GET` and `HEAD` a browser sends `Origin`, whatever the page. The value does not matter, nor does
/// `Host`: a page whose name is bound to the address of this server has the server's origin. No page is the server's own.
fn of_no_page(header: &dyn Fn(&str) -> Option<String>) -> Result<(), Response> {
    let detail = match (header("origin"), header("sec-fetch-site").as_deref()) {
        (None, None | Some("none")) => return Ok(()),
        (Some(_), _) => {
            "expected a caller that is no page in a browser, found `Origin`; to administrate from a page, set \
             TIDEGATE_ADMIN_TOKEN and send it"
        }
        (None, Some(_)) => {
            "expected a caller that is no page in a browser, found `Sec-Fetch-Site`; to administrate from a page, \
             set TIDEGATE_ADMIN_TOKEN and send it"
        }
    };
    Err(unauthorized(detail))
}

fn open_to_all(policies: &Policies, tokens: &Tokens) -> Option<Scope> {
    match (&tokens.decisions, &tokens.administration) {
        _ if policies.needs_token() => None,
        (Some(_), _) => None,
        (None, Some(_)) => Some(Scope::Decisions),
        (None, None) => Some(Scope::Administration),
    }
}

/// The token of this variable. An empty one may stand for a secret that is missing, so it is an error.
fn valid(variable: &'static str, token: Option<String>) -> Result<Option<String>, InvalidToken> {
    let found = match token.as_deref() {
        Some("") => "an empty text; leave it out to configure no token",
        Some(text) if !Tokens::may_be(text) => "other characters",
        _ => return Ok(token),
    };
    Err(InvalidToken { variable, found })
}

/// The token of an `Authorization` header (RFC 6750 §2.1). The scheme's name is matched without regard to
/// case (RFC 9110 §11.1).
fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
