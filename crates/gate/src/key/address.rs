//! Keys that are addresses, and networks of addresses.

use alloc::borrow::Cow;
use core::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};

use super::{InvalidKey, has_key_length};

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

/// Whether a network is written with another address than its first one: a prefix that is too short would match more addresses than were
/// meant.
pub(crate) fn starts_elsewhere(text: &str) -> bool {
    written_network(text).is_some_and(|written| written.addr() != written.network())
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
pub fn canonical_key(key: &str, ipv6_prefix: u8) -> Cow<'_, str> {
    match key.strip_prefix("ip:").map(str::parse) {
        Some(Ok(address)) => canonical_address(key, address, ipv6_prefix),
        Some(Err(_)) | None => Cow::Borrowed(key),
    }
}

/// The canonical form of a key that is valid: see [`check_key`](super::check_key).
pub(crate) fn valid_canonical_key(key: &str, ipv6_prefix: u8) -> Result<Cow<'_, str>, InvalidKey> {
    if !has_key_length(key) {
        return Err(InvalidKey::Length(key.len()));
    }
    match key.strip_prefix("ip:").map(str::parse) {
        Some(Ok(address)) => Ok(canonical_address(key, address, ipv6_prefix)),
        Some(Err(_)) => Err(InvalidKey::NoAddress(key.into())),
        None => Ok(Cow::Borrowed(key)),
    }
}

/// Whether the key is an IP address, of which only [`canonical_key`] is counted by.
#[inline]
pub(crate) fn is_address(key: &str) -> bool {
    key.starts_with("ip:")
}

fn canonical_address(key: &str, address: IpAddr, ipv6_prefix: u8) -> Cow<'_, str> {
    match address.to_canonical() {
        IpAddr::V4(_) if address.is_ipv4() => Cow::Borrowed(key), // it has only one spelling
        IpAddr::V4(address) => Cow::Owned(alloc::format!("ip:{address}")),
        IpAddr::V6(address) => match Ipv6Net::new(address, ipv6_prefix) {
            Ok(network) => Cow::Owned(alloc::format!("ip:{}", network.trunc())),
            Err(_) => Cow::Borrowed(key),
        },
    }
}
