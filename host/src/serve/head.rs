//! Checks of a request's head that HTTP demands and hyper leaves to its user.

use std::net::Ipv6Addr;

use hyper::Version;
use hyper::header::HOST;
use hyper::http::request::Parts;
use tidegate_gate::Quoted;
use tidegate_http::{self as http, Response};

use crate::http_message::{joined, text};

/// The answer to a head that no server may accept; `None` if the head is acceptable. The answer closes the
/// connection, because a proxy on the way may have read the request differently.
pub(super) fn refusal(parts: &Parts) -> Option<Response> {
    let mut refusal = wrong_host(parts)
        .map(http::invalid_request)
        .or_else(|| unknown_coding(parts).map(http::unknown_transfer_coding))?;
    refusal.headers.push(("connection", "close".into()));
    Some(refusal)
}

/// RFC 9112 §3.2: HTTP/1.1 needs exactly one valid `Host`.
fn wrong_host(parts: &Parts) -> Option<String> {
    let fields = parts.headers.get_all(HOST);
    let mut hosts = fields.iter().map(text);
    match (hosts.next(), hosts.next()) {
        (None, _) if parts.version < Version::HTTP_11 => None,
        // RFC 9113 §8.3.1: the authority of the target takes the place of the field
        (None, _) if parts.version == Version::HTTP_2 && parts.uri.authority().is_some() => None,
        (Some(host), None) if is_host(&host) => None,
        (Some(host), None) => {
            let found = Quoted(&host);
            Some(format!("`host`: expected a host, with or without a port, found {found}"))
        }
        _ => {
            let found = fields.iter().count();
            Some(format!("`host`: expected one field, found {found}"))
        }
    }
}

/// RFC 9112 §6.1. Hyper has already refused codings that do not end in `chunked`.
fn unknown_coding(parts: &Parts) -> Option<String> {
    let codings = joined(&parts.headers, "transfer-encoding")?;
    let known = codings.eq_ignore_ascii_case("chunked");
    (!known).then(|| format!("`transfer-encoding`: expected chunked, found {}", Quoted(&codings)))
}

/// RFC 3986 §3.2.2 and §3.2.3: a name or an address, with or without a port. The name and the port may
/// be empty.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((address, port)) if address.parse::<Ipv6Addr>().is_ok() => ("", port),
        Some(_) => return false,
        None => {
            let end = text.bytes().position(|byte| byte == b':');
            text.split_at(end.unwrap_or(text.len()))
        }
    };
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    is_name(host) && port.strip_prefix(':').map_or(port.is_empty(), is_number)
}

fn is_name(name: &str) -> bool {
    let mut escaped = name.as_bytes().split(|byte| *byte == b'%');
    let starts_well =
        |part: &[u8]| part.iter().take(2).filter(|byte| byte.is_ascii_hexdigit()).count() == 2;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_~!$&'()*+,;=".contains(byte);
    let first = escaped.next().unwrap_or_default();
    first.iter().all(plain) && escaped.all(|part| starts_well(part) && part.iter().all(plain))
}
