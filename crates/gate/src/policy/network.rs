//! The networks of trusted proxies.

use alloc::format;
use alloc::string::String;
use core::net::IpAddr;

use crate::key::{network_of, starts_elsewhere};
use ipnet::IpNet;
use tidegate_form::{Error, Form, Node, Quoted};

/// A network of trusted proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl Form for Network {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(Self::parse)
    }
}

impl Network {
    /// Reads an address or a network such as `10.0.0.0/8`.
    ///
    /// # Errors
    /// The message says what was expected and what was found.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Quoted(text);
        let Some(network) = network_of(text) else {
            return Err(format!(
                "expected an address or a network such as \"10.0.0.0/8\", found {found}"
            ));
        };
        if starts_elsewhere(text) {
            return Err(format!(
                "expected the first address of the network, as in \"{network}\"; found {found}"
            ));
        }
        if network.prefix_len() == 0 {
            return Err(format!(
                "expected a network of proxies alone, because others could write any address before their own; found {found}"
            ));
        }
        Ok(Self(network))
    }

    /// Whether the address is in the network.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}
