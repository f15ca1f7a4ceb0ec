//! The origins whose pages may read what a gateway itself answers.

use alloc::string::String;

use tidegate_form::{Error, Form, Node, Quoted};

use super::path::is_authority;

/// An origin as browsers write it: a scheme and a host, with a port if it is not the usual one (RFC 6454 §6.2). Or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin(pub(super) String);

impl Form for Origin {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(|text| match text == "*" || is_origin(text) {
            true => Ok(Self(text.into())),
            false => Err(alloc::format!(
                "expected an origin as browsers write it, such as \"https://app.example\", or \"*\"; found {}",
                Quoted(text)
            )),
        })
    }
}

fn is_origin(text: &str) -> bool {
    // not `split_once`, whose search for a text takes a kilobyte
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let Some(host) = rest.strip_prefix("//") else { return false };
    let usual = match scheme {
        "https" => ":443",
        "http" => ":80",
        _ => "/", // which no host has
    };
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
    !scheme.is_empty()
        && scheme.bytes().all(plain)
        && is_authority(host)
        && !host.bytes().any(|byte| byte.is_ascii_uppercase())
        && !host.ends_with(usual)
}
