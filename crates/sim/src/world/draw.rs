//! Random draws of a seed.

use rand::rngs::ChaCha8Rng;
use rand::{Rng, SeedableRng};

/// A generator of random draws.
#[derive(Debug)]
pub(super) struct Draws(ChaCha8Rng);

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A number below `end`; 0 if `end` is 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64().checked_rem(end).unwrap_or(0)
    }

    pub(super) fn index(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        usize::try_from(self.below(end)).unwrap_or(0)
    }

    pub(super) fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    pub(super) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    /// An index, each as often as its weight says.
    pub(super) fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        0
    }
}
