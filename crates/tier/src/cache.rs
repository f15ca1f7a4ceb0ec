//! The part of a node that answers without asking the authority, as far as the policy allows it.
//!
//! A node repeats refusals that it has heard ([`Policy::remember`](tidegate_gate::Policy::remember): a negative cache),
//! spends units that it took in advance ([`Policy::local`](tidegate_gate::Policy::local): prefetched quota), and
//! suppresses by the factor that it heard last ([`Policy::reports`](tidegate_gate::Policy::reports)). All three are off
//! by default. Listed keys are always answered.
//!
//! A `NodeCache` does no I/O. Its driver takes these steps:
//!
//! 1. [`NodeCache::ask`] takes an operation, and answers it or says what to ask the authority: a [`NodeStep`].
//! 2. [`NodeCache::poll_transmit`] says what the node itself has to ask the authority at [`NodeCache::poll_timeout`], for a
//!    driver with a timer.
//! 3. [`NodeCache::handle_verdict`] takes each verdict of the authority, with the time at which the driver sent the question. A
//!    question that failed needs no call.
//!
//! Times called `at` and `sent` are those of one clock that never goes back and runs as fast as the authority's. Its
//! zero does not matter. Time counts from `sent`, because the authority has decided later than that.
//! A clock that is slower than the authority's by some share makes every time below longer by this share.
//!
//! **Refusals.** A refusal that the node repeats is one that the authority would give at this moment, as long as units
//! come back with time alone and one clock decides on the key. Otherwise it may last longer than the authority's by at
//! most `remember`, or by the difference between the deciding clocks. An operation of this node that gives back or
//! clears anything of a key forgets the refusals of this key. A request that costs more than a refused one, or names
//! another lease, is refused too, with the wait of the refused one, which may be too short for it. `retry_after` and
//! `reset_after` count down; `at` plus `retry_after` stays the time of the first verdict. `remaining` and the refusing
//! limits are those of that verdict. If reservations end meanwhile, `reset_after` may be longer than the authority's.
//!
//! **Units.** A node asks for units of a key after [`OFTEN`] requests within the time of the budget. It spends them
//! before that time has passed since it sent the question, and gives the rest back when it asks again. So every unit is
//! spent within the time of the budget after it was taken from the limits, and in any span of length L all nodes
//! together grant at most what the limits grant in L and this time. Units that are forgotten are lost. A grant out of
//! them has the time of their grant as [`Verdict::at`](tidegate_gate::Verdict::at), so that a refund returns units
//! to the window that counted them. Its `remaining` includes the units that this node holds.
//!
//! **Reports.** A node asks for a request if it has not heard a factor in an answer to a question of the last 24 s, or
//! if the cost is more than the limit of a part of 6 s. It decides on all other requests as
//! [`reporter`](tidegate_gate::reporter) does, with the cap: it admits at most the limit of a part in each part, and
//! refuses the rest by the factor. It reports at most every 2 s what it was offered.
//!
//! - The parts are those of the key's clock. The node knows this clock from the answers, to within the time that an
//!   answer took; within that its own wall clock decides. So a wall clock that is wrong neither moves units into
//!   another part nor makes reports too old to count. If all clocks are right, an account that stays within its limit
//!   in every part is never suppressed.
//! - Units are reported at most once. A report whose fate is unknown is not repeated: the authority then sees less.
//!   A repeated or late answer replaces no newer one.
//! - A key is not forgotten before its units are reported. While all keys have such units, the node asks for each
//!   request on a further key. Without a timer, the units before a pause of all requests to the node are reported after
//!   it, and count for nothing if the pause lasts more than three parts.
//! - A refund goes to the authority at once, perhaps before the units that it gives back; it then may come to nothing.
//!   A reset makes the node forget the units that it has not reported, and a reset or a block makes it ask again.
//! - An answer has the numbers of a decision of the authority, as far as this node knows the load: it does not know
//!   what other nodes were offered since the last answer. Of a blocked key it does not know the end of the block:
//!   `retry_after` is the end of the part.
//!
//! ```
//! use std::sync::Arc;
//! use tidegate_gate::{KeyHasher, Micros, Operation, Policy, Resolved, Table, Timestamp};
//! use tidegate_tier::cache::{VerdictOf, NodeCache, Options};
//!
//! let policy = "remember = '10s'\nlimits = [{ algorithm = 'fixed_window', limit = 1, period = '1m' }]";
//! let policy = Arc::new(Policy::parse("login", policy).unwrap());
//! let resolved = Resolved::new(&policy, "user:42").unwrap();
//! let mut authority = Table::new(1 << 20, KeyHasher::new(0));
//! let mut cache = NodeCache::new(Options::default());
//! let mut asked = 0;
//!
//! for second in [0, 1, 2, 10, 11, 60] {
//!     let (now, at) = (Timestamp(second * 1_000_000), Micros(second * 1_000_000));
//!     let operation = Operation::from(1);
//!     if let Some(answer) = cache.ask(&resolved, &operation, now, at).answer {
//!         assert_eq!(answer.decision().retry_after(), Micros(60_000_000 - at.0));
//!         continue;
//!     }
//!     asked += 1;
//!     let verdict = authority.ask(&resolved, now, &operation).unwrap();
//!     cache.handle_verdict(&VerdictOf { resolved: &resolved, operation: &operation, verdict: &verdict, sent: at, at });
//! }
//! assert_eq!(asked, 4, "the node repeated the refusal at 2 s and 10 s");
//! ```

mod ask;
mod entry;
mod held;
mod refusals;
mod reporter;
mod reports;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::iter;

use hashbrown::HashTable;
use tidegate_gate::{KeyHasher, Limits, Micros, Operation, Resolved, Rule, Timestamp, never};

use ask::Next;
pub use ask::{Counts, Kind, LocalVerdict, NodeStep, Options, Transmit, VerdictOf};
use entry::{Entry, hash, part, relaxes};
pub use held::OFTEN;
use reporter::master;

/// What a node remembers of its keys. The [module](self) says how to drive it.
#[derive(Debug)]
pub struct NodeCache {
    options: Options,
    entries: HashTable<Entry>,
    hasher: KeyHasher,
    /// Where the next search for keys to forget begins.
    clock_hand: usize,
    /// The last time at which units came back to a key that is forgotten. Its refusals may be under way.
    relaxed: Option<Micros>,
    due: reports::Due,
}

impl NodeCache {
    /// A node that remembers nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let hasher = KeyHasher::new(options.seed);
        let due = reports::Due::default();
        Self { options, entries: HashTable::new(), hasher, clock_hand: 0, relaxed: None, due }
    }

    /// Takes an operation at `at`, and says what to do about it. `now` is the time of the node's wall clock.
    #[inline]
    pub fn ask(
        &mut self,
        resolved: &Resolved,
        operation: &Operation,
        now: Timestamp,
        at: Micros,
    ) -> NodeStep {
        let (answer, budget) = match self.answer_or_forward(resolved, operation, now, at) {
            Next::Answer(answer) => (Some(answer), None),
            Next::Forward { budget } => (None, budget),
        };
        let budget = budget.map(|operation| Transmit { resolved: resolved.clone(), operation });
        let due = iter::from_fn(|| self.poll_transmit(now, at));
        NodeStep { answer, own: budget.into_iter().chain(due).collect() }
    }

    #[inline]
    fn answer_or_forward(
        &mut self,
        resolved: &Resolved,
        operation: &Operation,
        now: Timestamp,
        at: Micros,
    ) -> Next {
        let Some(limits) = resolved.limits() else { return listed(resolved, now) };
        let (policy, node) = (resolved.policy(), self.options.node);
        if resolved.idempotency().is_some() {
            return self.forward(resolved, limits, operation, at); // only the authority knows whether it is a repeat
        }
        if let Some(master) = master(resolved, limits) {
            return self.ask_as_reporter(resolved, limits, master, (operation, now, at));
        }
        let asks_often = policy.local().is_some();
        let reserves = matches!(operation, Operation::Decide(request) if request.reserves());
        // only the authority knows whether the key has the reservation already, or a place for it
        if reserves || (policy.remember().is_none() && !asks_often) {
            return Next::Forward { budget: None };
        }
        let changes = relaxes(operation);
        let entry = if changes || (asks_often && matches!(operation, Operation::Decide(_))) {
            self.find_or_add(resolved, limits)
        } else {
            self.find(resolved, limits)
        };
        match (entry, operation) {
            (Some(entry), Operation::Decide(request)) => entry.decide(request, at, node),
            (Some(entry), Operation::Peek(request)) => entry.peek(request, at),
            (Some(entry), _) if changes => {
                entry.relax(operation, at);
                Next::Forward { budget: None }
            }
            _ => Next::Forward { budget: None },
        }
    }

    /// Takes the authority's verdict on an operation.
    pub fn handle_verdict(&mut self, heard: &VerdictOf<'_>) {
        let resolved = heard.resolved;
        let Some(limits) = resolved.limits() else { return };
        if resolved.idempotency().is_some() {
            return self.hear_relaxed(limits, heard); // a repeat gets a verdict of an earlier time
        }
        if let Some(master) = master(resolved, limits) {
            return self.hear_as_reporter(limits, master, heard);
        }
        let (remember, local) = (resolved.policy().remember(), resolved.policy().local());
        self.hear_relaxed(limits, heard);
        match heard.operation {
            // a peek starts nothing: a bucket that starts empty fills from the first decision on
            Operation::Decide(request) if !request.reserves() => {
                if let Some(remember) = remember
                    && let Some(refusal) = refusals::proven(limits, request, heard, remember)
                    && let Some(entry) = self.find_or_add(resolved, limits)
                {
                    entry.remember(refusal, heard.at);
                }
            }
            Operation::Budget(budget) if local.is_some() && budget.holder == self.options.node => {
                if let Some(entry) = self.find(resolved, limits) {
                    entry.take(heard);
                }
            }
            _ => {}
        }
    }

    /// Asks the authority. Refusals of the key may be untrue from now on if the operation gives something back.
    fn forward(
        &mut self,
        resolved: &Resolved,
        limits: &Limits,
        operation: &Operation,
        at: Micros,
    ) -> Next {
        if relaxes(operation)
            && let Some(entry) = self.find(resolved, limits)
        {
            entry.relax(operation, at);
        }
        Next::Forward { budget: None }
    }

    /// What was asked before an operation that gives something back may have been decided before the operation.
    fn hear_relaxed(&mut self, limits: &Limits, heard: &VerdictOf<'_>) {
        if relaxes(heard.operation) {
            match self.find(heard.resolved, limits) {
                Some(entry) => entry.relax(heard.operation, heard.at),
                None => self.relaxed = self.relaxed.max(Some(heard.at)),
            }
        }
    }

    /// What a node that stops must ask the authority, so that the units that it holds are not lost. Ask it once all requests are
    /// answered, and then as long as [`waits_for_units`](Self::waits_for_units).
    #[must_use]
    pub fn give_back(&mut self, at: Micros) -> Vec<Transmit> {
        let node = self.options.node;
        self.entries.iter_mut().filter_map(|entry| entry.give_back(node, at)).collect()
    }

    /// Whether units that the node has sent for may still arrive.
    #[must_use]
    pub fn waits_for_units(&self, at: Micros) -> bool {
        self.entries.iter().any(|entry| entry.waits_for_units(at))
    }

    /// The number of keys of which the node remembers something.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the node remembers nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    fn find(&mut self, resolved: &Resolved, limits: &Limits) -> Option<&mut Entry> {
        let part = part(resolved, limits);
        let hash = hash(&self.hasher, limits, part);
        self.entries.find_mut(hash, |entry| entry.is(limits, part)).map(Entry::used)
    }

    /// The key's entry; `None` if the node may not remember any key.
    fn find_or_add(&mut self, resolved: &Resolved, limits: &Limits) -> Option<&mut Entry> {
        let Self { entries, hasher, clock_hand, options, relaxed, .. } = self;
        let part = part(resolved, limits);
        let hash = hash(hasher, limits, part);
        let absent = match entries.find_entry(hash, |entry| entry.is(limits, part)) {
            Ok(found) => return Some(found.into_mut().used()),
            Err(absent) => absent,
        };
        let entries = absent.into_table();
        make_room(entries, (clock_hand, relaxed), options.most_keys)?;
        let entry = Entry::new(resolved, limits, *relaxed);
        let rehash = |entry: &Entry| entry.hash(hasher);
        Some(entries.insert_unique(hash, entry, rehash).into_mut())
    }
}

#[cold]
fn listed(resolved: &Resolved, now: Timestamp) -> Next {
    match resolved.rule() {
        Rule::Listed(decision) => Next::Answer(LocalVerdict::listed(now, decision)),
        Rule::Limited(..) => Next::Forward { budget: None },
    }
}

/// Forgets a key if there are already as many as there may be. A key that was used again since
/// the last search is passed over once, and a key with units to report always. `None` if there may be no keys, or if
/// the search passes over too many.
fn make_room(
    entries: &mut HashTable<Entry>,
    (clock_hand, relaxed): (&mut usize, &mut Option<Micros>),
    most: usize,
) -> Option<()> {
    let mut steps = entries.num_buckets().saturating_mul(2);
    let mut unreported = 0_u32;
    while entries.len() >= most {
        steps = steps.checked_sub(1)?;
        *clock_hand = clock_hand
            .saturating_add(1)
            .checked_rem(entries.num_buckets())
            .unwrap_or_else(|| never(0));
        if let Ok(mut entry) = entries.get_bucket_entry(*clock_hand) {
            if entry.get().has_unreported() {
                unreported = unreported.saturating_add(1);
                if unreported > MOST_UNREPORTED {
                    return None;
                }
            } else if !entry.get_mut().pass_over() {
                let (entry, _) = entry.remove();
                *relaxed = (*relaxed).max(entry.relaxed());
            }
        }
    }
    Some(())
}

/// A search for a key to forget ends after this many keys with units to report.
const MOST_UNREPORTED: u32 = 64;
