//! The operations that wait for the flight of their home.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_gate::{Operation, Resolved, Timestamp, Verdict};
use tokio::sync::oneshot;

use crate::store::StoreError;

/// How many operations may wait for one home.
const MOST_WAITING: usize = 16_384;

/// How many of them may be on one key: half, so that one key cannot take all places from the others.
const MOST_OF_A_KEY: usize = MOST_WAITING / 2;

/// How many keys one batch may have. The script blocks Redis for some µs for each of them.
const MOST_KEYS: usize = 2_048;

/// A home under one edition of a policy. The operations on its keys are decided together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HomeId {
    /// The address of the policy in memory. Waiting operations hold the policy, so the address stays its own.
    edition: usize,
    home: String,
}

impl HomeId {
    pub(super) fn of(resolved: &Resolved) -> Self {
        let edition = Arc::as_ptr(resolved.policy()).addr();
        Self { edition, home: resolved.home().to_owned() }
    }
}

/// An operation that waits.
pub(super) struct Waiting {
    pub(super) resolved: Resolved,
    pub(super) question: Question,
}

/// An operation, its time, and where its answer goes.
pub(super) struct Question {
    pub(super) now: Timestamp,
    pub(super) operation: Operation,
    pub(super) reply: oneshot::Sender<Result<Verdict, StoreError>>,
}

impl Question {
    /// Whether this is a request or a peek whose caller has gone. Other operations report what has
    /// happened, such as the end of a lease, so they are done even if nobody waits for the answer.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(self.operation, Operation::Decide(_) | Operation::Peek(_))
            && self.reply.is_closed()
    }

    pub(super) fn answer(self, answer: Result<Verdict, StoreError>) {
        let _ = self.reply.send(answer); // the caller may be gone
    }
}

/// The operations that wait, by home. A home has an entry for as long as a task serves it.
#[derive(Default)]
pub(super) struct Queues {
    homes: Mutex<HashMap<HomeId, Queue>>,
    overloaded: AtomicU64,
}

#[derive(Default)]
struct Queue {
    /// The operations in the order in which they came.
    waiting: Vec<Waiting>,
    of_each_key: HashMap<String, usize>,
    /// These are dropped once all operations that wait now are decided and written.
    when_written: Vec<oneshot::Sender<()>>,
}

/// The operations that one flight takes from the queue.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) operations: Vec<Waiting>,
    /// The flight drops these once it has written.
    pub(super) when_written: Vec<oneshot::Sender<()>>,
}

impl Queues {
    /// Adds an operation to the queue of its home. Returns `true` if no task serves the home yet: the
    /// caller must then start one.
    ///
    /// # Errors
    /// [`StoreError::Overloaded`] if too many operations wait for the home, or on the key.
    pub(super) fn join(&self, id: &HomeId, waiting: Waiting) -> Result<bool, StoreError> {
        let mut homes = self.homes();
        let Some(queue) = homes.get_mut(id) else {
            let mut queue = Queue::default();
            queue.push(waiting);
            homes.insert(id.clone(), queue);
            return Ok(true);
        };
        let of_key = queue.of_each_key.get(waiting.resolved.key()).copied().unwrap_or_default();
        for (found, most) in [(queue.waiting.len(), MOST_WAITING), (of_key, MOST_OF_A_KEY)] {
            if found >= most {
                self.overloaded.fetch_add(1, Ordering::Relaxed);
                let key = waiting.resolved.key().to_owned();
                return Err(StoreError::Overloaded { key, most });
            }
        }
        queue.push(waiting);
        Ok(false)
    }

    /// Takes the operations that the next flight decides. Returns `None`, and removes the home's entry,
    /// if nothing waits.
    pub(super) fn take_batch(&self, id: &HomeId) -> Option<Batch> {
        let mut homes = self.homes();
        let batch = homes.get_mut(id)?.take_batch();
        if batch.operations.is_empty() && batch.when_written.is_empty() {
            homes.remove(id);
            return None;
        }
        Some(batch)
    }

    /// Removes a home's entry. This drops its operations, and their callers get an error.
    pub(super) fn close(&self, id: &HomeId) {
        let closed = self.homes().remove(id);
        drop(closed); // after the lock on all homes is released
    }

    /// Resolves once all earlier operations on a home are decided and written. `None` if they already
    /// are.
    pub(super) fn when_written(&self, id: &HomeId) -> Option<oneshot::Receiver<()>> {
        let mut homes = self.homes();
        let (sender, written) = oneshot::channel();
        homes.get_mut(id)?.when_written.push(sender);
        Some(written)
    }

    /// How many operations found the queue full.
    pub(super) fn overloaded(&self) -> u64 {
        self.overloaded.load(Ordering::Relaxed)
    }

    fn homes(&self) -> MutexGuard<'_, HashMap<HomeId, Queue>> {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn push(&mut self, waiting: Waiting) {
        *self.of_each_key.entry(waiting.resolved.key().to_owned()).or_default() += 1;
        self.waiting.push(waiting);
    }

    fn take_batch(&mut self) -> Batch {
        if self.of_each_key.len() <= MOST_KEYS {
            let Self { waiting: operations, when_written, .. } = mem::take(self);
            return Batch { operations, when_written };
        }
        let mut keys = HashSet::new();
        let fits = |waiting: &&Waiting| {
            keys.insert(waiting.resolved.key().to_owned());
            keys.len() <= MOST_KEYS
        };
        let end = self.waiting.iter().take_while(fits).count();
        let rest = self.waiting.split_off(end);
        let operations = mem::take(&mut self.waiting);
        self.of_each_key.clear();
        rest.into_iter().for_each(|waiting| self.push(waiting));
        Batch { operations, when_written: Vec::new() } // the rest of the queue is not written yet
    }
}
