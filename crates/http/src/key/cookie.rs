//! Cookies (RFC 6265 §5.4).

use alloc::string::String;

use super::spelling::{decoded_value, only};

/// The value of a cookie, decoded. `header` has all lines of the header, joined by `, `. `None` if the upstream might read
/// another value than this.
pub(super) fn cookie(header: &str, name: &str) -> Option<String> {
    let lines = header.split(';').flat_map(|part| {
        let are_lines = part.split(", ").all(|line| line.trim().is_empty() || line.contains('='));
        let separator = if are_lines { ", " } else { ";" }; // otherwise `, ` is part of a value
        part.split(separator)
    });
    let pairs = lines.filter_map(|line| line.split_once('='));
    let value = only(pairs.map(|(name, value)| (name.trim(), value.trim())), name)?;
    let unquoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let value = unquoted.unwrap_or(value);
    if value.contains(['"', '\\', ',', ' ', '\t']) {
        return None;
    }
    // Some servers read a `+` as a space and some do not, some take off quotes that were encoded, some stop at a zero.
    let is_one = |value: &String| {
        !value.is_empty()
            && !value.starts_with('"')
            && !value.bytes().any(|byte| byte == b' ' || byte.is_ascii_control())
    };
    decoded_value(value).filter(is_one)
}
