//! The key of a request.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;

use tidegate_gate::{Gateway, JoinedSources, KeySource, Policy, canonical_key};

use super::address::client_address;
use super::cookie::cookie;
use super::spelling::{decoded_value, only, other_spellings, spelled_once};
use super::token::{Token, Verify};
use crate::head::{Head, decoded};

/// The key that the policy's sources find in a request.
#[derive(Clone, Debug)]
pub(crate) enum FoundKey {
    /// This key, or no key.
    Known(Option<String>),
    /// The key if the signature of a token holds, and the key otherwise.
    IfVerified { token: Verify, key: String, otherwise: Option<String> },
}

pub(crate) fn find(gateway: &Gateway, policy: &Policy, head: &Head<'_>) -> FoundKey {
    let reader = Reader::new(gateway, policy, head);
    let first = |with_verified: bool| {
        let sources = policy.key_sources().iter();
        let mut usable = sources.filter(|all| with_verified || !all.needs_verification());
        usable.find_map(|all| Some((all, reader.key(all)?)))
    };
    let (Some((sources, key)), verify) = (first(true), reader.verify()) else {
        return FoundKey::Known(None);
    };
    match verify {
        _ if !sources.needs_verification() => FoundKey::Known(Some(key)),
        Some(token) => {
            let otherwise = first(false).map(|(_, key)| key);
            FoundKey::IfVerified { token: token.clone(), key, otherwise }
        }
        None => FoundKey::Known(first(false).map(|(_, key)| key)),
    }
}

/// The parts of a request that the sources read.
struct Reader<'a> {
    head: &'a Head<'a>,
    client: Option<IpAddr>,
    ipv6_prefix: u8,
    token: Option<Token>,
}

impl<'a> Reader<'a> {
    fn new(gateway: &Gateway, policy: &Policy, head: &'a Head<'a>) -> Self {
        let mut sources = policy.key_sources().iter().flat_map(JoinedSources::sources);
        let reads_token =
            |source| matches!(source, &KeySource::Jwt(_) | &KeySource::UnverifiedJwt(_));
        let jwt = gateway.jwt().filter(|_| sources.any(reads_token));
        let token = jwt.and_then(|jwt| {
            let found = value(head, jwt.source())?;
            Token::read(&found, jwt, head.now)
        });
        let (client, ipv6_prefix) = (client_address(gateway, head), policy.ipv6_prefix());
        Self { head, client, ipv6_prefix, token }
    }

    fn verify(&self) -> Option<&Verify> {
        self.token.as_ref()?.verify()
    }

    /// The key, if the request has a value in each source.
    fn key(&self, sources: &JoinedSources) -> Option<String> {
        if let [KeySource::Ip] = sources.sources() {
            return self.client.map(key_of_address);
        }
        let parts = sources.sources().iter().map(|source| {
            let value = match source {
                KeySource::Ip => self.network(),
                source => self.value(source),
            };
            value.map(|value| source.part(&value))
        });
        Some(parts.collect::<Option<Vec<_>>>()?.join("/"))
    }

    fn value(&self, source: &KeySource) -> Option<String> {
        match source {
            KeySource::Jwt(claim) | KeySource::UnverifiedJwt(claim) => {
                self.token.as_ref()?.claim(claim)
            }
            KeySource::Header(name) => spelled_once(name, value(self.head, source)?),
            source => value(self.head, source),
        }
    }

    /// The client's address, as a key of it alone is counted.
    fn network(&self) -> Option<String> {
        let key = key_of_address(self.client?);
        canonical_key(&key, self.ipv6_prefix).strip_prefix("ip:").map(ToString::to_string)
    }
}

/// The key of an address alone.
fn key_of_address(address: IpAddr) -> String {
    let IpAddr::V4(address) = address else { return format!("ip:{address}") };
    let mut key = String::with_capacity("ip:255.255.255.255".len());
    // without the formatter of `core`, which would take as long as the decision
    for (octet, before) in address.octets().into_iter().zip(["ip:", ".", ".", "."]) {
        key.push_str(before);
        key.push_str(itoa::Buffer::new().format(octet));
    }
    key
}

/// The value that a request has in a source which needs no token. An empty one counts as absent.
fn value(head: &Head<'_>, source: &KeySource) -> Option<String> {
    let value = match source {
        KeySource::Header(name) => header(head, name)?,
        KeySource::Cookie(name) => cookie(&end_to_end(head, "cookie")?, name)?,
        KeySource::Query(name) => field(head.query, name)?,
        KeySource::Country => head.country.filter(|country| is_country(country))?.into(),
        KeySource::Ip | KeySource::Jwt(_) | KeySource::UnverifiedJwt(_) => return None,
    };
    Some(value).filter(|value| !value.is_empty())
}

/// A header. `None` if it is repeated, or if the request has it with `_` for `-` too: servers read the first, the last or
/// all of them. Repeated headers come joined by a comma.
fn header(head: &Head<'_>, name: &str) -> Option<String> {
    let value = end_to_end(head, name)?;
    // the names of browsers have commas, and nobody is let in by them
    let is_repeated = value.contains(',') && name != "user-agent";
    let is_one =
        !is_repeated && other_spellings(name).iter().all(|other| (head.header)(other).is_none());
    is_one.then_some(value)
}

/// A header that proxies pass on. `None` if `Connection` names it (RFC 9110 §7.6.1): the upstream will not see it.
fn end_to_end(head: &Head<'_>, name: &str) -> Option<String> {
    let value = (head.header)(name)?;
    let options = (head.header)("connection").unwrap_or_default();
    let mut options = options.split(',');
    let is_passed_on = !options.any(|option| option.trim().eq_ignore_ascii_case(name));
    is_passed_on.then_some(value)
}

/// A field of the query, which means the same to servers that separate fields at `;` and to those that do not.
fn field(query: &str, name: &str) -> Option<String> {
    let read = |separators: &[char]| {
        let pairs = query.split(separators).map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let named = pairs.filter_map(|(field, value)| Some((decoded(field)?, value)));
        only(named, name)
    };
    let value = read(&['&']).filter(|value| read(&['&', ';']) == Some(value))?;
    decoded_value(&value.replace('+', " "))
}

/// Cloudflare writes `XX` for a country that it does not know.
fn is_country(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_alphanumeric()) && text != "XX"
}
