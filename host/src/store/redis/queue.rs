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

/// How many keys depart together: a script holds up Redis for some µs for each of them.
const MOST_KEYS: usize = 2_048;

/// The keys of a home under one edition of a policy. Their operations are decided together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HomeId {
    /// The address of the policy in memory. Waiting operations keep the policy there.
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
    /// Whether the caller of a request has gone. Other operations tell what has happened, such as the end
    /// of a lease, so they are done also if nobody waits for the answer.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(self.operation, Operation::Decide(_) | Operation::Peek(_))
            && self.reply.is_closed()
    }

    pub(super) fn answer(self, answer: Result<Verdict, StoreError>) {
        let _ = self.reply.send(answer); // the caller may be gone
    }
}

/// The operations that wait, by home. A home has an entry as long as a task serves it.
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
    /// These are dropped when all operations that wait now are decided and written.
    landings: Vec<oneshot::Sender<()>>,
}

/// The operations that leave the queue together.
#[derive(Default)]
pub(super) struct Departure {
    pub(super) operations: Vec<Waiting>,
    /// The flight drops these when it has written.
    pub(super) landings: Vec<oneshot::Sender<()>>,
}

impl Queues {
    /// Adds an operation to the queue of its home. Returns `true` if no task serves the home, and then
    /// the caller has to start one.
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

    /// Takes the operations that are decided next. `None` if nothing waits; the home's entry is gone then.
    pub(super) fn depart(&self, id: &HomeId) -> Option<Departure> {
        let mut homes = self.homes();
        let departure = homes.get_mut(id)?.depart();
        if departure.operations.is_empty() && departure.landings.is_empty() {
            homes.remove(id);
            return None;
        }
        Some(departure)
    }

    /// Removes a home's entry. Its operations are dropped, which their callers notice.
    pub(super) fn close(&self, id: &HomeId) {
        let closed = self.homes().remove(id);
        drop(closed); // not while all homes are locked
    }

    /// Ends when all operations on a home that came before are decided and written. `None` if they are
    /// already.
    pub(super) fn landing(&self, id: &HomeId) -> Option<oneshot::Receiver<()>> {
        let mut homes = self.homes();
        let (sender, landing) = oneshot::channel();
        homes.get_mut(id)?.landings.push(sender);
        Some(landing)
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
