//! The form in which WebAssembly hands several values to JavaScript at once: fields in one text, one after another, which
//! `npm/fields.js` reads in the same order. One text costs less than several values or an array of them.
//!
//! A number is its digits to the base 64, the most significant digit first. A digit is the character of that code, plus
//! 64 if another digit follows. A text is its length as a number, in the UTF-16 units that JavaScript counts, and the
//! text itself. So no field has to be escaped, and the lengths do not make the text wider than its texts are. Bytes are
//! their number, and each of them the character of its number.
//!
//! The Worker has this file too, and reads what another part of it wrote.

use tidegate_http::Header;

/// Fields that are being written.
#[derive(Debug, Default)]
pub(crate) struct Fields(String);

impl Fields {
    /// No fields yet, with room for this many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    /// Adds a number, which JavaScript reads exactly up to 2^53.
    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        let digits = number.checked_ilog2().unwrap_or(0) / 6;
        for place in (0..=digits).rev() {
            let digit = u8::try_from(number >> (6 * place) & 63).unwrap_or(63); // always fits
            self.0.push(char::from(if place == 0 { digit } else { digit | 64 }));
        }
        self
    }

    /// Adds a text.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        // characters of four bytes are two units, and all others are one
        let starts = text.bytes().filter(|byte| byte & 0xc0 != 0x80).count();
        let pairs = text.bytes().filter(|byte| *byte >= 0xf0).count();
        self.number(u64::try_from(starts.saturating_add(pairs)).unwrap_or(u64::MAX));
        self.0.push_str(text);
        self
    }

    /// Adds bytes, each of them as the character of its number. Between an isolate and an object a short text costs a third
    /// of what an array costs.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.0.extend(bytes.iter().copied().map(char::from));
        self
    }

    /// Adds the names and values of headers, after the number of headers.
    pub(crate) fn headers(&mut self, headers: &[Header]) -> &mut Self {
        self.number(u64::try_from(headers.len()).unwrap_or(u64::MAX));
        headers.iter().fold(self, |fields, (name, value)| fields.text(name).text(value))
    }

    /// The text of all fields.
    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

/// The fields of a text, read one after another in the order in which they were written.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a str);

impl<'a> Reader<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// Whether all fields have been read.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the next field as a number; returns `None` if there is no number.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number: u64 = 0;
        loop {
            let (&digit, rest) = self.0.as_bytes().split_first()?;
            self.0 = self.0.get(self.0.len() - rest.len()..)?;
            number = number.checked_mul(64)?.checked_add(u64::from(digit & 63))?;
            if digit < 64 {
                return Some(number);
            }
        }
    }

    /// Reads the next field as a text; returns `None` if there is no text.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let units = usize::try_from(self.number()?).ok()?;
        let mut left = units;
        let mut characters = self.0.chars();
        while left > 0 {
            left = left.checked_sub(characters.next()?.len_utf16())?;
        }
        let (text, rest) = self.0.split_at_checked(self.0.len() - characters.as_str().len())?;
        self.0 = rest;
        Some(text)
    }

    /// Reads the next field as bytes; returns `None` if there are no bytes.
    pub(crate) fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.number()?).ok()?;
        let mut bytes = Vec::with_capacity(length.min(self.0.len()));
        let mut characters = self.0.chars();
        for _ in 0..length {
            bytes.push(u8::try_from(characters.next()?).ok()?);
        }
        self.0 = characters.as_str();
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{Fields, Reader};

    const NUMBERS: [u64; 9] = [0, 1, 63, 64, 4_095, 4_096, 1 << 32, (1 << 53) - 1, u64::MAX];
    const TEXTS: [&str; 6] =
        ["", "a", "\0\n\u{7f}", "\u{ff}\u{100}", "\u{ffff}", "\u{10000} \u{1f30a}"];

    #[test]
    fn all_fields_come_back_in_their_order() {
        let mut fields = Fields::with_capacity(0);
        for (number, text) in NUMBERS.into_iter().zip(TEXTS.into_iter().cycle()) {
            fields.number(number).text(text);
        }
        let all = fields.into_text();
        let mut reader = Reader::new(&all);
        for (number, text) in NUMBERS.into_iter().zip(TEXTS.into_iter().cycle()) {
            assert_eq!((reader.number(), reader.text()), (Some(number), Some(text)));
        }
        assert_eq!((reader.number(), reader.text()), (None, None));

        let mut fields = Fields::default();
        fields.headers(&[("name", "value".into())]);
        let all = fields.into_text();
        let mut reader = Reader::new(&all);
        assert_eq!((reader.number(), reader.text()), (Some(1), Some("name")));
        assert_eq!(reader.text(), Some("value"));
    }

    #[test]
    fn all_bytes_come_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut fields = Fields::default();
        fields.bytes(&bytes).bytes(&[]).text("\u{ff}");
        let all = fields.into_text();
        let mut reader = Reader::new(&all);
        assert_eq!((reader.bytes(), reader.bytes()), (Some(bytes), Some(Vec::new())));
        assert_eq!((reader.text(), reader.text()), (Some("\u{ff}"), None));
    }

    #[test]
    fn a_text_that_is_no_field_is_refused() {
        let mut reader = Reader::new("\u{40}");
        assert_eq!(reader.number(), None, "another digit is missing");
        assert_eq!(Reader::new("\u{2}a").text(), None, "a unit is missing");
        assert_eq!(Reader::new("\u{1}\u{1f30a}").text(), None, "the length ends in a character");
        assert_eq!(Reader::new("\u{1}\u{ff}").bytes(), Some(vec![255]));
        assert_eq!(Reader::new("\u{1}\u{100}").bytes(), None, "a character that is no byte");
        assert_eq!(Reader::new("\u{2}a").bytes(), None, "a byte is missing");
        assert_eq!(Reader::new("\u{ff}a").number(), None, "no digit");
        assert_eq!(Reader::new(&"\u{7f}".repeat(20)).number(), None, "too many digits");
    }
}
