//! Operations on the slices of one home: they read the stored bytes and say which bytes to store.
//!
//! Every store takes the same steps, and an adapter only moves the bytes:
//!
//! 1. Call [`Session::join`] for each operation, then load the bytes under each of [`Session::names`].
//! 2. Call [`Session::load`] with these bytes.
//! 3. Call [`Session::operate`] for each operation, in order.
//! 4. Store each of [`Session::writes`] under its name, with its time to live.
//! 5. Send each answer: at once if [`Answered::is_settled`], otherwise after the writes that are due
//!    [`Due::BeforeAnswer`].
//!
//! If a write fails, drop the session. Nothing is then charged, neither in memory nor in the store.
//!
//! A store with other writers compares and swaps, and needs no step to load: a session that never loaded
//! expects nothing to be stored. [`Session::used`] says what each slice of the operations expects and becomes.
//! After a swap, call [`Session::stored`]: the session remembers the states for the next operations. If other
//! bytes were found, call [`Session::found`] with them and do the operations again.
//!
//! The [only writer](Session::of_only_writer) never has to do operations again: it calls [`Session::touch`] and
//! reads what it does not [know](Session::knows) before it decides.
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::Arc;
//! use tidegate_gate::{Operation, Policy, Resolved, Session, Timestamp};
//!
//! let policy = "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1m' }]";
//! let policy = Arc::new(Policy::parse("login", policy).unwrap());
//! let user = Resolved::new(&policy, "user:42").unwrap();
//! let mut store: HashMap<String, Vec<u8>> = HashMap::new();
//!
//! for (second, passes) in [(0, true), (59, false), (60, true)] {
//!     let mut session = Session::default();
//!     let seat = session.join(&user);
//!     let found: Vec<_> = session.names().map(|name| store.get(name).cloned()).collect();
//!     session.load(found);
//!     let now = Timestamp(second * 1_000_000);
//!     let answered = session.operate(&seat, now, &Operation::from(1)).unwrap();
//!     for write in session.writes() {
//!         store.insert(write.name.into(), write.bytes.into());
//!     }
//!     assert_eq!(answered.verdict.decision.is_allowed(), passes);
//!     assert_eq!(answered.is_settled, !passes, "a refusal need not wait for a write");
//! }
//! ```

mod ahead;
mod slot;
#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use smallvec::SmallVec;
use tidegate_core::{Micros, Timestamp};

use self::ahead::Lead;
use self::slot::Slot;
use crate::decide::{Limits, Verdict};
use crate::limit::{Operation, OperationError};
use crate::policy::{Found, Resolved, Rule};
use crate::state::Gathered;
use crate::state::blob::{self, BlobError};

/// The slices of one home that some operations need.
#[derive(Debug, Default)]
pub struct Session {
    slots: Vec<Slot>,
    /// The slots sorted by name. Keys come from callers, and a search in order has no collisions.
    by_name: Vec<usize>,
    is_only_writer: bool,
}

/// A key's place in a session: its limits and its slices.
#[derive(Clone, Debug)]
pub struct Seat {
    resolved: Resolved,
    /// The slot of each slice of the limits, in their order.
    slots: SmallVec<[usize; 2]>,
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
    /// Whether the answer holds even if the session's writes fail.
    pub is_settled: bool,
}

/// A slice that operations have used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used<'s> {
    /// The name of the slice in the store.
    pub name: &'s str,
    /// The bytes that the operations expect under this name. A store with other writers must write only if
    /// they are still there.
    pub found: Option<&'s [u8]>,
    /// Whether the session has read or written these bytes. Otherwise it guesses that nothing is stored. An only
    /// writer need not compare what is known.
    pub is_known: bool,
    /// What [`Session::stored`] was last told of these bytes; zero if nothing.
    pub kept_until: Micros,
    /// What to store; `None` if nothing has changed.
    pub write: Option<Write<'s>>,
}

/// A slice to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'s> {
    /// The name of the slice in the store.
    pub name: &'s str,
    /// The bytes to store.
    pub bytes: &'s [u8],
    /// The span after which the slice equals a fresh one, so that the store may forget it.
    pub time_to_live: Micros,
    /// When the write is due.
    pub due: Due,
}

/// Why an operation was not done. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionError {
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

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(error) => error.fmt(f),
            // escaped: the name contains the key, and the error may go to a log
            Self::Blob { name, error } => write!(f, "{name:?}: {error}"),
        }
    }
}

impl core::error::Error for SessionError {}

impl Session {
    /// A session of a store to which nobody else writes. It does what [`Policy::persist_ahead`](crate::Policy::persist_ahead)
    /// allows: it stores states before they are granted, and then grants out of them without a write.
    #[must_use]
    pub fn of_only_writer() -> Self {
        Self { is_only_writer: true, ..Self::default() }
    }

    /// Adds a key. Keys that need the same slices share them.
    pub fn join(&mut self, resolved: &Resolved) -> Seat {
        let mut slots = SmallVec::new();
        if let Some((rule, limits)) = resolved.limited() {
            if self.slots.is_empty() {
                // most sessions are of one key, and there are many of them
                self.slots.reserve_exact(limits.slices().len());
                self.by_name.reserve_exact(limits.slices().len());
            }
            for place in 0..limits.slices().len() {
                slots.extend(self.slot(resolved, limits, (rule, place)));
            }
        }
        Seat { resolved: resolved.clone(), slots }
    }

    fn slot(
        &mut self,
        resolved: &Resolved,
        limits: &Limits,
        place: (Found, usize),
    ) -> Option<usize> {
        let slice = limits.slices().get(place.1)?;
        let name = blob::name(resolved.policy(), slice, resolved.key());
        let names = |slot: &usize| self.slots.get(*slot).map_or("", |slot| &slot.name);
        match self.by_name.binary_search_by(|slot| names(slot).cmp(&name)) {
            Ok(at) => self.by_name.get(at).copied(),
            Err(at) => {
                let slot = self.slots.len();
                self.by_name.insert(at, slot);
                let ahead = resolved.policy().persist_ahead().filter(|_| self.is_only_writer);
                self.slots.push(Slot::new(name, resolved.policy(), place, ahead.map(Lead::new)));
                Some(slot)
            }
        }
    }

    /// The names of the slices.
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

    /// Does an operation on the loaded slices, as earlier operations of the session left them.
    ///
    /// # Errors
    /// Fails with [`SessionError`]; nothing has changed.
    pub fn operate(
        &mut self,
        seat: &Seat,
        now: Timestamp,
        operation: &Operation,
    ) -> Result<Answered, SessionError> {
        self.operate_by(seat, now, operation, |limits, words, asked| {
            limits.operate(words, now, asked)
        })
    }

    /// Does the same with another implementation of [`Limits::operate`], for instance the limits in wasmtime.
    /// `decide` operates on the words of all slices, and need not know which part of the key each limit
    /// counts by.
    ///
    /// # Errors
    /// Fails with [`SessionError`]; nothing has changed.
    pub fn operate_by(
        &mut self,
        seat: &Seat,
        now: Timestamp,
        operation: &Operation,
        decide: impl FnOnce(&Limits, &mut [u64], &Operation) -> Result<Verdict, OperationError>,
    ) -> Result<Answered, SessionError> {
        let limits = match seat.resolved.rule() {
            Rule::Listed(decision) => {
                return Ok(Answered { verdict: Verdict::listed(now, decision), is_settled: true });
            }
            Rule::Limited(limits, _) => limits,
        };
        self.touch(seat);
        let mut state = self.gather(seat, limits)?;
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
            .map_err(SessionError::Operation)?;
        // an answer is no more settled than the earlier operations whose slices it read, and than the guess
        // that nothing is stored
        let is_settled = |slot: &Slot| slot.is_known && slot.due != Some(Due::BeforeAnswer);
        let mut is_settled = self.slots_of(seat).all(is_settled);
        if operation.is_peek() {
            return Ok(Answered { verdict, is_settled });
        }
        let taken = match operation {
            Operation::Decide(request) if verdict.decision.is_allowed() => Some(request.cost),
            Operation::Decide(_) => Some(0),
            _ => None,
        };
        for (((slice, stored), began), slot) in state.apart(limits).zip(began).zip(&seat.slots) {
            let Some(slot) = self.slots.get_mut(*slot) else { continue };
            let begins = began && slice.time_to_live(stored.words, now) > Micros::ZERO;
            let words = stored.all();
            // a refusal that a limit remembers must survive like a grant, and so must the first refusal of
            // a bucket that starts empty, because the bucket fills from that time on
            let unblocked = slice.keeps_block() && state.block != was_blocked;
            let is_more = slice.remembers_refusals() || begins || unblocked || slot.is_carried;
            let due = match taken {
                Some(taken) if !is_more && slot.covers(slice, &words, taken) => None,
                Some(0) if !is_more => Some(Due::AfterAnswer),
                // for instance a reset of a key that the store does not have
                None if is_fresh(&words) && slot.has_nothing() => None,
                _ => Some(Due::BeforeAnswer),
            };
            is_settled &= due != Some(Due::BeforeAnswer);
            slot.become_words(words, now, due);
        }
        Ok(Answered { verdict, is_settled })
    }

    /// The slices to store. A slice that has not changed is left out.
    pub fn writes(&mut self) -> impl Iterator<Item = Write<'_>> {
        self.used().filter_map(|used| used.write)
    }

    /// The slices that operations have used since the last [`stored`](Self::stored) or
    /// [`found`](Self::found).
    pub fn used(&mut self) -> impl Iterator<Item = Used<'_>> {
        self.slots.iter_mut().filter(|slot| slot.is_used).map(Slot::used)
    }

    /// Takes note that all [`writes`](Self::writes) are stored, and that the other [used](Self::used) slices
    /// were as expected. `kept_until` says of each write until when the store keeps the bytes, by any clock of
    /// the caller: the session only repeats it.
    pub fn stored(&mut self, kept_until: impl Fn(&Used<'_>) -> Micros) {
        for slot in self.slots.iter_mut().filter(|slot| slot.is_used) {
            let kept_until = kept_until(&slot.used());
            slot.stored(kept_until);
        }
    }

    /// Takes the bytes that were found in place of the expected ones, for each of the [used](Self::used) slices
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

    /// Whether the session knows what is stored of a key.
    #[must_use]
    pub fn knows(&self, seat: &Seat) -> bool {
        self.slots_of(seat).all(|slot| slot.is_known)
    }

    /// Puts the slices of a key among the [used](Self::used) ones, so that the store says what it holds of them.
    pub fn touch(&mut self, seat: &Seat) {
        for slot in &seat.slots {
            self.slots.get_mut(*slot).into_iter().for_each(|slot| slot.is_used = true);
        }
    }

    /// Forgets the bytes that are not a state, so that the next operations ask the store for them again.
    pub fn forget_unreadable(&mut self) {
        self.slots.iter_mut().for_each(Slot::forget_unreadable);
    }

    /// The number of slices.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the session has no slices.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The bytes of memory that the session takes, without the policy.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let slots = self.slots.iter().map(Slot::bytes).fold(0, usize::saturating_add);
        let free = self.slots.capacity().saturating_sub(self.slots.len());
        slots
            .saturating_add(free.saturating_mul(size_of::<Slot>()))
            .saturating_add(self.by_name.capacity().saturating_mul(size_of::<usize>()))
    }

    /// The state of an operation's key.
    fn gather(&self, seat: &Seat, limits: &Limits) -> Result<Gathered, SessionError> {
        let mut state = Gathered::default();
        for (slot, slice) in self.slots_of(seat).zip(limits.slices()) {
            match slot.words() {
                Ok(own) => state.add(slice, Some(own)),
                Err(error) => {
                    let name = String::from(&*slot.name);
                    return Err(SessionError::Blob { name, error });
                }
            }
        }
        Ok(state)
    }

    fn slots_of(&self, seat: &Seat) -> impl Iterator<Item = &Slot> {
        seat.slots.iter().filter_map(|slot| self.slots.get(*slot))
    }
}

impl Seat {
    /// Whether this is the seat of this key.
    #[must_use]
    pub fn is_of(&self, resolved: &Resolved) -> bool {
        self.resolved.is_same(resolved)
    }

    /// The bytes of memory that the seat takes beside itself, without the policy.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let slots = if self.slots.spilled() { self.slots.capacity() } else { 0 };
        self.resolved.bytes().saturating_add(slots.saturating_mul(size_of::<usize>()))
    }
}
