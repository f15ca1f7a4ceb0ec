//! The names of leases, and the ids under which they are stored.

use sha2::{Digest, Sha256};
use tidegate_core::lease::Id;

/// The longest name of a lease, in bytes.
pub const MAX_LEASE_BYTES: usize = 128;

/// The id under which a lease is stored: the first half of a SHA-256 of the whole canonical key and the
/// name of the lease. So nobody can make two leases with one id, and keys that share a state share no
/// leases.
#[must_use]
pub fn lease_id(key: &str, name: &str) -> Id {
    let mut hasher = Sha256::new();
    hasher.update(u64::try_from(key.len()).unwrap_or(u64::MAX).to_le_bytes()); // the end of the key
    hasher.update(key.as_bytes());
    hasher.update(name.as_bytes());
    let digest = hasher.finalize();
    let (words, _) = digest.as_chunks();
    Id([0, 1].map(|place| words.get(place).map_or(0, |word| u64::from_be_bytes(*word))))
}
