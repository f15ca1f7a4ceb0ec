//! What a limit is counted by.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;
use core::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tidegate_core::lease::Id;

use crate::policy::Whole;
use crate::quote::Quoted;

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 512;

/// The longest name of a lease, in bytes.
pub const MAX_LEASE_BYTES: usize = 128;

/// What a lease is known by where it is kept: the first half of a SHA-256 of the whole canonical key
/// and its name. So nobody can make two that are known by the same, and keys that share a state share
/// no leases.
#[must_use]
pub fn lease_id(key: &str, name: &str) -> Id {
    let mut hasher = Sha256::new();
    hasher.update(u64::try_from(key.len()).unwrap_or(u64::MAX).to_le_bytes()); // where it ends
    hasher.update(key.as_bytes());
    hasher.update(name.as_bytes());
    let digest = hasher.finalize();
    let (words, _) = digest.as_chunks();
    Id([0, 1].map(|place| words.get(place).map_or(0, |word| u64::from_be_bytes(*word))))
}

/// A key that cannot be counted by.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidKey {
    /// It is empty or longer than [`MAX_KEY_BYTES`]: it has so many bytes.
    Length(usize),
    /// This begins with `ip:`, and what follows is no address: no list of addresses would know it.
    NoAddress(String),
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(bytes) => {
                write!(f, "`key`: expected 1 to {MAX_KEY_BYTES} bytes, found {bytes}")
            }
            Self::NoAddress(key) => write!(
                f,
                "`key`: expected an address such as 192.0.2.7 or 2001:db8::7 after `ip:`, found {}",
                Quoted(key)
            ),
        }
    }
}

impl core::error::Error for InvalidKey {}

/// # Errors
/// [`InvalidKey`] if the key is empty or longer than [`MAX_KEY_BYTES`], or begins with `ip:` and is no
/// address: a network would be counted apart from the addresses in it.
pub fn check_key(key: &str) -> Result<(), InvalidKey> {
    if !has_key_length(key) {
        return Err(InvalidKey::Length(key.len()));
    }
    match key.strip_prefix("ip:") {
        Some(address) if address.parse::<IpAddr>().is_err() => {
            Err(InvalidKey::NoAddress(key.into()))
        }
        _ => Ok(()),
    }
}

fn has_key_length(key: &str) -> bool {
    (1..=MAX_KEY_BYTES).contains(&key.len())
}

/// How much of a key a limit counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Its first so many parts, parted by `/`; of a key with fewer parts all of it. With none of
    /// them all keys of the policy are counted together.
    Parts(u8),
    /// All of it.
    Whole,
}

impl Depth {
    /// That much of a key.
    ///
    /// ```
    /// use tidegate_gate::Depth;
    /// assert_eq!(Depth::Parts(1).of("acme/alice/laptop"), "acme");
    /// assert_eq!(Depth::Parts(2).of("acme/alice/laptop"), "acme/alice");
    /// assert_eq!(Depth::Parts(0).of("acme/alice"), "");
    /// assert_eq!(Depth::Parts(2).of("acme"), "acme");
    /// ```
    #[must_use]
    #[inline]
    pub fn of(self, key: &str) -> &str {
        let Self::Parts(parts) = self else { return key };
        let Some(slash) = usize::from(parts).checked_sub(1) else { return "" };
        let end = key.match_indices('/').nth(slash).map_or(key.len(), |(at, _)| at);
        key.get(..end).unwrap_or(key)
    }

    /// The least depth at which a key is counted by itself alone.
    pub(crate) fn of_own(key: &str) -> Self {
        let parts = key.matches('/').count().saturating_add(1);
        u8::try_from(parts).map_or(Self::Whole, Self::Parts)
    }

    /// For a fingerprint: one of the whole key has none.
    pub(crate) fn parameter(self) -> Option<u64> {
        match self {
            Self::Parts(parts) => Some(parts.into()),
            Self::Whole => None,
        }
    }
}

impl<'de> Deserialize<'de> for Depth {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Whole::<0, 255>(parts) = Whole::deserialize(deserializer)?;
        Ok(Self::Parts(u8::try_from(parts).unwrap_or(u8::MAX))) // it is at most that
    }
}

/// Which keys: one, those of a shape, or the addresses of a network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub enum Pattern {
    /// This key alone.
    Exact(String),
    /// Whatever begins and ends so; they do not overlap.
    Between(String, String),
    /// `ip:` and an address or network in this network.
    Network(IpNet),
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let invalid =
            |expected: &str| alloc::format!("expected {expected} found {}", Quoted(&text));
        if let Some(written) = text.strip_prefix("ip:").filter(|rest| !rest.contains('*')) {
            let Some(network) = network_of(written) else {
                return Err(invalid("`ip:` and an address or a network such as ip:192.0.2.0/24,"));
            };
            // an address with a prefix that is too short would match more addresses than were meant
            let starts_elsewhere =
                written.parse().is_ok_and(|written: IpNet| written.addr() != written.network());
            if starts_elsewhere {
                return Err(invalid(&alloc::format!(
                    "the first address of the network, as in ip:{network};"
                )));
            }
            return Ok(Self::Network(network));
        }
        if text.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("ip:"))
            && !text.starts_with("ip:")
        {
            return Err(invalid("`ip:` in lower case before an address,"));
        }
        if network_of(&text).is_some() {
            return Err(invalid("an address with `ip:` before it, such as ip:192.0.2.0/24;"));
        }
        if !has_key_length(&text) {
            return Err(invalid(
                "a key of 1 to 512 bytes, in which one `*` matches any characters;",
            ));
        }
        match text.split_once('*') {
            None => Ok(Self::Exact(text)),
            Some((_, end)) if end.contains('*') => Err(invalid("at most one `*`,")),
            Some((start, end)) => Ok(Self::Between(start.into(), end.into())),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Quoted(&self.text()).fmt(f)
    }
}

impl Pattern {
    /// Whether the key is one of these.
    #[must_use]
    pub fn matches(&self, key: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == key,
            Self::Between(start, end) => {
                key.strip_prefix(start.as_str()).is_some_and(|rest| rest.ends_with(end.as_str()))
            }
            Self::Network(network) => key
                .strip_prefix("ip:")
                .and_then(network_of)
                .is_some_and(|address| network.contains(&address)),
        }
    }

    /// As it stands in the policy file, a network in its canonical form. No two patterns have one text.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Exact(exact) => exact.clone(),
            Self::Between(start, end) => alloc::format!("{start}*{end}"),
            Self::Network(network) => alloc::format!("ip:{network}"),
        }
    }

    /// The more a pattern says, the larger: an exact key before all others, then by what is written
    /// out, or by the length of the network's prefix.
    pub(crate) fn specificity(&self) -> (bool, usize) {
        match self {
            Self::Exact(exact) => (true, exact.len()),
            Self::Between(start, end) => (false, start.len().saturating_add(end.len())),
            Self::Network(network) => {
                (network.prefix_len() == network.max_prefix_len(), network.prefix_len().into())
            }
        }
    }
}

/// An address is a network of one. An IPv4 address in IPv6 clothing is one of IPv4.
fn network_of(text: &str) -> Option<IpNet> {
    let network: IpNet = match text.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().into(),
        Err(_) => text.parse().ok()?,
    };
    let (address, prefix) = (network.addr().to_canonical(), network.prefix_len());
    let in_clothing = address.is_ipv4() && network.addr().is_ipv6();
    match prefix.checked_sub(96) {
        Some(prefix) if in_clothing => {
            IpNet::new(address, prefix).ok().map(|network| network.trunc())
        }
        _ => Some(network.trunc()),
    }
}

/// The key that an address is counted by: `ip:` and an IPv4 address, or the network of an IPv6 address
/// with a prefix of so many bits, since who has one such address has all of them. Any other key
/// stays as it is.
#[must_use]
#[inline]
pub fn canonical(key: &str, ipv6_prefix: u8) -> Cow<'_, str> {
    match key.strip_prefix("ip:") {
        Some(address) => canonical_address(key, address, ipv6_prefix),
        None => Cow::Borrowed(key),
    }
}

fn canonical_address<'a>(key: &'a str, address: &str, ipv6_prefix: u8) -> Cow<'a, str> {
    let Ok(address) = address.parse::<IpAddr>() else { return Cow::Borrowed(key) };
    match address.to_canonical() {
        IpAddr::V4(_) if address.is_ipv4() => Cow::Borrowed(key), // there is one way to write it
        IpAddr::V4(address) => Cow::Owned(alloc::format!("ip:{address}")),
        IpAddr::V6(address) => match Ipv6Net::new(address, ipv6_prefix) {
            Ok(network) => Cow::Owned(alloc::format!("ip:{}", network.trunc())),
            Err(_) => Cow::Borrowed(key),
        },
    }
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
                "expected \"ip\" or \"header:NAME\" such as \"header:x-api-key\", found {}",
                Quoted(&source)
            )),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip => f.write_str("\"ip\""),
            Self::Header(name) => Quoted(&alloc::format!("header:{name}")).fmt(f),
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
