//! The sources in which a policy finds the key of a request: headers, cookies, the query, the client's address or country,
//! and claims of a token. And the part of a key that a value makes.
//!
//! A value comes from a caller, so it is escaped: no value ends its part of the key, and no two values have the same
//! text in a key.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use sha2::{Digest, Sha256};
use tidegate_form::{Error, Form, Node, Quoted, Value, repeated};

/// The most hyphens and underscores in the name of a header that is a source: each doubles the number of its spellings.
const MAX_HYPHENS: usize = 6;

/// The longest name in a source, in bytes as a key has it.
pub(super) const MAX_NAME_BYTES: usize = 64;

/// The longest value that a key has in full, in bytes as a key has it. A longer one is hashed.
const MAX_VALUE_BYTES: usize = 80;

/// The most sources that are joined in one key. A key has room for the longest names and values of this many sources.
const MAX_JOINED: usize = 3;

/// A source in which a gateway finds the key of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The value of a header, by its name in lower case.
    Header(String),
    /// The value of a cookie.
    Cookie(String),
    /// The value of a field of the query.
    Query(String),
    /// The address of the client.
    Ip,
    /// The country of the client: two letters. Only Cloudflare tells it.
    Country,
    /// A claim of a token whose signature was verified.
    Jwt(String),
    /// A claim of a token that anybody may have written.
    UnverifiedJwt(String),
}

/// The source of a request's key, or several sources that are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedSources(Vec<KeySource>);

impl Form for KeySource {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(|source| {
            Self::parse(source).ok_or_else(|| {
                format!(
                    "expected \"ip\", \"country\", or a name of at most {MAX_NAME_BYTES} bytes after `header:`, \
                     `cookie:`, `query:`, `jwt:` or `unverified_jwt:`, such as \"header:x-api-key\" with at most {MAX_HYPHENS} hyphens; \
                     found {}",
                    Quoted(source)
                )
            })
        })
    }
}

impl KeySource {
    fn parse(source: &str) -> Option<Self> {
        let Some((kind, name)) = source.split_once(':') else {
            return match source {
                "ip" => Some(Self::Ip),
                "country" => Some(Self::Country),
                _ => None,
            };
        };
        if name.is_empty() || escaped_name(name).len() > MAX_NAME_BYTES {
            return None;
        }
        match kind {
            "header" if is_token(name) && name.matches(['-', '_']).count() <= MAX_HYPHENS => {
                Some(Self::Header(name.to_ascii_lowercase()))
            }
            "cookie" if is_token(name) => Some(Self::Cookie(name.into())),
            "query" => Some(Self::Query(name.into())),
            "jwt" => Some(Self::Jwt(name.into())),
            "unverified_jwt" => Some(Self::UnverifiedJwt(name.into())),
            _ => None,
        }
    }

    /// The part of a key that a value of this source makes. A key of the client's address alone begins with `ip:` and has
    /// to be an address, so an address that is joined with others is called `address:`.
    ///
    /// ```
    /// use tidegate_gate::KeySource;
    /// let tenant = KeySource::Header("x-tenant".into());
    /// assert_eq!(tenant.part("acme/eu"), "header:x-tenant:acme%2Feu");
    /// ```
    #[must_use]
    pub fn part(&self, value: &str) -> String {
        let value = escaped_value(value);
        match self.named() {
            ("ip", _) => format!("address:{value}"),
            (kind, Some(name)) => format!("{kind}:{}:{value}", escaped_name(name)),
            (kind, None) => format!("{kind}:{value}"),
        }
    }

    /// The word before the name, and the name.
    fn named(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Ip => ("ip", None),
            Self::Country => ("country", None),
            Self::Header(name) => ("header", Some(name)),
            Self::Cookie(name) => ("cookie", Some(name)),
            Self::Query(name) => ("query", Some(name)),
            Self::Jwt(claim) => ("jwt", Some(claim)),
            Self::UnverifiedJwt(claim) => ("unverified_jwt", Some(claim)),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.named() {
            (kind, None) => write!(f, "\"{kind}\""),
            (kind, Some(name)) => Quoted(&format!("{kind}:{name}")).fmt(f),
        }
    }
}

impl JoinedSources {
    /// The sources, in the order in which the key has them.
    #[must_use]
    pub fn sources(&self) -> &[KeySource] {
        &self.0
    }

    /// Whether a key of these sources needs a verified token.
    #[must_use]
    pub fn needs_verification(&self) -> bool {
        self.0.iter().any(|source| matches!(source, KeySource::Jwt(_)))
    }
}

impl From<KeySource> for JoinedSources {
    fn from(source: KeySource) -> Self {
        Self([source].into())
    }
}

impl fmt::Display for JoinedSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, source) in self.0.iter().enumerate() {
            let and = if place == 0 { "" } else { " and " };
            write!(f, "{and}{source}")?;
        }
        Ok(())
    }
}

impl Form for JoinedSources {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let all: Vec<KeySource> = match node.value {
            Value::Text(_) => return node.read().map(KeySource::into),
            Value::List(_) => node.read()?,
            _ => {
                let expected =
                    format!("a source such as \"ip\", or an array of 2 to {MAX_JOINED} sources");
                return Err(node.refused(&expected));
            }
        };
        if !(2..=MAX_JOINED).contains(&all.len()) {
            let found = all.len();
            let message = format!("expected 2 to {MAX_JOINED} joined sources, found {found}");
            return Err(Error::plain(message));
        }
        once_each(&all).map_err(Error::plain)?;
        Ok(Self(all))
    }
}

/// # Errors
/// The message names an entry that occurs twice.
pub(crate) fn once_each<T: PartialEq + fmt::Display>(all: &[T]) -> Result<(), String> {
    match repeated(all) {
        Some(one) => Err(format!("expected each source once, found {one} twice")),
        None => Ok(()),
    }
}

/// Whether the name is a token (RFC 9110 §5.6.2).
pub(crate) fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// A hash has a percent sign that no escaped value has, so no value passes for a hash.
fn escaped_value(value: &str) -> String {
    let escaped = escaped(value, "%/");
    if escaped.len() <= MAX_VALUE_BYTES {
        return escaped;
    }
    format!("%sha256:{}", sha256(value))
}

/// The SHA-256 of a text in hexadecimal digits.
#[must_use]
pub fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names of claims may be URLs, and a colon ends the name.
fn escaped_name(name: &str) -> String {
    escaped(name, "%/:")
}

fn escaped(text: &str, special: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        if special.contains(char) || char.is_ascii_control() {
            escaped.push_str(&format!("%{:02X}", u32::from(char)));
        } else {
            escaped.push(char);
        }
    }
    escaped
}
