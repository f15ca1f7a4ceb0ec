//! A caller's text in errors, cut to what a reader needs.

use alloc::string::String;
use core::fmt;

/// The most characters of a caller's text that an error repeats.
const MOST_CHARS: usize = 64;

/// The most bytes of a path or a parser's message, which repeat the caller's text in full.
const MOST_MESSAGE_BYTES: usize = 600;

/// A caller's text as errors repeat it: in quotes and escaped, at most its first 64 characters. A
/// longer text is followed by an ellipsis and its length in bytes.
///
/// ```
/// use tidegate_form::Quoted;
/// assert_eq!(Quoted("a\"b\n").to_string(), r#""a\"b\n""#);
/// let long = "x".repeat(1_000);
/// assert_eq!(Quoted(&long).to_string(), format!("\"{}\"… (1000 bytes)", "x".repeat(64)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = *self;
        match start_of(text) {
            Some(start) => write!(f, "{start:?}… ({} bytes)", text.len()),
            None => write!(f, "{text:?}"),
        }
    }
}

/// The start of a text that is longer than errors repeat.
pub(crate) fn start_of(text: &str) -> Option<&str> {
    text.char_indices().nth(MOST_CHARS).and_then(|(end, _)| text.get(..end))
}

/// A parser's message or a path, without its middle if it is long: its start and its end say the most.
pub(crate) fn without_middle(message: String) -> String {
    if message.len() <= MOST_MESSAGE_BYTES {
        return message;
    }
    let half = MOST_MESSAGE_BYTES / 2;
    let start = (0..=half).rev().find_map(|end| message.get(..end)).unwrap_or_default();
    let rest = message.len().saturating_sub(half);
    let end = (rest..=message.len()).find_map(|start| message.get(start..)).unwrap_or_default();
    alloc::format!("{start}…{end}")
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::ToString;

    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        for (text, quoted) in [
            ("", "\"\"".to_string()),
            (&"é".repeat(64), format!("\"{}\"", "é".repeat(64))),
            (&"é".repeat(65), format!("\"{}\"… (130 bytes)", "é".repeat(64))),
            (&"\0".repeat(65), format!("\"{}\"… (65 bytes)", "\\0".repeat(64))),
        ] {
            assert_eq!(Quoted(text).to_string(), quoted);
        }
    }

    #[test]
    fn a_message_keeps_its_start_and_its_end() {
        let message = |middle: &str| format!("found {middle}, expected a number");
        for short in ["", "x", &"x".repeat(600 - message("").len())] {
            assert_eq!(without_middle(message(short)), message(short));
        }
        for long in ["x", "é", "網"].map(|text| text.repeat(1_000)) {
            let cut = without_middle(message(&long));
            assert!(cut.starts_with("found ") && cut.ends_with(", expected a number"), "{cut}");
            assert!(cut.len() <= 600 + '…'.len_utf8(), "{} bytes", cut.len());
        }
    }
}
