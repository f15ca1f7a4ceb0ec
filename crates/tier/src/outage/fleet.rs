//! How many nodes share a store.

use alloc::collections::VecDeque;

use tidegate_gate::Micros;

/// How many nodes announced themselves in the store when it was last read.
///
/// A store that has lost its data counts only the nodes that came back to it. So the largest count of the last
/// [`LIFE`](Self::LIFE) holds, as long as a node that is gone is counted in the store. A node that has just begun knows no number
/// until the others must have counted it, which takes two times [`EVERY`](Self::EVERY): otherwise its share would be one too many.
///
/// ```
/// use tidegate_gate::Micros;
/// use tidegate_tier::outage::Fleet;
///
/// let second = |second: u64| Micros(second * 1_000_000);
/// let mut fleet = Fleet::default();
/// assert_eq!(fleet.nodes(), None);
/// fleet.handle_count(8, second(0));
/// assert_eq!(fleet.nodes(), None, "the others may not have counted it yet");
/// fleet.handle_count(8, second(4));
/// assert_eq!(fleet.nodes(), Some(8));
/// fleet.handle_count(1, second(6)); // the store has lost everything
/// assert_eq!(fleet.nodes(), Some(8));
/// fleet.handle_count(2, second(14));
/// assert_eq!(fleet.nodes(), Some(2));
/// ```
#[derive(Debug, Default)]
pub struct Fleet {
    /// When the node was first counted.
    began: Option<Micros>,
    is_counted: bool,
    counts: VecDeque<(Micros, u64)>,
}

impl Fleet {
    /// How often a node announces itself.
    pub const EVERY: Micros = Micros(2_000_000);

    /// How long the store counts a node that has announced itself.
    pub const LIFE: Micros = Micros(10_000_000);

    /// Takes the count that was read at `at`, by a clock that never goes back.
    pub fn handle_count(&mut self, nodes: u64, at: Micros) {
        let began = *self.began.get_or_insert(at);
        self.is_counted |= at.0.saturating_sub(began.0) >= Self::EVERY.0.saturating_mul(2);
        self.counts.retain(|(read, _)| at.0.saturating_sub(read.0) < Self::LIFE.0);
        while self.counts.len() >= MOST_COUNTS {
            self.counts.pop_front();
        }
        self.counts.push_back((at, nodes));
    }

    /// The number of nodes; `None` as long as others may not have counted this one.
    #[must_use]
    pub fn nodes(&self) -> Option<u64> {
        self.counts.iter().map(|(_, nodes)| *nodes).max().filter(|_| self.is_counted)
    }
}

/// Several times as many as are read in [`Fleet::LIFE`].
const MOST_COUNTS: usize = 32;
