//! The target of a request: its host, path and query, which a route matches and the upstream gets.
//!
//! A path that two servers may read differently is refused, if the route depends on it. Otherwise a request could pass by
//! the route of one path and be served as another path.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::http::{Head, Response, invalid_request, target_too_long};

/// The longest path and query together, in bytes.
const MAX_TARGET_BYTES: usize = 16_384;

/// A path as two kinds of servers read it, without a slash at its end: many servers answer `/login` and `/login/` alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    /// Decoded once.
    strict: Vec<u8>,
    /// Decoded until nothing is encoded, with `\` for `/`, without parameters and empty segments, in lower case. Each of
    /// these is the habit of some server.
    lenient: Vec<u8>,
}

/// The reason why a target is refused.
#[derive(Debug)]
pub(super) enum TargetError {
    TooLong(usize),
    /// The message names the part of the target and what is expected of it.
    Invalid(&'static str),
}

/// The path takes one route as a strict server reads it, and another as a lenient one does.
pub(super) const TWO_ROUTES: TargetError = TargetError::Invalid(
    "the path: expected a path of one route; found one that takes another route in lower case, without its parameters \
     after `;`, or decoded once more",
);

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
        Self::of(head.path).map_err(TargetError::Invalid)
    }

    /// # Errors
    /// The message says what is expected of a path.
    pub(super) fn of(path: &str) -> Result<Self, &'static str> {
        let mut strict = decode(path)?;
        let lenient = lenient(&strict).ok_or(
            "the path: expected no segment `.` or `..`, found one, perhaps with parameters or encoded twice",
        )?;
        strict.pop_if(|last| *last == b'/');
        Ok(Self { strict, lenient })
    }

    pub(super) fn strict(&self) -> &[u8] {
        &self.strict
    }

    pub(super) fn lenient(&self) -> &[u8] {
        &self.lenient
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic()
}

/// Decodes a path once.
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
        match byte_of([bytes.next(), bytes.next()].map(Option::unwrap_or_default)) {
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
    let mut segments = rest.split(|&byte| byte == b'/').rev();
    segments.next(); // the last one may be empty
    match segments.any(<[u8]>::is_empty) {
        true => Err("the path: expected one slash at a time, found several"),
        false => Ok(decoded),
    }
}

/// The byte that two hexadecimal digits stand for.
fn byte_of(digits: [u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high?.checked_mul(16)?.checked_add(low?)?).ok()
}

/// A decoded path as a lenient server reads it; `None` if a segment is `.` or `..`.
fn lenient(decoded: &[u8]) -> Option<Vec<u8>> {
    let all = decode_fully(decoded).to_ascii_lowercase();
    let mut path = Vec::with_capacity(all.len());
    for segment in all.split(|byte| b"/\\".contains(byte)) {
        match segment.split(|&byte| byte == b';').next() {
            Some(b"." | b"..") => return None,
            None | Some(b"") => {}
            Some(name) => {
                path.push(b'/');
                path.extend(name);
            }
        }
    }
    Some(path)
}

/// Decodes until nothing is encoded, in one pass: a byte that is decoded may be part of another encoded byte.
fn decode_fully(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    for &byte in text {
        decoded.push(byte);
        while let Some(&[b'%', high, low]) = decoded.last_chunk()
            && let Some(byte) = byte_of([high, low])
        {
            decoded.truncate(decoded.len().saturating_sub(3));
            decoded.push(byte);
        }
    }
    decoded
}

/// A path that can be written into a policy file: as it is decoded, and without a wildcard.
pub(super) fn written_path(path: &str) -> Option<Path> {
    Path::of(path).ok().filter(|_| !path.contains(['%', '*']))
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
