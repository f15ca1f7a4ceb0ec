//! The table `jwt` of the policy file: how tokens are read and verified.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tidegate_form::{Error, Form, Node, Quoted, form};

use super::source::KeySource;

/// The algorithms of a signature (RFC 7518 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureAlgorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// ECDSA with P-256 and SHA-256.
    Es256,
}

impl SignatureAlgorithm {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Hs256, Self::Rs256, Self::Es256];

    /// The name of the algorithm, such as `ES256`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
        }
    }
}

impl Form for SignatureAlgorithm {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.one_of(&Self::ALL.map(|algorithm| (algorithm.name(), algorithm)))
    }
}

/// How tokens are read and verified: the table `jwt` of the policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jwt {
    algorithms: Vec<SignatureAlgorithm>,
    keys: String,
    source: KeySource,
    issuer: Option<String>,
    audience: Option<String>,
}

form! {
    struct JwtForm {
        algorithms: Vec<SignatureAlgorithm>,
        keys: String,
        source: Option<KeySource> = None,
        issuer: Option<String> = None,
        audience: Option<String> = None,
    }
}

impl Form for Jwt {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        Self::new(node.read()?).map_err(Error::plain)
    }
}

impl Jwt {
    fn new(form: JwtForm) -> Result<Self, String> {
        let JwtForm { algorithms, keys, source, issuer, audience } = form;
        if algorithms.is_empty() {
            return Err("`algorithms`: expected at least one, found none".to_string());
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if !(1..=64).contains(&keys.len()) || !keys.bytes().all(is_name) {
            return Err(format!(
                "`keys`: expected the name of a binding such as \"JWT_KEYS\", found {}",
                Quoted(&keys)
            ));
        }
        let source = source.unwrap_or_else(|| KeySource::Header("authorization".to_string()));
        if !matches!(source, KeySource::Header(_) | KeySource::Cookie(_) | KeySource::Query(_)) {
            return Err(format!(
                "`source`: expected a header, a cookie or a field of the query, found {source}"
            ));
        }
        Ok(Self { algorithms, keys, source, issuer, audience })
    }

    /// The algorithms that a token may be signed by.
    #[must_use]
    pub fn algorithms(&self) -> &[SignatureAlgorithm] {
        &self.algorithms
    }

    /// The name of the binding that has the keys.
    #[must_use]
    pub fn keys(&self) -> &str {
        &self.keys
    }

    /// Where a request has its token.
    #[must_use]
    pub const fn source(&self) -> &KeySource {
        &self.source
    }

    /// The issuer that a token must be from, if there is one.
    #[must_use]
    pub fn issuer(&self) -> Option<&str> {
        self.issuer.as_deref()
    }

    /// The audience that a token must be for, if there is one.
    #[must_use]
    pub fn audience(&self) -> Option<&str> {
        self.audience.as_deref()
    }
}
