//! The authority decides operations on partitions whose states are in a store that has other writers.
//!
//! An authority does no I/O. Its driver takes these steps, in any order and at any time:
//!
//! 1. [`Authority::ask`] takes an operation and a token, which the answer carries back.
//! 2. [`Authority::poll_swap`] decides what waits and returns a swap of some partitions.
//!    [`Authority::records`] lists the records of the swap: the store must compare each record with the bytes
//!    that the authority expects, and write the new bytes of a partition only if all its records are as expected.
//! 3. [`Authority::handle`] takes the outcome of each partition of the swap. Call [`Authority::poll_swap`] soon after
//!    it: operations that must be done again are decided in `handle` and sent with the next swap.
//! 4. [`Authority::poll_answer`] returns the answers.
//!
//! Nothing is answered before the store has confirmed that the states were as expected. So several authorities
//! decide on one key as if one after another had decided. The authority remembers the bytes last seen, so a
//! decision takes one call to the store; it takes one more each time another writer came first.
//!
//! An authority that is the [only writer](Options::is_only_writer) first asks for the bytes that it does not know,
//! by a swap that writes nothing for them. Then its store need not compare. It answers refusals and peeks without a
//! swap, and grants too if the policy lets it store states ahead. Such an authority loses what it did not store
//! if it dies: at most the units that were stored ahead, never a grant. It loses the same if it forgets a partition.
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::Arc;
//! use tidegate_gate::{Micros, Policy, Resolved, Timestamp};
//! use tidegate_tier::authority::{Queued, Authority, Options, SwapOutcome};
//!
//! let policy = "limits = [{ algorithm = 'fixed_window', limit = 2, period = '1m' }]";
//! let policy = Arc::new(Policy::parse("login", policy).unwrap());
//! let mut store: HashMap<String, Vec<u8>> = HashMap::new();
//! let mut authority: Authority<u32, &str> = Authority::new(Options::default());
//!
//! for token in 0..3 {
//!     let resolved = Resolved::new(&policy, "user:42").unwrap();
//!     let asked = Queued { resolved, now: Timestamp(7), operation: 1.into(), at: Micros(0), token };
//!     authority.ask(asked);
//! }
//! while let Some(swap) = authority.poll_swap((None, Micros(0)), |_| false) {
//!     let mut outcomes = Vec::new();
//!     for partition in 0..swap.len() {
//!         let is_as_expected =
//!             |(name, found): &(String, Option<Vec<u8>>)| store.get(name) == found.as_ref();
//!         let records: Vec<_> = authority.records(&swap, partition).collect();
//!         let expected: Vec<_> = records
//!             .iter()
//!             .map(|record| (record.name.to_owned(), record.found.map(<[u8]>::to_vec)))
//!             .collect();
//!         outcomes.push(if expected.iter().all(is_as_expected) {
//!             for record in &records {
//!                 if let Some(bytes) = record.becomes {
//!                     store.insert(record.name.into(), bytes.into());
//!                 }
//!             }
//!             SwapOutcome::Swapped
//!         } else {
//!             SwapOutcome::Found(expected.iter().map(|(name, _)| store.get(name).cloned()).collect())
//!         });
//!     }
//!     authority.handle(swap, outcomes, (None, Micros(0)));
//! }
//! let mut allowed = Vec::new();
//! while let Some((token, answer, _)) = authority.poll_answer() {
//!     allowed.push((token, answer.unwrap().decision.is_allowed()));
//! }
//! assert_eq!(allowed, [(0, true), (1, true), (2, false)]);
//! assert_eq!(store.len(), 1, "the three were decided together");
//! ```

mod ask;
mod partition;
mod partitions;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;
use core::num::NonZeroU64;

use tidegate_gate::{Micros, Rule, Timestamp, Used, Verdict};

use crate::count::less;
use crate::outage::{Outage, Shares, Standing};
use ask::{Completion, OnFailure, expires_at};
pub use ask::{Failure, Options, Queued, Swap, SwapEntry, SwapOutcome};
use partitions::{Left, Partitions};

/// Decides the operations on the partitions of one store. The [module](self) says how to drive it.
#[derive(Debug)]
pub struct Authority<T, E> {
    options: Options,
    partitions: Partitions<T>,
    /// The partitions on which operations wait and no swap is under way.
    ready: VecDeque<usize>,
    answers: VecDeque<Completion<T, E>>,
    /// The number of operations without an answer.
    waiting: usize,
    overloaded: u64,
    shares: Shares,
    standing: Standing,
    /// Why the store does not answer; `None` if it does.
    away: Option<E>,
    /// When it last answered.
    heard_at: Micros,
}

impl<T, E: Clone> Authority<T, E> {
    /// An authority that remembers nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            partitions: Partitions::new(&options),
            options,
            ready: VecDeque::new(),
            answers: VecDeque::new(),
            waiting: 0,
            overloaded: 0,
            shares: match options.shares {
                Some(lend) => Shares::Process(lend),
                None => Shares::Own(Outage::new(Outage::MOST_BYTES)),
            },
            standing: Standing { store: options.store, ..Standing::default() },
            away: None,
            heard_at: Micros::ZERO,
        }
    }

    /// Takes an operation. Operations on one key are decided in this order. If too many operations wait, the
    /// answer is [`Failure::Overloaded`].
    pub fn ask(&mut self, asked: Queued<T>) {
        self.waiting = self.waiting.saturating_add(1);
        if let Rule::Listed(decision) = asked.resolved.rule() {
            let answer = Ok(Verdict::listed(asked.now, decision));
            self.answers.push_back((asked.token, answer, None));
            return;
        }
        if let Some(error) = &self.away {
            let is_node = !self.options.is_only_writer;
            let shares = is_node.then_some((&mut self.shares, self.standing));
            let mut on_failure = OnFailure { shares, now: None };
            let known = self.partitions.last_seen(&asked.resolved);
            let failure = Failure::Store(error.clone());
            let (answer, cause) = on_failure.answer(&asked, known, &failure);
            self.answers.push_back((asked.token, answer, cause));
            return;
        }
        let most = self.options.most_waiting;
        let has_room = self.waiting <= most;
        let woken = if has_room { self.partitions.wake(&asked.resolved) } else { None };
        let pushed = match woken {
            Some((partition, id, wakes)) => partition.push(asked).map(|()| wakes.then_some(id)),
            None => Err((asked.token, most)),
        };
        match pushed {
            Ok(ready) => self.ready.extend(ready),
            Err((token, most)) => {
                self.overloaded = self.overloaded.saturating_add(1);
                self.answers.push_back((token, Err(Failure::Overloaded { most }), None));
            }
        }
    }

    /// Decides what waits for some partitions, and returns the partitions whose states must now be compared and
    /// written. `None` if nothing waits that is not under way.
    ///
    /// An operation that has waited for more than half the period of its limits is decided at `now`; without
    /// `now` the time of the operation always counts. `at` is the time by the clock of [`Queued::at`]. An
    /// operation whose caller `is_gone` is left out if it asks for a grant or only looks.
    pub fn poll_swap(
        &mut self,
        (now, at): (Option<Timestamp>, Micros),
        is_gone: impl Fn(&T) -> bool,
    ) -> Option<Swap> {
        let (mut partitions, mut records) = (Vec::new(), 0_usize);
        let too_late = Micros(at.0.saturating_sub(self.options.most_wait.0));
        while (partitions.is_empty() || records < self.options.most_records)
            && let Some(id) = self.ready.pop_front()
        {
            let Some(partition) = self.partitions.get_mut(id) else { continue };
            let gone = partition.decide((now, too_late), &is_gone, &mut self.answers);
            self.waiting = less(self.waiting, gone);
            if partition.needs_swap() {
                records = records.saturating_add(partition.records().count());
                partitions.push(id);
            } else {
                self.settle(id);
            }
        }
        (!partitions.is_empty()).then_some(Swap { partitions, at })
    }

    /// The records of one partition of a swap: what the store must hold, and what it must write.
    pub fn records<'s>(
        &'s mut self,
        swap: &Swap,
        partition: usize,
    ) -> impl Iterator<Item = SwapEntry<'s>> {
        let (ttl_margin, at) = (self.options.ttl_margin, swap.at);
        let partition = swap.partitions.get(partition).and_then(|id| self.partitions.get_mut(*id));
        let used = partition.into_iter().flat_map(partition::Partition::records);
        used.map(move |used| SwapEntry::of(used, ttl_margin, at))
    }

    /// Takes the outcome of each partition of a swap, in their order. `now` and `at` are the times as in
    /// [`poll_swap`](Self::poll_swap).
    pub fn handle(
        &mut self,
        swap: Swap,
        outcomes: impl IntoIterator<Item = SwapOutcome<E>>,
        (now, at): (Option<Timestamp>, Micros),
    ) {
        let ttl_margin = self.options.ttl_margin;
        let is_node = !self.options.is_only_writer;
        for (id, outcome) in swap.partitions.into_iter().zip(outcomes) {
            if !matches!(outcome, SwapOutcome::Failed(_)) {
                self.standing.has_answered = true;
                self.heard_at = self.heard_at.max(at);
            }
            let shares = is_node.then_some((&mut self.shares, self.standing));
            let mut on_failure = OnFailure { shares, now };
            let Some(partition) = self.partitions.get_mut(id) else { continue };
            match outcome {
                SwapOutcome::Swapped => {
                    let expires_at = |used: &Used<'_>| expires_at(used, ttl_margin, swap.at);
                    partition.swapped(expires_at, now, &mut self.answers);
                }
                SwapOutcome::Found(found) => {
                    if partition.lost_for(at) > self.options.patience {
                        let failure = (now, &Failure::Contended);
                        partition.give_up(&found, failure, (&mut on_failure, &mut self.answers));
                    } else {
                        partition.found(found, now, &mut self.answers);
                    }
                }
                SwapOutcome::Refused(found, error) => {
                    let failure = (now, &Failure::Store(error));
                    partition.give_up(&found, failure, (&mut on_failure, &mut self.answers));
                }
                SwapOutcome::Unreadable(error) => {
                    on_failure.shares = None;
                    let answers = (&mut on_failure, &mut self.answers);
                    partition.failed(&Failure::Store(error), answers);
                }
                SwapOutcome::Failed(error) => {
                    let answers = (&mut on_failure, &mut self.answers);
                    partition.failed(&Failure::Store(error), answers);
                }
            }
            self.settle(id);
        }
    }

    /// Fails all operations that wait and are not under way: for a store that is known not to answer.
    pub fn fail_waiting(&mut self, error: &E, now: Option<Timestamp>) {
        let is_node = !self.options.is_only_writer;
        for id in mem::take(&mut self.ready) {
            if let Some(partition) = self.partitions.get_mut(id) {
                let shares = is_node.then_some((&mut self.shares, self.standing));
                let answers = (&mut OnFailure { shares, now }, &mut self.answers);
                partition.fail_waiting(&Failure::Store(error.clone()), answers);
            }
            self.settle(id);
        }
    }

    /// Takes the number of nodes that were last seen on the store: see [`outage`](crate::outage).
    pub fn handle_nodes(&mut self, nodes: u64) {
        self.standing.nodes = NonZeroU64::new(nodes).or(self.standing.nodes);
    }

    /// The store did not answer what was asked at `asked_at`, because of `error`. It is away if it has answered nothing since then.
    /// Until [`handle_back`](Self::handle_back), every operation is then answered at once: by the node's share, or else by the error.
    /// Returns whether the store is away, so that the driver must find out when it answers again.
    pub fn handle_away(&mut self, error: E, asked_at: Micros) -> bool {
        if asked_at >= self.heard_at {
            self.away = Some(error);
        }
        self.away.is_some()
    }

    /// The store answers again.
    pub fn handle_back(&mut self, at: Micros) {
        (self.away, self.heard_at) = (None, at);
    }

    /// The next answer: its token, the answer, and why the store did not give it if the node has decided by its share.
    pub fn poll_answer(&mut self) -> Option<Completion<T, E>> {
        let answer = self.answers.pop_front()?;
        self.waiting = less(self.waiting, 1);
        Some(answer)
    }

    /// The number of operations without an answer.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// The number of operations that got [`Failure::Overloaded`].
    #[must_use]
    pub const fn overloaded(&self) -> u64 {
        self.overloaded
    }

    /// Changes [`Options::remembered`], for instance because other authorities share the memory.
    pub fn remember_at_most(&mut self, bytes: usize) {
        self.partitions.remember_at_most(bytes);
    }

    /// The bytes of states that are remembered of partitions on which nothing waits.
    #[must_use]
    pub const fn remembered(&self) -> usize {
        self.partitions.remembered()
    }

    /// A partition is ready again if operations are left, and idle otherwise. Operations that are decided already
    /// must not wait for others, because states and times grow old.
    fn settle(&mut self, id: usize) {
        match self.partitions.settle(id) {
            Left::Decided => self.ready.push_front(id),
            Left::Waiting => self.ready.push_back(id),
            Left::Nothing => {}
        }
    }
}
