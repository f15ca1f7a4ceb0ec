//! The address of a client behind proxies.

use core::net::{IpAddr, SocketAddr};

use tidegate_gate::{Gateway, Network};

use crate::head::Head;

pub(super) const FORWARDED_FOR: &str = "x-forwarded-for";

/// The address of the client, behind the proxies that the file trusts.
pub(crate) fn client_address(gateway: &Gateway, head: &Head<'_>) -> Option<IpAddr> {
    let trusted = gateway.trusted_proxies();
    let forwarded = (!trusted.is_empty()).then(|| (head.header)(FORWARDED_FOR)).flatten();
    Some(behind((head.client_ip)()?, forwarded.as_deref(), trusted))
}

/// The client's address. It is `peer`, unless `peer` is a trusted proxy: then it is the last address of `forwarded`, a
/// value of `X-Forwarded-For`, that is not a trusted proxy. A client may have made up the addresses before that one.
pub(super) fn behind(peer: IpAddr, forwarded: Option<&str>, trusted: &[Network]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let mut client = peer.to_canonical();
    let mut hops = forwarded.unwrap_or("").rsplit(',').map(str::trim);
    while is_trusted(client)
        && let Some(hop) = hops.next().and_then(address)
    {
        client = hop;
    }
    client
}

/// The address in a text. Some proxies add the port, or write an IPv6 address in brackets.
#[must_use]
pub fn address(hop: &str) -> Option<IpAddr> {
    let with_port = || hop.parse().ok().map(|hop: SocketAddr| hop.ip());
    let bare = hop.strip_prefix('[').and_then(|hop| hop.strip_suffix(']')).unwrap_or(hop);
    bare.parse().ok().or_else(with_port).map(|hop: IpAddr| hop.to_canonical())
}
