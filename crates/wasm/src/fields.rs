//! The form in which WebAssembly hands several values to JavaScript at once: fields in one text, one after another, which
//! `npm/fields.js` reads in the same order. One text costs less than several values or an array of them.
//!
//! A number is its digits to the base 64, the most significant digit first. A digit is the character of that code, plus
//! 64 if another digit follows. A text is its length as a number, in the UTF-16 units that JavaScript counts, and the
//! text itself. So no field has to be escaped, and the lengths do not make the text wider than its texts are.

use tidegate_http::Header;

/// Fields that are being written.
#[derive(Debug, Default)]
pub(crate) struct Fields(pub(super) String);

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
