//! Patterns of keys.

use alloc::string::String;
use core::fmt;

use ipnet::IpNet;
use tidegate_form::{Error, Form, Node, Quoted};

use super::address::{network_of, starts_elsewhere};
use super::has_key_length;

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
        // a part of an address and a `*` would match some spellings of an address and not others
        if let Some(written) = text.strip_prefix("ip:").filter(|rest| *rest != "*") {
            let Some(network) = network_of(written) else {
                return Err(invalid(
                    "`ip:` and an address, a network such as ip:192.0.2.0/24, or `*`,",
                ));
            };
            if starts_elsewhere(written) {
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
            Some((_, end)) if has_star(end) => Err(invalid("at most one `*`,")),
            Some((start, end)) => Ok(Self::Between(start.into(), end.into())),
        }
    }
}

/// In bytes: the search for a character has a search for a text in it, which takes a kilobyte.
fn has_star(text: &str) -> bool {
    text.as_bytes().contains(&b'*')
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
