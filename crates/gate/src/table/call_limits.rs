//! Limits that a caller gives with its requests, because they come from a token or a database.
//!
//! A count belongs to a key and to a limit's name, algorithm and period, or for a bucket the time in which it fills. A call
//! may change the other numbers, and the count goes on. Other limits are other counts, and none leads to another. So in any
//! order of calls each limit grants at most what it grants alone. A window that starts at its first grant keeps its
//! limit in each window: beside other limits its windows end elsewhere.
//!
//! [`CallLimits`] stand beside a [`Table`] whose limits [count apart](Table::counting_apart), and make a policy of each text. The
//! table knows nothing of them: each entry holds the record that wrote it last.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use tidegate_core::Timestamp;

use super::Table;
use crate::decide::Record;
use crate::policy::{Policy, PolicyError};

/// The most different limits that are known at a time.
pub const MAX_CALL_LIMITS: usize = 1_000;

/// The longest text of such limits, in bytes.
const MAX_TEXT_BYTES: usize = 4_096;

/// The limits that callers gave, each as a policy of its own, in the order of their texts.
#[derive(Clone, Debug, Default)]
pub struct CallLimits(Vec<(String, Arc<Policy>)>);

/// Why a caller's limits are not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallLimitsError {
    /// The limits cannot be read.
    Policy(PolicyError),
    /// The text of the limits has this many bytes.
    Length(usize),
    /// Keys that are in use have [`MAX_CALL_LIMITS`] other limits.
    TooMany,
    /// The allocator has no room for an entry for each limit.
    NoMemory,
}

impl fmt::Display for CallLimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(error) => error.fmt(f),
            Self::Length(bytes) => {
                write!(f, "`limits`: expected at most {MAX_TEXT_BYTES} bytes, found {bytes}")
            }
            Self::TooMany => write!(
                f,
                "`limits`: expected at most {MAX_CALL_LIMITS} different limits on the keys in use, found one more"
            ),
            Self::NoMemory => {
                f.write_str("`limits`: expected memory for a count of each limit, found none")
            }
        }
    }
}

impl core::error::Error for CallLimitsError {}

impl CallLimits {
    /// The policy that decides by the limits of `text` in place of those of `policy`, of which each limit
    /// [counts apart](Table::counting_apart) on `table`.
    ///
    /// The next operation is under these limits: limits under which no operation leaves a state may be forgotten.
    ///
    /// # Errors
    /// Fails with [`CallLimitsError`]; nothing has changed.
    #[inline(never)]
    pub fn policy(
        &mut self,
        table: &mut Table,
        policy: &Arc<Policy>,
        text: &str,
        now: Timestamp,
    ) -> Result<Arc<Policy>, CallLimitsError> {
        if let Ok(place) = self.place(text)
            && let Some((_, own)) = self.0.get(place)
        {
            return Ok(Arc::clone(own));
        }
        self.forget_unused();
        if self.are_full() && table.may_sweep(now) {
            table.make_room(policy, now);
            self.forget_unused();
        }
        self.add(policy, text)
    }

    /// Forgets all limits.
    #[inline(never)]
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Reads the limits, and knows them from now on.
    pub(super) fn add(
        &mut self,
        policy: &Policy,
        text: &str,
    ) -> Result<Arc<Policy>, CallLimitsError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(CallLimitsError::Length(text.len()));
        }
        let own = Arc::new(policy.with_limits(text).map_err(CallLimitsError::Policy)?);
        if self.are_full() {
            return Err(CallLimitsError::TooMany);
        }
        if let Err(place) = self.place(text) {
            self.0.insert(place, (text.into(), Arc::clone(&own)));
        }
        Ok(own)
    }

    /// Forgets limits that have no state, if there are too many.
    fn forget_unused(&mut self) {
        if self.are_full() {
            self.0.retain(|(_, own)| has_states(own));
        }
    }

    fn place(&self, text: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(one, _)| one.as_str().cmp(text))
    }

    fn are_full(&self) -> bool {
        self.0.len() >= MAX_CALL_LIMITS
    }

    /// The texts of the limits that have a state, sorted.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, own)| has_states(own)).map(|(text, _)| text.as_str())
    }

    /// The records of all limits.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.0.iter().flat_map(|(_, own)| own.records())
    }

    /// The same limits under an edited policy. Also returns the policy that decides then: if callers gave limits, each
    /// limit of `policy` counts apart.
    #[inline(never)]
    #[must_use]
    pub fn edited(&self, policy: Arc<Policy>) -> (Self, Arc<Policy>) {
        if self.0.is_empty() {
            return (Self::default(), policy);
        }
        let apart = Arc::new(policy.counting_apart());
        let used = self.0.iter().filter(|(_, own)| has_states(own));
        let edited = used.map(|(text, own)| (text.clone(), Arc::new(apart.with_limits_of(own))));
        (Self(edited.collect()), apart)
    }
}

/// Whether a table has a state of the limits: it holds a clone of the record.
fn has_states(own: &Policy) -> bool {
    own.records().any(|record| !record.limits().is_empty() && record.has_clones())
}
