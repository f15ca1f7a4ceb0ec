//! What an authority is asked, which records the store then compares and writes, and what comes of both.

use alloc::vec::Vec;

use tidegate_gate::{
    Limits, Micros, Operation, Resolved, Timestamp, Transaction, TransactionError, Used, Verdict,
};

use crate::outage::{OfProcess, Shares, Standing};

/// How an authority uses memory and time.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The most bytes of states that the authority remembers of partitions on which nothing waits.
    pub remembered: usize,
    /// The most operations that wait altogether.
    pub most_waiting: usize,
    /// Whether nobody else writes to the store. The authority then answers what depends on no write without a
    /// swap, and stores states before it grants them, as far as
    /// [`Policy::persist_ahead`](tidegate_gate::Policy::persist_ahead) allows.
    pub is_only_writer: bool,
    /// A swap takes no more partitions once it has this many records.
    pub most_records: usize,
    /// The largest difference between any two clocks of the nodes and of the store. States are kept this much
    /// longer, because they expire by the clock of the store.
    pub ttl_margin: Micros,
    /// The number of the store among those of the process.
    pub store: u64,
    /// The shares of the process; `None` if the authority has its own. An only writer is no node.
    pub shares: Option<OfProcess>,
    /// How long other writers may come first, by the time that [`Authority::handle`](super::Authority::handle) is given. Then the
    /// operations of the partition get [`Failure::Contended`].
    pub patience: Micros,
    /// How long an operation may wait before it is begun, by the clock of [`Queued::at`]. Then it gets
    /// [`Failure::TooLate`].
    pub most_wait: Micros,
    /// The seed of the hash table of the partitions. It should differ from process to process, so that callers
    /// cannot choose keys that collide.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            remembered: 64 << 20,
            most_waiting: 1 << 17,
            is_only_writer: false,
            most_records: 64,
            ttl_margin: Micros(10_000_000),
            store: 0,
            shares: None,
            patience: Micros(1_000_000),
            most_wait: Micros(10_000_000),
            seed: 0,
        }
    }
}

/// An operation that waits for its answer: at the authority, or on a node as [`Outgoing`](crate::wire::Outgoing).
#[derive(Clone, Debug)]
pub struct Queued<T, N = Timestamp> {
    /// The key.
    pub resolved: Resolved,
    /// The time of the operation.
    pub now: N,
    /// When it was asked, by a clock that never goes back.
    pub at: Micros,
    /// The operation.
    pub operation: Operation,
    /// What the answer carries back.
    pub token: T,
}

impl<T> Queued<T> {
    /// The time at which the operation is decided: its own, unless that is older than half the period of its
    /// limits. An older time could turn a key's clock back.
    pub(super) fn time(&self, now: Option<Timestamp>) -> Timestamp {
        let now = now.unwrap_or(self.now);
        let period = self.resolved.limits().map_or(Micros::ZERO, Limits::period);
        let is_old = now.saturating_since(self.now).0 > period.0.div_euclid(2);
        if is_old { now } else { self.now }
    }
}

/// Why an operation was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure<E> {
    /// The states or the limits do not allow the operation. Nothing has changed.
    Transaction(TransactionError),
    /// Too many operations wait, so this one was not begun.
    Overloaded {
        /// The most operations that may wait: altogether, for the partition, or on the key.
        most: usize,
    },
    /// It waited too long for other operations, so it was not begun.
    TooLate,
    /// Other writers came first for longer than the authority's patience. Nothing was granted.
    Contended,
    /// The store failed. A grant may have been written nevertheless.
    Store(E),
}

/// The token of an operation, its answer, and why the store did not give it if the node has decided by its share.
pub(super) type Completion<T, E> = (T, Result<Verdict, Failure<E>>, Option<Failure<E>>);

/// Answers operations that the store has not done.
pub(super) struct OnFailure<'a> {
    /// The shares of the node, and what it knows; `None` for an only writer, which is no node.
    pub(super) shares: Option<(&'a mut Shares, Standing)>,
    /// The time of the driver's clock.
    pub(super) now: Option<Timestamp>,
}

impl OnFailure<'_> {
    /// The verdict of the node's share and why it was asked, or else the failure. `known` knows what the store last held.
    pub(super) fn answer<T, E: Clone>(
        &mut self,
        asked: &Queued<T>,
        known: Option<&Transaction>,
        failure: &Failure<E>,
    ) -> (Result<Verdict, Failure<E>>, Option<Failure<E>>) {
        let Queued { resolved, operation, .. } = asked;
        let now = asked.time(self.now);
        let share = self.shares.as_mut().and_then(|(shares, standing)| {
            shares.decide(*standing, resolved, now, operation, known)
        });
        match share {
            Some(verdict) => (verdict.map_err(Failure::Transaction), Some(failure.clone())),
            None => (Err(failure.clone()), None),
        }
    }
}

/// Some partitions whose records are to be compared and written.
#[derive(Debug)]
pub struct Swap {
    pub(super) partitions: Vec<usize>,
    /// When it was made.
    pub(super) at: Micros,
}

/// A record of a swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapEntry<'s> {
    /// The name of the record in the store.
    pub name: &'s str,
    /// The bytes that the store must hold; `None` if it must hold nothing.
    pub found: Option<&'s [u8]>,
    /// Whether the authority has read or written these bytes. The store of an only writer need not compare them.
    pub is_known: bool,
    /// The bytes to write; `None` for no change.
    pub becomes: Option<&'s [u8]>,
    /// How long the store must keep the record from now on at least; `None` if it keeps the record that long
    /// already. The store must never shorten the time that it keeps a record.
    pub ttl: Option<Micros>,
}

/// What became of the records of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwapOutcome<E> {
    /// All records were as expected, and the writes are stored.
    Swapped,
    /// These bytes were found, at least one of them not as expected. Nothing was written. One element for
    /// each of [`Authority::records`](super::Authority::records), in their order.
    Found(Vec<Option<Vec<u8>>>),
    /// These bytes were found, and the store refused to write. Nothing was written. What the bytes refuse
    /// stays refused.
    Refused(Vec<Option<Vec<u8>>>, E),
    /// The store answered that a record holds something else than bytes. Nothing was written. This is no outage: a node does not
    /// decide by its share.
    Unreadable(E),
    /// The store gave no answer, or one that it cannot give. Nobody knows what was written.
    Failed(E),
}

impl<'s> SwapEntry<'s> {
    pub(super) fn of(used: Used<'s>, ttl_margin: Micros, at: Micros) -> Self {
        let Used { name, found, is_known, .. } = used;
        let becomes = used.write.map(|write| write.bytes);
        Self { name, found, is_known, becomes, ttl: ttl(&used, ttl_margin, at) }
    }
}

/// Twice as long as needed, so that most writes need not set it anew.
fn ttl(used: &Used<'_>, ttl_margin: Micros, at: Micros) -> Option<Micros> {
    let needed = used.write?.time_to_live.0.saturating_add(ttl_margin.0).max(1);
    let is_kept = used.found.is_some() && used.expires_at.0 >= at.0.saturating_add(needed);
    (!is_kept).then(|| Micros(needed.saturating_mul(2)))
}

/// Until when the store keeps a record that it has written.
pub(super) fn expires_at(used: &Used<'_>, ttl_margin: Micros, at: Micros) -> Micros {
    match ttl(used, ttl_margin, at) {
        Some(ttl) => Micros(at.0.saturating_add(ttl.0)),
        None => used.expires_at,
    }
}

impl Swap {
    /// When the swap was made, by the clock of [`Queued::at`](super::Queued::at).
    #[must_use]
    pub const fn at(&self) -> Micros {
        self.at
    }

    /// The number of partitions.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.partitions.len()
    }

    /// Whether the swap has no partitions, which never happens.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }
}
