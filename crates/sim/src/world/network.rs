//! Messages that are under way. A message is picked by an index, which counts modulo their number.

/// The most messages under way.
const MOST: usize = 64;

#[derive(Debug)]
pub(super) struct Network<M> {
    /// The messages, and when each was sent.
    under_way: Vec<(u64, M)>,
}

impl<M> Default for Network<M> {
    fn default() -> Self {
        Self { under_way: Vec::new() }
    }
}

impl<M: Clone> Network<M> {
    /// Sends a message. It is lost if too many are under way.
    pub(super) fn post(&mut self, now: u64, message: M) {
        if self.under_way.len() < MOST {
            self.under_way.push((now, message));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// A message arrives that may arrive, or is lost.
    pub(super) fn take(&mut self, index: usize, may: impl Fn(&M) -> bool) -> Option<M> {
        let index = index.checked_rem(self.under_way.len())?;
        may(&self.under_way[index].1).then(|| self.under_way.remove(index).1)
    }

    /// Another copy of a message is under way from now on, as old as the first.
    pub(super) fn repeat(&mut self, index: usize) {
        if let Some(index) = index.checked_rem(self.under_way.len()) {
            let (sent, message) = self.under_way[index].clone();
            self.post(sent, message);
        }
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut M> {
        let index = index.checked_rem(self.under_way.len())?;
        self.under_way.get_mut(index).map(|(_, message)| message)
    }

    /// Messages that were sent before this time are lost.
    pub(super) fn lose_older(&mut self, oldest: u64) {
        self.under_way.retain(|(sent, _)| *sent >= oldest);
    }

    /// All other messages are lost.
    pub(super) fn keep(&mut self, keeps: impl Fn(&M) -> bool) {
        self.under_way.retain(|(_, message)| keeps(message));
    }
}

/// One of these things.
pub(super) fn nth<T: Copy>(of: &[T], index: usize) -> Option<T> {
    index.checked_rem(of.len()).and_then(|index| of.get(index).copied())
}
