//! What a key may be, which patterns match it, and which part of it a limit counts by.

mod address;
mod depth;
mod lease;
mod pattern;

use alloc::string::String;
use core::fmt;

use tidegate_form::Quoted;

pub use address::canonical_key;
pub(crate) use address::{is_address, network_of, starts_elsewhere, valid_canonical_key};
pub use depth::Depth;
pub use lease::MAX_LEASE_BYTES;
pub(crate) use lease::lease_id;
pub use pattern::Pattern;

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 512;

pub(crate) const EXPECTED_ADDRESS: &str =
    "`key`: expected an address such as 192.0.2.7 or 2001:db8::7 after `ip:`";

/// Why a key is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidKey {
    /// The key has this many bytes: none, or more than [`MAX_KEY_BYTES`].
    Length(usize),
    /// This key begins with `ip:`, but does not continue with an address. No list of addresses could match
    /// it.
    NoAddress(String),
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(bytes) => {
                write!(f, "`key`: expected 1 to {MAX_KEY_BYTES} bytes, found {bytes}")
            }
            Self::NoAddress(key) => write!(f, "{EXPECTED_ADDRESS}, found {}", Quoted(key)),
        }
    }
}

impl core::error::Error for InvalidKey {}

/// Checks that a key can be counted by.
///
/// # Errors
/// Fails with [`InvalidKey`] if the key is empty or longer than [`MAX_KEY_BYTES`], or if it begins with
/// `ip:` and does not continue with an address: a network would be counted apart from its addresses.
#[inline] // it is on the path of every decision in memory
pub fn check_key(key: &str) -> Result<(), InvalidKey> {
    if has_key_length(key) && !is_address(key) { Ok(()) } else { check_length_and_address(key) }
}

#[inline(never)]
fn check_length_and_address(key: &str) -> Result<(), InvalidKey> {
    valid_canonical_key(key, 128).map(drop)
}

#[inline]
fn has_key_length(key: &str) -> bool {
    (1..=MAX_KEY_BYTES).contains(&key.len())
}
