//! The address of a client behind proxies.

use alloc::format;
use alloc::string::String;
use core::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::key::network_of;
use crate::quote::Quoted;
use crate::tree::{Error, Form, Node};

/// A network of trusted proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network(IpNet);

impl Form for Network {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(Self::parse)
    }
}

impl Network {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        network_of(text).map(Self).ok_or_else(|| {
            let found = Quoted(text);
            format!("expected an address or a network such as \"10.0.0.0/8\", found {found}")
        })
    }
}

/// The client's address. It is `peer`, unless `peer` is a trusted proxy: then it is the last address of `forwarded`, a
/// value of `X-Forwarded-For`, that is not a trusted proxy. A client may have made up the addresses before that one.
pub(crate) fn client_address(
    peer: &str,
    forwarded: Option<&str>,
    trusted: &[Network],
) -> Option<IpAddr> {
    let is_trusted = |address: IpAddr| trusted.iter().any(|Network(net)| net.contains(&address));
    let mut client = peer.parse::<IpAddr>().ok()?.to_canonical();
    let mut hops = forwarded.unwrap_or("").rsplit(',').map(str::trim);
    while is_trusted(client)
        && let Some(hop) = hops.next().and_then(address)
    {
        client = hop;
    }
    Some(client)
}

/// Some proxies add the port.
fn address(hop: &str) -> Option<IpAddr> {
    let with_port = || hop.parse().ok().map(|hop: SocketAddr| hop.ip());
    hop.parse().ok().or_else(with_port).map(|hop: IpAddr| hop.to_canonical())
}
