//! The operations that wait for their home.

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

/// How many of them may be on one key: half, so that no key takes all places from the others.
const MOST_OF_A_KEY: usize = MOST_WAITING / 2;

/// How many keys are decided together: a script holds up a Redis for some µs for each.
const MOST_KEYS: usize = 2_048;

/// What is decided together: the keys of a home, under one edition of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HomeId {
    /// Where the policy is in memory. Those that wait hold it there.
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

/// What is asked, and by whom.
pub(super) struct Question {
    pub(super) now: Timestamp,
    pub(super) operation: Operation,
    pub(super) reply: oneshot::Sender<Result<Verdict, StoreError>>,
}

impl Question {
    /// Whether nobody waits for a grant any more. What has happened already, such as the end of a
    /// lease, is taken down also if nobody waits for an answer.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(self.operation, Operation::Decide(_) | Operation::Peek(_))
            && self.reply.is_closed()
    }

    pub(super) fn answer(self, answer: Result<Verdict, StoreError>) {
        let _ = self.reply.send(answer); // the caller may be gone
    }
}

/// What waits for each home. A home has an entry as long as a task serves it.
#[derive(Default)]
pub(super) struct Queues {
    homes: Mutex<HashMap<HomeId, Queue>>,
    overloaded: AtomicU64,
}

#[derive(Default)]
struct Queue {
    /// In the order in which they came.
    waiting: Vec<Waiting>,
    of_each_key: HashMap<String, usize>,
    /// Those that wait until all of this is decided and written.
    landings: Vec<oneshot::Sender<()>>,
}

/// What leaves the queue together.
#[derive(Default)]
pub(super) struct Departure {
    pub(super) operations: Vec<Waiting>,
    /// To be dropped when the operations are written.
    pub(super) landings: Vec<oneshot::Sender<()>>,
}

impl Queues {
    /// Lines up. `true`: no task serves this home, so the caller has to start one.
    ///
    /// # Errors
    /// [`StoreError::Overloaded`] if there is no place.
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

    /// What is to be decided next; `None` if nothing waits, and then the home's entry is gone.
    pub(super) fn depart(&self, id: &HomeId) -> Option<Departure> {
        let mut homes = self.homes();
        let departure = homes.get_mut(id)?.depart();
        if departure.operations.is_empty() && departure.landings.is_empty() {
            homes.remove(id);
            return None;
        }
        Some(departure)
    }

    /// Takes a home's entry away, and tells those that wait for it by dropping them.
    pub(super) fn close(&self, id: &HomeId) {
        let closed = self.homes().remove(id);
        drop(closed); // not while all homes are locked
    }

    /// Ends when all operations on a home that came before are decided and written; `None` if they
    /// are.
    pub(super) fn landing(&self, id: &HomeId) -> Option<oneshot::Receiver<()>> {
        let mut homes = self.homes();
        let (sender, landing) = oneshot::channel();
        homes.get_mut(id)?.landings.push(sender);
        Some(landing)
    }

    /// How many operations found no place.
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

    fn depart(&mut self) -> Departure {
        if self.of_each_key.len() <= MOST_KEYS {
            let Self { waiting: operations, landings, .. } = mem::take(self);
            return Departure { operations, landings };
        }
        let mut keys = HashSet::new();
        let departs = |waiting: &&Waiting| {
            keys.insert(waiting.resolved.key().to_owned());
            keys.len() <= MOST_KEYS
        };
        let end = self.waiting.iter().take_while(departs).count();
        let rest = self.waiting.split_off(end);
        let operations = mem::take(&mut self.waiting);
        self.of_each_key.clear();
        rest.into_iter().for_each(|waiting| self.push(waiting));
        Departure { operations, landings: Vec::new() }
    }
}
