//! What a limit is counted by.

use alloc::string::String;
use core::fmt;

use serde::Deserialize;

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 512;

/// A key that cannot be counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidKey {
    /// Its length in bytes.
    pub bytes: usize,
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`key`: found {} bytes, allowed are 1 to {MAX_KEY_BYTES}", self.bytes)
    }
}

impl core::error::Error for InvalidKey {}

/// # Errors
/// [`InvalidKey`] if the key is empty or longer than [`MAX_KEY_BYTES`].
pub const fn check_key(key: &str) -> Result<(), InvalidKey> {
    let bytes = key.len();
    if bytes == 0 || bytes > MAX_KEY_BYTES { Err(InvalidKey { bytes }) } else { Ok(()) }
}

/// Where a gateway finds the key of a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
#[non_exhaustive]
pub enum KeySource {
    /// The value of a header, by its name in lower case.
    Header(String),
    /// The address of the client.
    Ip,
}

impl TryFrom<String> for KeySource {
    type Error = String;

    fn try_from(source: String) -> Result<Self, String> {
        if source == "ip" {
            return Ok(Self::Ip);
        }
        match source.strip_prefix("header:") {
            Some(name) if is_header_name(name) => Ok(Self::Header(name.to_ascii_lowercase())),
            _ => Err(alloc::format!(
                "found {source:?}, allowed are \"ip\" and \"header:NAME\" such as \"header:x-api-key\""
            )),
        }
    }
}

impl KeySource {
    /// The key of a request, if it has one from this source. It names its source, so that no
    /// header value passes for an address.
    pub fn key_of(
        &self,
        header: &dyn Fn(&str) -> Option<String>,
        client_ip: Option<&str>,
    ) -> Option<String> {
        match self {
            Self::Ip => client_ip.map(|ip| alloc::format!("ip:{ip}")),
            Self::Header(name) => header(name)
                .filter(|value| !value.is_empty())
                .map(|value| alloc::format!("header:{name}:{value}")),
        }
    }
}

/// RFC 9110 §5.6.2: a token.
pub(crate) fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}
