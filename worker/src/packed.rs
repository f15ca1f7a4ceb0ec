//! Bytes as text, with one character for each byte. Between an isolate and an object a short string costs a third of what
//! an array costs.

/// The text of these bytes.
pub(crate) fn pack(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// The bytes of a text; `None` if some character is not a byte.
pub(crate) fn unpack(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|character| u8::try_from(character).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::{pack, unpack};

    #[test]
    fn all_bytes_come_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(unpack(&pack(&bytes)), Some(bytes));
    }

    #[test]
    fn a_character_that_is_no_byte_is_refused() {
        assert_eq!(unpack("\u{ff}"), Some(vec![255]));
        assert_eq!(unpack("\u{100}"), None);
    }
}
