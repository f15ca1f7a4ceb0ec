//! What an owner of states may store before it is granted.

use alloc::format;
use alloc::string::String;

use tidegate_core::Micros;

use super::Policy;
use crate::decide::PersistAhead;
use crate::decide::{Limits, Record};
use crate::limit::span;
use crate::units::Span;
use tidegate_form::Bounded;
use tidegate_form::form;

form! {
    pub(super) struct PersistAheadForm {
        most: Bounded<0> = Bounded::clamped(100),
        time: Span = Span(Micros::SECOND),
    }
}

impl PersistAhead {
    /// `None` if nothing is to be stored ahead.
    pub(super) fn new(form: &PersistAheadForm) -> Option<Self> {
        let (most, time) = (form.most.get(), form.time.0);
        (most > 0).then_some(Self { most, time })
    }

    /// Checks that the states of these limits can be ahead.
    pub(super) fn check(limits: &Limits) -> Result<(), String> {
        match limits.records().iter().find_map(Record::cannot_charge_ahead) {
            None => Ok(()),
            Some(limit) => Err(format!(
                "`persist_ahead`: expected only token buckets and windows, because no other state can be made \
                 stricter in advance; found `{}`",
                limit.algorithm()
            )),
        }
    }
}

impl Policy {
    /// How far a store that has no other writer may be ahead of the grants; `None` if each grant is stored
    /// before its answer.
    #[must_use]
    #[inline]
    pub const fn persist_ahead(&self) -> Option<PersistAhead> {
        self.persist_ahead
    }

    /// What may be stored ahead and what that can cost, in words.
    ///
    /// ```
    /// use tidegate_gate::Policy;
    /// let policy = Policy::parse("api", r#"
    ///     limits = [{ algorithm = "token_bucket", capacity = 500, rate = "100/s" }]
    ///     persist_ahead = { most = 50 }
    /// "#).unwrap();
    /// let words = policy.describe_persistence().unwrap();
    /// assert!(words.starts_with("a Durable Object stores up to 50 units of a key before it grants them"));
    /// ```
    #[must_use]
    pub fn describe_persistence(&self) -> Option<String> {
        let PersistAhead { most, time } = self.persist_ahead?;
        let time = span(time);
        Some(format!(
            "a Durable Object stores up to {most} units of a key before it grants them; a crash grants \
             nothing twice, and loses at most {most} units and what flows in within {time}; other stores \
             store each grant"
        ))
    }
}
