//! Cookies (RFC 6265 §5.4).

use alloc::string::String;

/// The value of a cookie. `header` has all lines of the header, joined by `, `. `None` if the cookie occurs twice or if its
/// value is not a plain one, because the upstream might read another value than this.
pub(super) fn cookie(header: &str, name: &str) -> Option<String> {
    let mut once = None;
    for part in header.split(';') {
        let are_lines = part.split(", ").all(|line| line.trim().is_empty() || line.contains('='));
        let separator = if are_lines { ", " } else { ";" }; // otherwise `, ` is part of a value
        for line in part.split(separator) {
            let Some((found, value)) = line.split_once('=') else { continue };
            if found.trim() == name && once.replace(value.trim()).is_some() {
                return None;
            }
        }
    }
    let value = once?;
    let unquoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let value = unquoted.unwrap_or(value);
    let is_plain = !value.contains(['"', '\\', ',', ' ', '\t']);
    (is_plain && !value.is_empty()).then(|| value.into())
}
