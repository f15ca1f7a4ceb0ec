//! Operations on the records of one partition: they read the stored bytes and say which bytes to store.
//!
//! Every store takes the same steps, and an adapter only moves the bytes:
//!
//! 1. Call [`Transaction::join`] for each operation, then load the bytes under each of [`Transaction::names`].
//! 2. Call [`Transaction::load`] with these bytes.
//! 3. Call [`Transaction::operate`] for each operation, in order.
//! 4. Store each of [`Transaction::writes`] under its name, with its time to live.
//! 5. Send each answer: at once if [`Answered::is_settled`], otherwise after the writes that are due
//!    [`Due::BeforeAnswer`].
//!
//! If a write fails, drop the transaction. Nothing is then charged, neither in memory nor in the store.
//!
//! A store with other writers compares and swaps, and needs no step to load: a transaction that never loaded
//! expects nothing to be stored. [`Transaction::used`] says what each record of the operations expects and becomes.
//! After a swap, call [`Transaction::stored`]: the transaction remembers the states for the next operations. If other
//! bytes were found, call [`Transaction::found`] with them and do the operations again.
//!
//! The [only writer](Transaction::of_only_writer) never has to do operations again: it calls [`Transaction::touch`] and
//! reads what it does not [know](Transaction::knows) before it decides.
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::Arc;
//! use tidegate_gate::{Operation, Policy, Resolved, Transaction, Timestamp};
//!
//! let policy = "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1m' }]";
//! let policy = Arc::new(Policy::parse("login", policy).unwrap());
//! let user = Resolved::new(&policy, "user:42").unwrap();
//! let mut store: HashMap<String, Vec<u8>> = HashMap::new();
//!
//! for (second, passes) in [(0, true), (59, false), (60, true)] {
//!     let mut transaction = Transaction::default();
//!     let joined = transaction.join(&user);
//!     let found: Vec<_> = transaction.names().map(|name| store.get(name).cloned()).collect();
//!     transaction.load(found);
//!     let now = Timestamp(second * 1_000_000);
//!     let answered = transaction.operate(&joined, now, &Operation::from(1)).unwrap();
//!     for write in transaction.writes() {
//!         store.insert(write.name.into(), write.bytes.into());
//!     }
//!     assert_eq!(answered.verdict.decision.is_allowed(), passes);
//!     assert_eq!(answered.is_settled, !passes, "a refusal need not wait for a write");
//! }
//! ```

mod ahead;
mod outage;
mod record_state;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use smallvec::SmallVec;
use tidegate_core::{Decision, Micros, Timestamp};

use self::ahead::Prepaid;
use self::record_state::{Holds, RecordState};
use crate::decide::{Limits, Verdict};
use crate::key::Depth;
use crate::limit::{Operation, OperationError};
use crate::policy::{Policy, Resolved, Rule};
use crate::state::KeyState;
use crate::state::blob::{self, BlobError};
use crate::state::kept;

/// The records of one partition that some operations need.
#[derive(Debug, Default)]
pub struct Transaction {
    slots: Vec<RecordState>,
    /// The slots sorted by name. Keys come from callers, and a search in order has no collisions.
    by_name: Vec<usize>,
    is_only_writer: bool,
}

/// A key's place in a transaction: its limits and its records.
#[derive(Clone, Debug)]
pub struct KeySlots {
    resolved: Resolved,
    /// The slot of each record of the limits, in their order.
    slots: SmallVec<[usize; 2]>,
    /// The slot of the answer, if a repeat of the request is known.
    answer: Option<usize>,
    /// When the rule ends, and the key's place by the next rule.
    next: Option<(Timestamp, Box<KeySlots>)>,
}

/// When a write is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// The write may follow the answers: it only moves the newest time.
    AfterAnswer,
    /// The write must precede the answers, which depend on it.
    BeforeAnswer,
}

/// The outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The verdict.
    pub verdict: Verdict,
    /// Whether the answer holds even if the transaction's writes fail.
    pub is_settled: bool,
}

/// A record that operations have used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used<'s> {
    /// The name of the record in the store.
    pub name: &'s str,
    /// The bytes that the operations expect under this name. A store with other writers must write only if
    /// they are still there.
    pub found: Option<&'s [u8]>,
    /// Whether the transaction has read or written these bytes. Otherwise it guesses that nothing is stored. An only
    /// writer need not compare what is known.
    pub is_known: bool,
    /// What [`Transaction::stored`] was last told of these bytes; zero if nothing.
    pub expires_at: Micros,
    /// What to store; `None` if nothing has changed.
    pub write: Option<Write<'s>>,
}

/// A record to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'s> {
    /// The name of the record in the store.
    pub name: &'s str,
    /// The bytes to store.
    pub bytes: &'s [u8],
    /// The span after which the record equals a fresh one, so that the store may forget it.
    pub time_to_live: Micros,
    /// When the write is due.
    pub due: Due,
}

/// Why an operation was not done. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionError {
    /// The limits cannot do the operation.
    Operation(OperationError),
    /// The bytes under this name are not a state of these limits.
    Blob {
        /// The name in the store.
        name: String,
        /// Why they are not.
        error: BlobError,
    },
}

impl fmt::Display for TransactionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(error) => error.fmt(f),
            // escaped: the name contains the key, and the error may go to a log
            Self::Blob { name, error } => write!(f, "{name:?}: {error}"),
        }
    }
}

impl core::error::Error for TransactionError {}

impl Transaction {
    /// A transaction of a store to which nobody else writes. It does what [`Policy::persist_ahead`](crate::Policy::persist_ahead)
    /// allows: it stores states before they are granted, and then grants out of them without a write.
    #[must_use]
    pub fn of_only_writer() -> Self {
        Self { is_only_writer: true, ..Self::default() }
    }

    /// Adds a key. Keys that need the same records share them.
    pub fn join(&mut self, resolved: &Resolved) -> KeySlots {
        let mut slots = SmallVec::new();
        if let Some((rule, limits)) = resolved.limited() {
            if self.slots.is_empty() {
                // most transactions are of one key, and there are many of them
                self.slots.reserve_exact(limits.records().len());
                self.by_name.reserve_exact(limits.records().len());
            }
            for (place, record) in limits.records().iter().enumerate() {
                let name = blob::name(resolved.policy(), record, resolved.key());
                slots.extend(self.slot(name, resolved.policy(), Holds::Record(rule, place)));
            }
        }
        let answer = resolved.kept_for().and_then(|(known, _)| {
            let name = kept::name(resolved.policy(), resolved.key(), known.id);
            self.slot(name, resolved.policy(), Holds::Answer)
        });
        let next = resolved.end().map(|(until, next)| (until, Box::new(self.join(&next))));
        KeySlots { resolved: resolved.clone(), slots, answer, next }
    }

    /// The slot of this name, which begins if there is none.
    fn slot(&mut self, name: String, policy: &Arc<Policy>, holds: Holds) -> Option<usize> {
        match self.by_name.binary_search_by(|slot| self.name_of(*slot).cmp(&name)) {
            Ok(at) => self.by_name.get(at).copied(),
            Err(at) => {
                let slot = self.slots.len();
                self.by_name.insert(at, slot);
                let has_ahead = self.is_only_writer && matches!(holds, Holds::Record(..));
                let ahead = policy.persist_ahead().filter(|_| has_ahead);
                self.slots.push(RecordState::new(name, policy, holds, ahead.map(Prepaid::new)));
                Some(slot)
            }
        }
    }

    /// The names of the records.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.slots.iter().map(|slot| &*slot.name)
    }

    /// Takes the bytes that are stored under each of the [`names`](Self::names), in their order. If some bytes
    /// are not a state, only the operations that need them fail.
    pub fn load(&mut self, found: impl IntoIterator<Item = Option<Vec<u8>>>) {
        for (slot, found) in self.slots.iter_mut().zip(found) {
            slot.load(found);
        }
    }

    /// Does an operation on the loaded records, as earlier operations of the transaction left them.
    ///
    /// # Errors
    /// Fails with [`TransactionError`]; nothing has changed.
    pub fn operate(
        &mut self,
        joined: &KeySlots,
        now: Timestamp,
        operation: &Operation,
    ) -> Result<Answered, TransactionError> {
        let now = joined.resolved.within_rule(now);
        self.operate_by(joined, now, operation, |limits, words, asked| {
            limits.operate(words, now, asked)
        })
    }

    /// Does the same with another implementation of [`Limits::operate`], for instance the limits in wasmtime.
    /// `decide` operates on the words of all records, and need not know which part of the key each limit
    /// counts by.
    ///
    /// # Errors
    /// Fails with [`TransactionError`]; nothing has changed.
    pub fn operate_by(
        &mut self,
        joined: &KeySlots,
        now: Timestamp,
        operation: &Operation,
        decide: impl FnOnce(&Limits, &mut [u64], &Operation) -> Result<Verdict, OperationError>,
    ) -> Result<Answered, TransactionError> {
        let limits = match joined.resolved.rule() {
            Rule::Listed(decision) => {
                return Ok(Answered { verdict: Verdict::listed(now, decision), is_settled: true });
            }
            Rule::Limited(limits, _) => limits,
        };
        self.touch(joined);
        if let Some(known) = self.known(joined, now)? {
            return Ok(known);
        }
        for slot in joined.all_slots() {
            self.slots.get_mut(slot).into_iter().for_each(|slot| slot.carry_over(now));
        }
        let reset = match operation {
            Operation::Reset(depth) => Some(*depth),
            _ => None,
        };
        let mut state = self.gather(joined, limits, reset)?;
        let is_fresh = |words: &[u64]| words.iter().all(|word| *word == 0);
        let began: SmallVec<[bool; 2]> =
            limits.split(&state.words).map(|(_, words)| is_fresh(words)).collect();
        let was_blocked = state.block;
        let verdict = state
            .operate_unless_blocked(limits, now, operation, |limits, words| match operation {
                Operation::Reset(depth) => {
                    limits.reset(words, *depth);
                    decide(limits, words, &Operation::from(0))
                }
                other => decide(limits, words, other),
            })
            .map_err(TransactionError::Operation)?;
        let verdict = match &joined.next {
            Some((until, next)) => verdict.followed(*until, || self.look(next, *until, operation)),
            None => verdict,
        };
        // an answer is no more settled than the earlier operations whose records it read, and than the guess
        // that nothing is stored
        let is_settled = |slot: &RecordState| slot.is_known && slot.due != Some(Due::BeforeAnswer);
        let mut slots = joined.all_slots().filter_map(|slot| self.slots.get(slot));
        let mut is_settled = slots.all(is_settled);
        if operation.is_peek() {
            return Ok(Answered { verdict, is_settled });
        }
        let taken = match operation {
            Operation::Decide(_) if !verdict.decision.is_allowed() => Some(0),
            Operation::Decide(request) if request.reserves() => None, // no state that is ahead has it
            Operation::Decide(request) => Some(request.cost),
            _ => None,
        };
        for (((record, stored), began), slot) in state.apart(limits).zip(began).zip(&joined.slots) {
            let Some(slot) = self.slots.get_mut(*slot) else { continue };
            let forgets = slot.forgets && slot.due.is_none() && !record.remembers_refusals();
            if taken == Some(0) && forgets {
                continue; // the state stays with the limits that count all of it
            }
            let begins = began && record.time_to_live(stored.words, now) > Micros::ZERO;
            let words = stored.all();
            // a refusal that a limit remembers must survive like a grant, and so must the first refusal of
            // a bucket that starts empty, because the bucket fills from that time on
            let unblocked = record.keeps_block() && state.block != was_blocked;
            let is_more = record.remembers_refusals() || begins || unblocked || slot.is_carried;
            let due = match taken {
                Some(taken) if !is_more && slot.covers(record, &words, taken) => None,
                Some(0) if !is_more => Some(Due::AfterAnswer),
                // for instance a reset of a key that the store does not have
                None if is_fresh(&words) && slot.has_nothing() => None,
                _ => Some(Due::BeforeAnswer),
            };
            is_settled &= due != Some(Due::BeforeAnswer);
            slot.become_words(words, now, due);
        }
        is_settled &= !self.keep(joined, (now, operation), &verdict);
        Ok(Answered { verdict, is_settled })
    }

    /// What a rule will say of what the operation asks for.
    fn look(&self, next: &KeySlots, at: Timestamp, operation: &Operation) -> Option<Decision> {
        match next.resolved.rule() {
            Rule::Listed(decision) => Some(decision),
            Rule::Limited(limits, _) => {
                let mut state = self.gather(next, limits, None).ok()?;
                state.operate(limits, at, &operation.look()).ok().map(|verdict| verdict.decision)
            }
        }
    }

    /// The answer to a request that is a repeat.
    fn known(
        &self,
        joined: &KeySlots,
        now: Timestamp,
    ) -> Result<Option<Answered>, TransactionError> {
        let (Some((known, _)), Some(slot)) = (joined.resolved.kept_for(), self.answer_of(joined))
        else {
            return Ok(None);
        };
        let words = slot.words().map_err(|error| unreadable(slot, error))?;
        let is_settled = slot.is_known && slot.due.is_none();
        let verdict = kept::verdict(words, known, now);
        Ok(verdict.map(|verdict| Answered { verdict, is_settled }))
    }

    /// Keeps the answer for repeats of the request, if it has to be kept.
    fn keep(
        &mut self,
        joined: &KeySlots,
        (now, operation): (Timestamp, &Operation),
        verdict: &Verdict,
    ) -> bool {
        let slot = joined.answer.and_then(|slot| self.slots.get_mut(slot));
        let (Some((known, time)), Some(slot)) = (joined.resolved.kept_for(), slot) else {
            return false;
        };
        if !kept::is_kept(operation, verdict) {
            return false;
        }
        let until = now.saturating_add(time);
        let words = kept::to_words(known.request, until, verdict);
        slot.become_words(words.into(), now, Some(Due::BeforeAnswer));
        true
    }

    /// The records to store. A record that has not changed is left out.
    pub fn writes(&mut self) -> impl Iterator<Item = Write<'_>> {
        self.used().filter_map(|used| used.write)
    }

    /// The records that operations have used since the last [`stored`](Self::stored) or
    /// [`found`](Self::found).
    pub fn used(&mut self) -> impl Iterator<Item = Used<'_>> {
        self.slots.iter_mut().filter(|slot| slot.is_used).map(RecordState::used)
    }

    /// Takes note that all [`writes`](Self::writes) are stored, and that the other [used](Self::used) records
    /// were as expected. `expires_at` says of each write until when the store keeps the bytes, by any clock of
    /// the caller: the transaction only repeats it.
    pub fn stored(&mut self, expires_at: impl Fn(&Used<'_>) -> Micros) {
        for slot in self.slots.iter_mut().filter(|slot| slot.is_used) {
            let expires_at = expires_at(&slot.used());
            slot.stored(expires_at);
        }
    }

    /// Takes the bytes that were found in place of the expected ones, for each of the [used](Self::used) records
    /// in their order. The operations on them count as not done. An only writer takes only those that it does
    /// not know.
    pub fn found(&mut self, found: impl IntoIterator<Item = Option<Vec<u8>>>) {
        let used = self.slots.iter_mut().filter(|slot| slot.is_used);
        for (slot, found) in used.zip(found) {
            if !self.is_only_writer || !slot.is_known {
                slot.load(found);
            }
        }
    }

    /// Whether the transaction knows what is stored of a key.
    #[must_use]
    pub fn knows(&self, joined: &KeySlots) -> bool {
        let all = joined.all_slots().chain(joined.answer);
        all.filter_map(|slot| self.slots.get(slot)).all(|slot| slot.is_known)
    }

    /// Puts the records of a key among the [used](Self::used) ones, so that the store says what it holds of them.
    pub fn touch(&mut self, joined: &KeySlots) {
        for slot in joined.all_slots().chain(joined.answer) {
            self.slots.get_mut(slot).into_iter().for_each(|slot| slot.is_used = true);
        }
    }

    /// Forgets the bytes that are not a state, so that the next operations ask the store for them again.
    pub fn forget_unreadable(&mut self) {
        self.slots.iter_mut().for_each(RecordState::forget_unreadable);
    }

    /// The number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the transaction has no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The bytes of memory that the transaction takes, without the policy.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let slots = self.slots.iter().map(RecordState::bytes).fold(0, usize::saturating_add);
        let free = self.slots.capacity().saturating_sub(self.slots.len());
        slots
            .saturating_add(free.saturating_mul(size_of::<RecordState>()))
            .saturating_add(self.by_name.capacity().saturating_mul(size_of::<usize>()))
    }

    /// The state of an operation's key. A `reset` from a depth on needs no words that these limits wrote and cannot read. All other
    /// bytes stay: a newer version or other limits may have written them.
    fn gather(
        &self,
        joined: &KeySlots,
        limits: &Limits,
        reset: Option<Depth>,
    ) -> Result<KeyState, TransactionError> {
        let mut state = KeyState::default();
        for (slot, record) in self.slots_of(joined).zip(limits.records()) {
            match slot.words() {
                Ok(own) => state.add(record, Some(own)),
                // an empty value is no state of any version
                Err(BlobError::Length { found: 1.., .. } | BlobError::Invalid)
                    if reset.is_some_and(|depth| record.depth() >= depth) =>
                {
                    state.add(record, None);
                }
                Err(error) => return Err(unreadable(slot, error)),
            }
        }
        Ok(state)
    }

    fn slots_of(&self, joined: &KeySlots) -> impl Iterator<Item = &RecordState> {
        joined.slots.iter().filter_map(|slot| self.slots.get(*slot))
    }

    fn name_of(&self, slot: usize) -> &str {
        self.slots.get(slot).map_or("", |slot| &slot.name)
    }

    fn answer_of(&self, joined: &KeySlots) -> Option<&RecordState> {
        joined.answer.and_then(|slot| self.slots.get(slot))
    }
}

fn unreadable(slot: &RecordState, error: BlobError) -> TransactionError {
    TransactionError::Blob { name: String::from(&*slot.name), error }
}

impl KeySlots {
    /// The slots of all records that an answer depends on.
    fn all_slots(&self) -> impl Iterator<Item = usize> {
        let next = self.next.iter().flat_map(|(_, next)| &next.slots);
        self.slots.iter().chain(next).copied()
    }

    /// The key.
    #[must_use]
    pub const fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// Whether this is the joined of this key.
    #[must_use]
    pub fn is_of(&self, resolved: &Resolved) -> bool {
        self.resolved.is_same(resolved)
    }

    /// The bytes of memory that the joined takes beside itself, without the policy.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let slots = if self.slots.spilled() { self.slots.capacity() } else { 0 };
        let next = self
            .next
            .as_ref()
            .map_or(0, |(_, next)| size_of::<Self>().saturating_add(next.bytes()));
        let slots = slots.saturating_mul(size_of::<usize>());
        self.resolved.bytes().saturating_add(slots).saturating_add(next)
    }
}
