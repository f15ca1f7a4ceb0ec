//! The names and values that servers take for the same, however they are written.
//!
//! A request whose field has two spellings is a trap: the key would come from one of them, and an upstream might read the
//! other one. So a value has one spelling in a key, and a source is absent if a second field may be read by its name.

use alloc::string::String;
use alloc::vec::Vec;

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;

/// The value of the only field that some server may read by this name. `None` if there are several, or if it is written
/// in another way.
pub(super) fn only<'a, N: AsRef<str>>(
    fields: impl Iterator<Item = (N, &'a str)>,
    name: &str,
) -> Option<&'a str> {
    let read = loosely(name, b"\0");
    // an array such as `tok[]` is also read by the name before its bracket
    let is_read =
        |found: &str| [&b"\0"[..], b"\0["].iter().any(|ends| loosely(found, ends) == read);
    let mut all = fields.filter(|(found, _)| is_read(found.as_ref()));
    let (found, value) = all.next()?;
    (all.next().is_none() && found.as_ref() == name).then_some(value)
}

/// A name of a cookie or a field of the query, up to one of the bytes that end it, as lax servers read it: they decode it, or
/// ignore upper and lower case, and PHP writes `_` for some signs and ends a name at a zero byte.
fn loosely(name: &str, ends: &[u8]) -> Vec<u8> {
    let decoded = percent_decode_str(name).skip_while(u8::is_ascii_whitespace);
    let name = decoded.take_while(|byte| !ends.contains(byte));
    let signs = name.map(|byte| if b" +.[".contains(&byte) { b'_' } else { byte });
    signs.map(|byte| byte.to_ascii_lowercase()).collect()
}

/// Decodes a percent-encoded value. `None` if it is not UTF-8, has a control character, or has a `%` that encodes nothing: servers
/// read these in several ways.
pub(super) fn decoded_value(text: &str) -> Option<String> {
    let is_byte = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    let is_valid = text.split('%').skip(1).all(is_byte);
    let decoded = percent_decode_str(text).decode_utf8().ok()?;
    let is_one = is_valid && !decoded.contains(char::is_control);
    is_one.then(|| decoded.into_owned())
}

/// The one spelling of the value of a header. `None` if servers read the value differently.
pub(super) fn spelled_once(name: &str, value: String) -> Option<String> {
    match name {
        "host" => Some(value.trim_end_matches('.').to_ascii_lowercase()),
        _ if name.ends_with("authorization") => credentials(&value),
        _ => Some(value),
    }
}

/// Credentials (RFC 9110 §11.4): the scheme in lower case, a space, and the rest without `=` at its end. A word without a scheme
/// counts as that of Bearer, because some servers take only that scheme off. What stands in base64 is written in one of its
/// alphabets, and without bits that mean nothing. `None` if the rest is more than a word, because servers read that differently.
fn credentials(text: &str) -> Option<String> {
    let mut words = text.split_ascii_whitespace();
    let (scheme, word) = match (words.next()?, words.next()) {
        (scheme, Some(word)) => (scheme.to_ascii_lowercase(), word),
        (word, None) => ("bearer".into(), word),
    };
    let word = word.trim_end_matches('=');
    if word.is_empty() || word.contains('"') || words.next().is_some() {
        return None;
    }
    let word = match &*scheme {
        "basic" => {
            let decoded = BASE64.decode(word.replace('+', "-").replace('/', "_")).ok()?;
            BASE64.encode(decoded)
        }
        _ => word.into(),
    };
    Some([&*scheme, " ", &*word].concat())
}

/// Base64 as lenient servers read it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// The other names of a header for servers that read `_` as `-`, as CGI and WSGI do.
pub(crate) fn other_spellings(name: &str) -> Vec<String> {
    let mut all = Vec::from([name.replace('_', "-")]);
    for (place, _) in name.match_indices(['-', '_']) {
        for mut other in all.clone() {
            other.replace_range(place..=place, "_");
            all.push(other);
        }
    }
    all.retain(|spelled| spelled != name);
    all
}
