//! Values of options, as the command line and the configuration file have them.

use std::ops::RangeInclusive;

/// A value that an option may not have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found:?}")]
pub(crate) struct NotAllowed {
    pub(crate) expected: String,
    found: String,
}

impl NotAllowed {
    fn new(expected: String, found: &str) -> Self {
        Self { expected, found: found.to_owned() }
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) usize);

/// Parses a size such as `512KiB`, `256MiB` or `1048576`.
pub(crate) fn size(text: &str) -> Result<Size, NotAllowed> {
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text.strip_prefix(number) {
        Some("") => Some(1),
        Some("KiB") => Some(1 << 10),
        Some("MiB") => Some(1 << 20),
        Some("GiB") => Some(1_usize << 30),
        _ => None,
    };
    let count = number.parse::<usize>().ok();
    let size = count.zip(unit).and_then(|(count, unit)| count.checked_mul(unit));
    size.map(Size).ok_or_else(|| NotAllowed::new("a size such as 256MiB".to_owned(), text))
}

/// A parser of the whole numbers of a range.
pub(crate) fn whole<N: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<N, NotAllowed> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.and_then(|number| N::try_from(number).ok()).ok_or_else(|| {
            let (least, most) = range.clone().into_inner();
            NotAllowed::new(format!("a whole number from {least} to {most}"), text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Size, size};

    #[test]
    fn a_size_is_bytes_or_has_a_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("3KiB", 3 << 10),
            ("256MiB", 256 << 20),
            ("17179869183GiB", 17_179_869_183 << 30),
        ] {
            assert_eq!(size(text), Ok(Size(bytes)));
        }
        for text in ["", "MiB", "1MB", "1 MiB", "1mib", "-1", "1.5GiB", "17179869184GiB", "1MiBs"] {
            let error = size(text).unwrap_err().to_string();
            assert_eq!(error, format!("expected a size such as 256MiB, found {text:?}"));
        }
    }
}
