//! Random numbers, and what they let fail.

use super::*;

/// Random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True this many times of 1,000.
    pub(super) fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[narrow(self.below(wide(all.len())))]
    }
}

/// What fails in a world, each this many times of 1,000.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    pub(super) drops: u64,
    pub(super) repeats: u64,
    pub(super) delays: u64,
    pub(super) corrupts: u64,
    pub(super) node_restarts: u64,
    pub(super) authority_restarts: u64,
    pub(super) store_fails: u64,
}

impl Faults {
    pub(super) fn new(random: &mut Random) -> Self {
        let mut rate = |rates: &[u64]| random.one_of(rates);
        Self {
            drops: rate(&[0, 0, 30, 200]),
            repeats: rate(&[0, 100, 400]),
            delays: rate(&[0, 100, 400]),
            corrupts: rate(&[0, 0, 50]),
            node_restarts: rate(&[0, 0, 5]),
            authority_restarts: rate(&[0, 0, 0, 5]),
            store_fails: rate(&[0, 0, 50]),
        }
    }
}
