//! Signed tokens: JWS in the compact form (RFC 7515 §3.1) whose payload is a JWT (RFC 7519).
//!
//! This module reads a token and returns the signature to verify. An adapter verifies the signature, because only the
//! adapter has the keys and the cryptography.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate_form::{Error, Form, Node, Value};
use tidegate_gate::{Jwt, Micros, SignatureAlgorithm, Timestamp};

/// The longest token, in bytes.
const MAX_TOKEN_BYTES: usize = 8_192;

/// The longest name of a key.
const MAX_KEY_ID_BYTES: usize = 128;

/// How far the clock of the token's author may be ahead or behind.
const LEEWAY: Micros = Micros(60_000_000);

const SECOND_US: u64 = 1_000_000;

/// Whether a signature by this algorithm may have this many bytes.
fn has_length(algorithm: SignatureAlgorithm, bytes: usize) -> bool {
    match algorithm {
        SignatureAlgorithm::Hs256 => bytes == 32,
        SignatureAlgorithm::Es256 => bytes == 64,
        SignatureAlgorithm::Rs256 => (256..=1_024).contains(&bytes),
    }
}

/// Whether a token is from the expected issuer and for the expected audience (RFC 7519 §4.1.1 and §4.1.3).
fn is_expected(claims: &Claims, jwt: &Jwt) -> bool {
    let is_from =
        |issuer: &str| matches!(claims.get("iss"), Some(Claim::Text(found)) if found == issuer);
    let is_for = |audience: &str| match claims.get("aud") {
        Some(Claim::Text(found)) => found == audience,
        Some(Claim::Texts(all)) => all.iter().any(|found| found == audience),
        _ => false,
    };
    jwt.issuer().is_none_or(is_from) && jwt.audience().is_none_or(is_for)
}

/// A signature to verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verify {
    /// The algorithm, which the policy file allows. A key of another kind must not be used.
    pub algorithm: SignatureAlgorithm,
    /// The name of the binding that has the keys.
    pub keys: String,
    /// The bytes that were signed.
    pub signed: String,
    /// The signature in base64url.
    pub signature: String,
    /// The name of the key, if the token has one: printable ASCII.
    pub key_id: Option<String>,
}

/// A token that was read.
pub(super) struct Token {
    claims: Claims,
    verify: Option<Verify>,
}

impl Token {
    /// Reads a token. `None` if the text is not a token.
    pub(super) fn read(text: &str, jwt: &Jwt, now: Timestamp) -> Option<Self> {
        let parts = text.trim().split_once([' ', '\t']);
        let parts = parts.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let text = parts.map_or(text, |(_, token)| token.trim());
        if text.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (signed, signature) = text.rsplit_once('.')?;
        let (head, payload) = signed.split_once('.')?;
        let (head, claims) = (object(head)?, object(payload)?);
        let bytes = URL_SAFE_NO_PAD.decode(signature).ok()?.len();
        let verify = algorithm(&head, jwt)
            .filter(|algorithm| has_length(*algorithm, bytes))
            .filter(|_| is_current(&claims, now) && is_expected(&claims, jwt))
            .and_then(|algorithm| {
                Some(Verify {
                    algorithm,
                    keys: jwt.keys().into(),
                    signed: signed.into(),
                    signature: signature.into(),
                    key_id: key_id(&head)?,
                })
            });
        Some(Self { claims, verify })
    }

    /// The signature to verify before the claims are believed. `None` if they must not be believed in any case.
    pub(super) const fn verify(&self) -> Option<&Verify> {
        self.verify.as_ref()
    }

    pub(super) fn claim(&self, name: &str) -> Option<String> {
        match self.claims.get(name)? {
            Claim::Text(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            Claim::Whole(number) => Some(number.to_string()),
            Claim::Texts(_) | Claim::Other => None,
        }
    }
}

/// The algorithm, if it is allowed. A header with extensions that this module does not know must be refused
/// (RFC 7515 §4.1.11).
fn algorithm(head: &Claims, jwt: &Jwt) -> Option<SignatureAlgorithm> {
    let Some(Claim::Text(name)) = head.get("alg") else { return None };
    let found = SignatureAlgorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)?;
    (jwt.algorithms().contains(&found) && head.get("crit").is_none()).then_some(found)
}

/// The name of the key, if the header has one. `None` if the name is invalid.
#[expect(clippy::option_option, reason = "no name is another thing than an invalid one")]
fn key_id(head: &Claims) -> Option<Option<String>> {
    match head.get("kid") {
        None => Some(None),
        Some(Claim::Text(id)) if id.len() <= MAX_KEY_ID_BYTES && is_printable(id) => {
            Some(Some(id.clone()))
        }
        Some(_) => None,
    }
}

fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

/// Whether the token holds now, by its claims `exp` and `nbf` (RFC 7519 §4.1).
fn is_current(claims: &Claims, now: Timestamp) -> bool {
    let time = |name| match claims.get(name) {
        None => Some(None),
        Some(Claim::Whole(seconds)) => {
            let seconds = u64::try_from(*seconds).ok()?;
            Some(Some(Timestamp(seconds.saturating_mul(SECOND_US))))
        }
        Some(_) => None,
    };
    let (Some(expires), Some(begins)) = (time("exp"), time("nbf")) else { return false };
    expires.is_none_or(|expires| now < expires.saturating_add(LEEWAY))
        && begins.is_none_or(|begins| begins <= now.saturating_add(LEEWAY))
}

/// A value in a token.
enum Claim {
    Text(String),
    Whole(i64),
    Texts(Vec<String>),
    Other,
}

impl Form for Claim {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        Ok(match &node.value {
            Value::Text(text) => Self::Text(text.as_ref().into()),
            Value::Natural(number) => i64::try_from(*number).map_or(Self::Other, Self::Whole),
            Value::Negative(number) => Self::Whole(*number),
            Value::List(_) => node.read().map_or(Self::Other, Self::Texts),
            _ => Self::Other,
        })
    }
}

/// The values of a header or a payload, sorted by name.
struct Claims(Vec<(String, Claim)>);

impl Claims {
    fn get(&self, name: &str) -> Option<&Claim> {
        let place = self.0.binary_search_by(|(claim, _)| claim.as_str().cmp(name)).ok()?;
        self.0.get(place).map(|(_, claim)| claim)
    }
}

/// Reads a JSON object in base64url. `None` for anything else, and for an object that itself has a name twice: a reader
/// could take the first value, and another reader the last. Objects within it may have a name twice, because nothing in
/// them is read.
fn object(encoded: &str) -> Option<Claims> {
    let json = URL_SAFE_NO_PAD.decode(encoded).ok()?;
    let tree = tidegate_form::json(str::from_utf8(&json).ok()?).ok()?;
    tree.sorted(|name| Ok(name.into())).ok().map(Claims)
}
