//! Hashes for tables of keys under several policies.

use tidegate_gate::KeyHasher;

/// The hash of a key under the policy or the limits at this address. The product spreads the addresses over all bits: a hash table
/// chooses the place by the low bits and tells entries apart by the highest ones, and in both most addresses are alike.
#[inline]
pub(crate) fn hash(hasher: &KeyHasher, address: usize, key: &str) -> u64 {
    let address = u64::try_from(address).unwrap_or(u64::MAX).wrapping_mul(MIX);
    hasher.hash(key) ^ address.rotate_left(32) // the high half of a product is the one that is mixed
}

/// 2^64 divided by the golden ratio, made odd (Knuth, "The Art of Computer Programming", volume 3, section 6.4).
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn one_key_under_many_policies_has_as_many_places() {
        let hasher = KeyHasher::new(7);
        for stride in [16, 64, 208, 4_096, 1 << 20] {
            let addresses = (0..256).map(|number| 0x7f3a_5c00_1000 + number * stride);
            let hashes: Vec<u64> =
                addresses.map(|address| hash(&hasher, address, "user:42")).collect();
            let differing = |part: fn(u64) -> u64| {
                hashes.iter().copied().map(part).collect::<BTreeSet<u64>>().len()
            };
            let places = differing(|hash| hash & 0x3fff);
            assert!(places >= 192, "{stride}: {places} of 256");
            let tags = differing(|hash| hash >> 57);
            assert!(tags >= 64, "{stride}: {tags} of 128");
        }
    }
}
