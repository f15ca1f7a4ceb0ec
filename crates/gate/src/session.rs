//! Operations on the slices of one home: they read the stored bytes and say which bytes to store.
//!
//! Every store takes the same five steps, and an adapter only moves the bytes:
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
//!         store.insert(write.name.into(), write.bytes);
//!     }
//!     assert_eq!(answered.verdict.decision.is_allowed(), passes);
//!     assert_eq!(answered.is_settled, !passes, "a refusal need not wait for a write");
//! }
//! ```

#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use smallvec::SmallVec;
use tidegate_core::{Micros, Timestamp};

use crate::blob::{self, BlobError};
use crate::block::SliceWords;
use crate::decide::Verdict;
use crate::gathered::Gathered;
use crate::limits::{Limits, Slice};
use crate::policy::{Policy, Rule};
use crate::request::{Operation, OperationError};
use crate::resolved::Resolved;

/// The slices that some operations on one home need.
#[derive(Debug, Default)]
pub struct Session<'a> {
    slots: Vec<Slot<'a>>,
    by_name: BTreeMap<String, usize>,
}

/// An operation's place in a session: its limits and its slices.
#[derive(Debug)]
pub struct Seat<'a> {
    resolved: &'a Resolved,
    /// The slot of each slice of the limits, in their order.
    slots: SmallVec<[usize; 2]>,
}

/// A slice of the session: the state of the limits that count by one part of the key.
#[derive(Debug)]
struct Slot<'a> {
    name: String,
    policy: &'a Policy,
    slice: &'a Slice,
    found: Option<Vec<u8>>,
    words: Result<SliceWords, BlobError>,
    /// The words were carried over from other limits, under which the stored bytes expire earlier.
    is_carried: bool,
    due: Option<Due>,
    time_to_live: Micros,
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

/// A slice to store.
#[derive(Debug)]
pub struct Write<'s> {
    /// The name of the slice in the store.
    pub name: &'s str,
    /// The bytes that were loaded under this name. A store with other writers must write only if they are
    /// unchanged.
    pub found: Option<&'s [u8]>,
    /// The bytes to store.
    pub bytes: Vec<u8>,
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
            Self::Blob { name, error } => write!(f, "{name}: {error}"),
        }
    }
}

impl core::error::Error for SessionError {}

impl<'a> Session<'a> {
    /// Adds an operation. Operations that need the same slices share them.
    pub fn join(&mut self, resolved: &'a Resolved) -> Seat<'a> {
        let mut slots = SmallVec::new();
        if let Some(limits) = resolved.limits() {
            for slice in limits.slices() {
                slots.push(self.slot(resolved, slice));
            }
        }
        Seat { resolved, slots }
    }

    fn slot(&mut self, resolved: &'a Resolved, slice: &'a Slice) -> usize {
        let name = blob::name(resolved.policy(), slice, resolved.key());
        if let Some(slot) = self.by_name.get(&name) {
            return *slot;
        }
        let slot = self.slots.len();
        self.by_name.insert(name.clone(), slot);
        self.slots.push(Slot::fresh(name, resolved.policy(), slice));
        slot
    }

    /// The names of the slices.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.slots.iter().map(|slot| slot.name.as_str())
    }

    /// Takes the bytes that are stored under each of the [`names`](Self::names), in their order. If some bytes
    /// are not a state, only the operations that need them fail.
    pub fn load(&mut self, found: impl IntoIterator<Item = Option<Vec<u8>>>) {
        for (slot, found) in self.slots.iter_mut().zip(found) {
            *slot = Slot::loaded(slot, found);
        }
    }

    /// Does an operation on the loaded slices, as earlier operations of the session left them.
    ///
    /// # Errors
    /// Fails with [`SessionError`]; nothing has changed.
    pub fn operate(
        &mut self,
        seat: &Seat<'a>,
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
        seat: &Seat<'a>,
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
        let mut state = self.gather(seat)?;
        let begins = |words: &[u64]| words.iter().all(|word| *word == 0);
        let began: SmallVec<[bool; 2]> =
            limits.split(&state.words).map(|(_, words)| begins(words)).collect();
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
        // an answer is no more settled than the earlier operations whose slices it read
        let mut is_settled = self.slots_of(seat).all(|slot| slot.due != Some(Due::BeforeAnswer));
        if operation.is_peek() {
            return Ok(Answered { verdict, is_settled });
        }
        let refused = matches!(operation, Operation::Decide(_)) && !verdict.decision.is_allowed();
        for (((slice, stored), began), slot) in state.apart(limits).zip(began).zip(&seat.slots) {
            let Some(slot) = self.slots.get_mut(*slot) else { continue };
            let begins = began && slice.time_to_live(stored.words, now) > Micros::ZERO;
            let words = stored.all();
            let time_to_live = slice.time_to_live(&words, now);
            // a refusal that a limit remembers must survive like a grant, and so must the first refusal of
            // a bucket that starts empty, because the bucket fills from that time on
            let unblocked = slice.can_be_blocked() && state.block != was_blocked;
            let is_more = slice.remembers_refusals() || begins || unblocked || slot.is_carried;
            let due = match refused && !is_more {
                true => Due::AfterAnswer,
                false => Due::BeforeAnswer,
            };
            is_settled &= due == Due::AfterAnswer;
            slot.due = slot.due.max(Some(due));
            slot.time_to_live = time_to_live;
            slot.words = Ok(words);
        }
        Ok(Answered { verdict, is_settled })
    }

    /// The slices to store. A slice that has not changed is left out.
    pub fn writes(&self) -> impl Iterator<Item = Write<'_>> {
        self.slots.iter().filter_map(|slot| {
            let (due, words) = (slot.due?, slot.words.as_ref().ok()?);
            let bytes = blob::encode(slot.policy, slot.slice, words);
            let found = slot.found.as_deref();
            let (name, time_to_live) = (slot.name.as_str(), slot.time_to_live);
            (found != Some(&bytes)).then_some(Write { name, found, bytes, time_to_live, due })
        })
    }

    /// The state of an operation's key.
    fn gather(&self, seat: &Seat<'a>) -> Result<Gathered, SessionError> {
        let mut state = Gathered::default();
        for slot in self.slots_of(seat) {
            match &slot.words {
                Ok(own) => state.add(slot.slice, Some(own)),
                Err(error) => {
                    let (name, error) = (slot.name.clone(), *error);
                    return Err(SessionError::Blob { name, error });
                }
            }
        }
        Ok(state)
    }

    fn slots_of(&self, seat: &Seat<'a>) -> impl Iterator<Item = &Slot<'a>> {
        seat.slots.iter().filter_map(|slot| self.slots.get(*slot))
    }
}

impl<'a> Slot<'a> {
    fn fresh(name: String, policy: &'a Policy, slice: &'a Slice) -> Self {
        let words = Ok(SmallVec::from_elem(0, slice.words()));
        let (found, is_carried, due, time_to_live) = (None, false, None, Micros::ZERO);
        Self { name, policy, slice, found, words, is_carried, due, time_to_live }
    }

    fn loaded(empty: &mut Self, found: Option<Vec<u8>>) -> Self {
        let mut slot = Self::fresh(core::mem::take(&mut empty.name), empty.policy, empty.slice);
        if let Some(found) = found {
            let read = blob::read(slot.policy, slot.slice, &found);
            slot.is_carried = read.as_ref().is_ok_and(|decoded| decoded.is_carried);
            slot.words = read.map(|decoded| SmallVec::from_vec(decoded.words));
            slot.found = Some(found);
        }
        slot
    }
}
