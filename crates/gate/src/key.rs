//! Keys, patterns of keys, and the parts of a key that limits count by.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;
use core::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};
use sha2::{Digest, Sha256};
use tidegate_core::lease::Id;

use crate::policy::Whole;
use crate::quote::Quoted;
use crate::tree::{Error, Form, Node};

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 512;

/// The longest name of a lease, in bytes.
pub const MAX_LEASE_BYTES: usize = 128;

/// The id under which a lease is stored: the first half of a SHA-256 of the whole canonical key and the
/// name of the lease. So nobody can make two leases with one id, and keys that share a state share no
/// leases.
#[must_use]
pub fn lease_id(key: &str, name: &str) -> Id {
    let mut hasher = Sha256::new();
    hasher.update(u64::try_from(key.len()).unwrap_or(u64::MAX).to_le_bytes()); // the end of the key
    hasher.update(key.as_bytes());
    hasher.update(name.as_bytes());
    let digest = hasher.finalize();
    let (words, _) = digest.as_chunks();
    Id([0, 1].map(|place| words.get(place).map_or(0, |word| u64::from_be_bytes(*word))))
}

/// Why a key is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidKey {
    /// The key has this many bytes: none, or more than [`MAX_KEY_BYTES`].
    Length(usize),
    /// This key begins with `ip:`, but does not continue with an address. No list of addresses could match
    /// it.
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

/// Checks that a key can be counted by.
///
/// # Errors
/// Fails with [`InvalidKey`] if the key is empty or longer than [`MAX_KEY_BYTES`], or if it begins with
/// `ip:` and does not continue with an address: a network would be counted apart from its addresses.
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
    /// The first parts of the key, this many, separated by `/`. A key with fewer parts is counted whole. A
    /// limit with 0 parts counts all keys of the policy together.
    Parts(u8),
    /// The whole key.
    Whole,
}

impl Depth {
    /// The part of a key at this depth.
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

    /// The smallest depth at which the part of a key is the whole key.
    pub(crate) fn of_own(key: &str) -> Self {
        if key.starts_with("ip:") {
            return Self::Parts(1); // the slash of a network separates no parts
        }
        let parts = key.matches('/').count().saturating_add(1);
        u8::try_from(parts).map_or(Self::Whole, Self::Parts)
    }

    /// The depth in a fingerprint; `None` for the whole key.
    pub(crate) fn parameter(self) -> Option<u64> {
        match self {
            Self::Parts(parts) => Some(parts.into()),
            Self::Whole => None,
        }
    }
}

impl Form for Depth {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let Whole::<0, 255>(parts) = node.read()?;
        Ok(Self::Parts(u8::try_from(parts).unwrap_or(u8::MAX))) // never: it is at most 255
    }
}

/// A pattern of keys: one key, all keys with a start and an end, or the addresses of a network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// This key alone.
    Exact(String),
    /// Keys with this start and this end, which do not overlap.
    Between(String, String),
    /// Keys of `ip:` and an address or network in this network.
    Network(IpNet),
}

impl Form for Pattern {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(Self::parse)
    }
}

impl Pattern {
    /// Reads a pattern as the policy file writes it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let invalid = |expected: &str| alloc::format!("expected {expected} found {}", Quoted(text));
        if let Some(written) = text.strip_prefix("ip:").filter(|rest| !rest.contains('*')) {
            let Some(network) = network_of(written) else {
                return Err(invalid("`ip:` and an address or a network such as ip:192.0.2.0/24,"));
            };
            // an address with a prefix that is too short would match more addresses than were meant
            let starts_elsewhere =
                written_network(written).is_some_and(|written| written.addr() != written.network());
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
        if network_of(text).is_some() {
            return Err(invalid("an address with `ip:` before it, such as ip:192.0.2.0/24;"));
        }
        if !has_key_length(text) {
            return Err(invalid(
                "a key of 1 to 512 bytes, in which one `*` matches any characters;",
            ));
        }
        match text.split_once('*') {
            None => Ok(Self::Exact(text.into())),
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
    /// Whether the key matches the pattern.
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

    /// The pattern as the policy file writes it, with networks in canonical form. No two patterns have the
    /// same text.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Exact(exact) => exact.clone(),
            Self::Between(start, end) => alloc::format!("{start}*{end}"),
            Self::Network(network) => alloc::format!("ip:{network}"),
        }
    }

    /// The rank of a pattern: higher for a more specific one. An exact key ranks above all others. Patterns
    /// rank by the length of their text, networks by the length of their prefix.
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

/// Reads a network; an address is a network of one. An IPv4-mapped IPv6 address becomes the IPv4 address.
pub(crate) fn network_of(text: &str) -> Option<IpNet> {
    let network: IpNet = match text.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().into(),
        Err(_) => written_network(text)?,
    };
    let (address, prefix) = (network.addr().to_canonical(), network.prefix_len());
    let is_mapped = address.is_ipv4() && network.addr().is_ipv6();
    match prefix.checked_sub(96) {
        Some(prefix) if is_mapped => {
            IpNet::new(address, prefix).ok().map(|network| network.trunc())
        }
        _ => Some(network.trunc()),
    }
}

/// Reads an address with a prefix. The parser of `ipnet` also accepts leading zeros, which other readers take for
/// octal numbers.
fn written_network(text: &str) -> Option<IpNet> {
    let (address, prefix) = text.split_once('/')?;
    let is_number = prefix == "0" || !prefix.starts_with(['0', '+']);
    let prefix = prefix.parse().ok().filter(|_| is_number)?;
    IpNet::new(address.parse().ok()?, prefix).ok()
}

/// The canonical form of a key. An IPv4 address stays itself. An IPv6 address becomes its network with
/// `ipv6_prefix` bits, because a holder of one such address usually holds the whole network. Any other key
/// stays as it is.
#[must_use]
pub fn canonical(key: &str, ipv6_prefix: u8) -> Cow<'_, str> {
    match key.strip_prefix("ip:") {
        Some(address) => canonical_address(key, address, ipv6_prefix),
        None => Cow::Borrowed(key),
    }
}

/// Whether the key is an IP address, of which only [`canonical`] is counted by.
#[inline]
pub(crate) fn is_address(key: &str) -> bool {
    key.starts_with("ip:")
}

fn canonical_address<'a>(key: &'a str, address: &str, ipv6_prefix: u8) -> Cow<'a, str> {
    let Ok(address) = address.parse::<IpAddr>() else { return Cow::Borrowed(key) };
    match address.to_canonical() {
        IpAddr::V4(_) if address.is_ipv4() => Cow::Borrowed(key), // it has only one spelling
        IpAddr::V4(address) => Cow::Owned(alloc::format!("ip:{address}")),
        IpAddr::V6(address) => match Ipv6Net::new(address, ipv6_prefix) {
            Ok(network) => Cow::Owned(alloc::format!("ip:{}", network.trunc())),
            Err(_) => Cow::Borrowed(key),
        },
    }
}
