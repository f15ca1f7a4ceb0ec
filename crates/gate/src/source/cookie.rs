//! Cookies (RFC 6265 §5.4).

use alloc::string::String;

/// The value of a cookie. `None` if it occurs twice or if its value is not a plain one, because the upstream might read
/// another value than this.
pub(super) fn cookie(header: &str, name: &str) -> Option<String> {
    let mut values = header.split(';').filter_map(|pair| {
        let (found, value) = pair.split_once('=')?;
        (found.trim() == name).then(|| value.trim())
    });
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    let unquoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let value = unquoted.unwrap_or(value);
    let is_plain = !value.contains(['"', '\\', ',', ' ', '\t']);
    (is_plain && !value.is_empty()).then(|| value.into())
}
