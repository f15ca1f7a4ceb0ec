//! The parts of which messages are made: numbers, texts and the checksum.

use alloc::vec::Vec;
use core::{fmt, str};

use tidegate_gate::fnv1a;

/// The version of the format, which is the first byte of every message.
pub(super) const VERSION: u8 = 1;

/// The bytes of the checksum at the end of every message.
pub(super) const CHECKSUM_BYTES: usize = 8;

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// Another version wrote the message.
    Version {
        /// The first byte.
        found: u8,
    },
    /// The bytes have changed on their way.
    Checksum {
        /// The last eight bytes.
        found: u64,
        /// The checksum of the other bytes.
        expected: u64,
    },
    /// The message ends too early.
    Ended {
        /// What should follow.
        expected: &'static str,
    },
    /// A number has another value than any that is allowed.
    Number {
        /// What should be there.
        expected: &'static str,
        /// The number found.
        found: u64,
    },
    /// A number is not in the shortest form, or larger than 64 bits.
    Form {
        /// What the number means.
        expected: &'static str,
    },
    /// A text is not UTF-8.
    Text {
        /// What the text means.
        expected: &'static str,
        /// How many bytes at its beginning are UTF-8.
        found: usize,
    },
    /// Bytes follow after the message.
    Longer {
        /// The number of these bytes.
        found: usize,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { found } => {
                write!(f, "message: expected version {VERSION}, found {found}")
            }
            Self::Checksum { found, expected } => {
                write!(f, "message: expected the checksum {expected:016x}, found {found:016x}")
            }
            Self::Ended { expected } => write!(f, "message: expected {expected}, found its end"),
            Self::Number { expected, found } => {
                write!(f, "message: expected {expected}, found {found}")
            }
            Self::Form { expected } => write!(
                f,
                "message: expected {expected} as a number of 64 bits in its shortest form, found another"
            ),
            Self::Text { expected, found } => {
                write!(f, "message: expected {expected} as UTF-8, found other bytes after {found}")
            }
            Self::Longer { found } => {
                write!(f, "message: expected its end, found {found} more bytes")
            }
        }
    }
}

impl core::error::Error for WireError {}

/// Each step of this hash maps different hashes to different hashes, so it notices every change of a single byte.
fn checksum(bytes: &[u8]) -> u64 {
    fnv1a(bytes.iter().copied())
}

/// Writes a message.
#[derive(Debug)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new() -> Self {
        Self([VERSION].into())
    }

    /// The length of the message so far, with its checksum.
    pub(super) fn len(&self) -> usize {
        self.0.len().saturating_add(CHECKSUM_BYTES)
    }

    /// Takes back what was written since the message had this length.
    pub(super) fn truncate(&mut self, len: usize) {
        self.0.truncate(len.saturating_sub(CHECKSUM_BYTES));
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Writes eight bytes, little endian.
    pub(super) fn fixed(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    /// Writes a number in as few bytes as it needs: seven bits each, the lowest first, with the eighth bit set if
    /// more bytes follow (LEB128).
    pub(super) fn number(&mut self, number: u64) {
        let mut rest = number;
        loop {
            let [low, ..] = rest.to_le_bytes();
            rest >>= 7;
            if rest == 0 {
                return self.byte(low & 0x7f);
            }
            self.byte(low | 0x80);
        }
    }

    /// Writes a number plus one, because the largest word stands for "none" and is frequent.
    pub(super) fn word(&mut self, word: u64) {
        self.number(word.wrapping_add(1));
    }

    pub(super) fn count(&mut self, count: usize) {
        self.number(u64::try_from(count).unwrap_or(u64::MAX));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.extend(text.as_bytes());
    }

    /// The message with its checksum.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.fixed(checksum(&self.0));
        self.0
    }
}

/// Reads a message. Each call says what it expects, for the error.
#[derive(Clone, Debug)]
pub(super) struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    /// Checks the version and the checksum.
    pub(super) fn new(bytes: &'b [u8]) -> Result<Self, WireError> {
        match bytes {
            [VERSION, ..] => {}
            [found, ..] => return Err(WireError::Version { found: *found }),
            [] => return Err(WireError::Ended { expected: "a version" }),
        }
        let ended = WireError::Ended { expected: "a checksum" };
        let (message, found) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(ended)?;
        let (found, expected) = (u64::from_le_bytes(*found), checksum(message));
        if found != expected {
            return Err(WireError::Checksum { found, expected });
        }
        Ok(Self(message.get(1..).ok_or(ended)?))
    }

    /// The number of bytes that are left.
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn byte(&mut self, expected: &'static str) -> Result<u8, WireError> {
        let (byte, rest) = self.0.split_first().ok_or(WireError::Ended { expected })?;
        self.0 = rest;
        Ok(*byte)
    }

    pub(super) fn fixed(&mut self, expected: &'static str) -> Result<u64, WireError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(WireError::Ended { expected })?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    pub(super) fn number(&mut self, expected: &'static str) -> Result<u64, WireError> {
        let mut number = 0_u64;
        for place in 0..10_u32 {
            let byte = self.byte(expected)?;
            let shift = place.saturating_mul(7);
            let bits = u64::from(byte & 0x7f);
            let is_lost = bits.leading_zeros() < shift; // of the tenth byte one bit remains
            let is_needless = byte == 0 && place > 0;
            if is_lost || is_needless {
                break;
            }
            number |= bits.wrapping_shl(shift);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(WireError::Form { expected })
    }

    pub(super) fn word(&mut self, expected: &'static str) -> Result<u64, WireError> {
        Ok(self.number(expected)?.wrapping_sub(1))
    }

    /// A count of things that take at least a byte each, so it is at most the number of bytes that are left.
    pub(super) fn count(&mut self, expected: &'static str) -> Result<usize, WireError> {
        let found = self.number(expected)?;
        let count = usize::try_from(found).ok().filter(|count| *count <= self.0.len());
        count.ok_or(WireError::Ended { expected })
    }

    pub(super) fn text(&mut self, expected: &'static str) -> Result<&'b str, WireError> {
        let len = self.count(expected)?;
        let (text, rest) = self.0.split_at_checked(len).ok_or(WireError::Ended { expected })?;
        self.0 = rest;
        str::from_utf8(text)
            .map_err(|error| WireError::Text { expected, found: error.valid_up_to() })
    }

    pub(super) const fn end(&self) -> Result<(), WireError> {
        match self.0.len() {
            0 => Ok(()),
            found => Err(WireError::Longer { found }),
        }
    }
}
