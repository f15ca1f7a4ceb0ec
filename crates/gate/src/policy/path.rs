//! Paths as routes compare them.
//!
//! A path that two servers may read differently is refused, if the route depends on it. Otherwise a request could pass by
//! the route of one path and be served as another path.

use alloc::vec::Vec;

/// A path as two kinds of servers read it, without a slash at its end: many servers answer `/login` and `/login/` alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Decoded once.
    strict: Vec<u8>,
    /// Decoded until nothing is encoded, with `\` for `/`, without parameters and empty segments, in lower case. Each of
    /// these is the habit of some server.
    lenient: Vec<u8>,
}

impl Path {
    /// Reads the path of a URL.
    ///
    /// # Errors
    /// The message says what is expected of a path.
    pub fn of(path: &str) -> Result<Self, &'static str> {
        let mut strict = decode(path)?;
        let lenient = lenient(&strict).ok_or(
            "the path: expected no segment `.` or `..`, found one, perhaps with parameters or encoded twice",
        )?;
        strict.pop_if(|last| *last == b'/');
        Ok(Self { strict, lenient })
    }

    /// The path as a strict server reads it.
    pub(super) fn strict(&self) -> &[u8] {
        &self.strict
    }

    /// The path as a lenient server reads it.
    pub(super) fn lenient(&self) -> &[u8] {
        &self.lenient
    }
}

/// Decodes a path once.
fn decode(path: &str) -> Result<Vec<u8>, &'static str> {
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) || path.contains(['\\', '#', '?']) {
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

/// Whether the text is a host, with or without a port.
pub fn is_authority(text: &str) -> bool {
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
