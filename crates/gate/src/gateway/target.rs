//! The target of a request: its host, path and query, which a route matches and the upstream gets.
//!
//! A path that two readers may read differently is refused. Otherwise a request could pass by the route of one path and
//! be served as another path.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::http::{Head, Response, invalid_request, target_too_long};

/// The longest path and query together, in bytes.
const MAX_TARGET_BYTES: usize = 16_384;

/// A decoded path that everybody reads in the same way.
#[derive(Debug)]
pub(super) struct Path(Vec<u8>);

/// The reason why a target is refused.
#[derive(Debug)]
pub(super) enum TargetError {
    TooLong(usize),
    /// The message names the part of the target and what is expected of it.
    Invalid(&'static str),
}

impl TargetError {
    pub(super) fn response(&self) -> Response {
        match self {
            Self::TooLong(bytes) => target_too_long(format!(
                "expected a path and a query of at most {MAX_TARGET_BYTES} bytes, found {bytes}"
            )),
            Self::Invalid(message) => invalid_request((*message).to_string()),
        }
    }
}

impl Path {
    pub(super) fn read(authority: &str, head: &Head<'_>) -> Result<Self, TargetError> {
        let length = head.path.len().saturating_add(head.query.len());
        if length > MAX_TARGET_BYTES {
            return Err(TargetError::TooLong(length));
        }
        if !is_authority(authority.strip_suffix(':').unwrap_or(authority)) {
            let expected = "the host: expected a name or an address, with or without a port";
            return Err(TargetError::Invalid(expected));
        }
        if !head.query.bytes().all(|byte| is_plain(byte) && byte != b'#') {
            return Err(TargetError::Invalid("the query: expected printable ASCII without `#`"));
        }
        decode(head.path).map(Self).map_err(TargetError::Invalid)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic()
}

/// Decodes a path.
fn decode(path: &str) -> Result<Vec<u8>, &'static str> {
    if !path.bytes().all(is_plain) || path.contains(['\\', '#', '?']) {
        return Err("the path: expected printable ASCII without `\\`");
    }
    let mut decoded = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = [bytes.next(), bytes.next()].map(|digit| char::from(digit.unwrap_or(b' ')));
        let digits: String = digits.into_iter().filter(char::is_ascii_hexdigit).collect();
        match u8::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 2) {
            None => return Err("the path: expected two hexadecimal digits after `%`"),
            Some(b'/' | b'\\') => return Err("the path: expected no encoded slash, found one"),
            Some(byte) if byte.is_ascii_control() => {
                return Err("the path: expected no control character, found one");
            }
            Some(byte) => decoded.push(byte),
        }
    }
    let Some((b'/', rest)) = decoded.split_first() else {
        return Err("the path: expected `/` at its start");
    };
    let mut segments = rest.split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        match segment {
            b"" if segments.peek().is_some() => {
                return Err("the path: expected one slash at a time, found several");
            }
            b"." | b".." => return Err("the path: expected no segment `.` or `..`, found one"),
            _ => {}
        }
    }
    Ok(decoded)
}

/// Whether a path can be written into a policy file: as it is decoded, and without a wildcard.
pub(super) fn is_written_path(path: &str) -> bool {
    !path.contains(['%', '*']) && decode(path).is_ok()
}

/// A host with or without a port.
pub(super) fn is_authority(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if address.parse::<core::net::Ipv6Addr>().is_ok() => ("v6", port),
        Some(_) => return false,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let is_port = |digits: &str| digits.parse::<u16>().is_ok_and(|port| port > 0);
    let has_port = port.strip_prefix(':').map_or(port.is_empty(), is_port);
    !host.is_empty() && host.bytes().all(plain) && has_port
}
