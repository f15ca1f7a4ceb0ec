//! The names and values that servers take for the same, however they are written.
//!
//! A request whose field has two spellings is a trap: the key would come from one of them, and an upstream might read the
//! other one. So a value has one spelling in a key, and a source is absent if a second field may be read by its name.

use alloc::string::String;
use alloc::vec::Vec;

use percent_encoding::percent_decode_str;

/// The most hyphens and underscores in the name of a header that is a source: each doubles the number of its spellings.
pub(super) const MAX_HYPHENS: usize = 6;

/// The value of the only field that some server may read by this name. `None` if there are several, or if it is written
/// in another way.
pub(super) fn only<'a, N: AsRef<str>>(
    fields: impl Iterator<Item = (N, &'a str)>,
    name: &str,
) -> Option<&'a str> {
    let read = loosely(name);
    let mut all = fields.filter(|(found, _)| loosely(found.as_ref()) == read);
    let (found, value) = all.next()?;
    (all.next().is_none() && found.as_ref() == name).then_some(value)
}

/// A name of a cookie or a field of the query as lax servers read it: they decode it, or ignore upper and lower case, and PHP
/// writes `_` for some signs.
fn loosely(name: &str) -> Vec<u8> {
    let decoded = percent_decode_str(name).skip_while(u8::is_ascii_whitespace);
    let signs = decoded.map(|byte| if b" +.[".contains(&byte) { b'_' } else { byte });
    signs.map(|byte| byte.to_ascii_lowercase()).collect()
}

/// Decodes a percent-encoded value. `None` if it is not UTF-8 or if a `%` encodes nothing, which servers read in several
/// ways.
pub(super) fn decoded_value(text: &str) -> Option<String> {
    let is_byte = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    let is_valid = text.split('%').skip(1).all(is_byte);
    let decoded = percent_decode_str(text).decode_utf8().ok()?;
    is_valid.then(|| decoded.into_owned())
}

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
