//! The rule of a policy for a key: its own limits, an override, or a list.

use alloc::borrow::Cow;
use core::iter;

use tidegate_core::{Decision, MAX_QUANTITY, Micros};

use super::Policy;
use crate::decide::{Limits, Record};
use crate::key::{Pattern, canonical_key, is_address};

/// The rule of a policy for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule<'a> {
    /// The key is on the list `allow` or `deny`, so it is never counted.
    Listed(Decision),
    /// These limits count under this canonical key.
    Limited(&'a Limits, Cow<'a, str>),
}

/// The place of a key's rule in its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleId {
    /// The key is on the list `deny`.
    Denied,
    /// The key is on the list `allow`.
    Allowed,
    /// The policy's own limits hold for the key.
    Limits,
    /// The limits of this override hold for the key.
    Override(usize),
}

impl RuleId {
    pub(crate) const fn number(self) -> Option<usize> {
        match self {
            Self::Denied | Self::Allowed => None,
            Self::Limits => Some(0),
            Self::Override(place) => Some(place.saturating_add(1)),
        }
    }
}

impl Policy {
    /// The number of the rule for a key: 0 for the policy's own limits, more for overrides; `None` for a listed key.
    #[must_use]
    #[inline]
    pub fn rule_number(&self, key: &str) -> Option<usize> {
        self.find(key).number()
    }

    /// The limits of the rule with this [number](Self::rule_number).
    #[must_use]
    pub fn limits_of_rule(&self, number: usize) -> Option<&Limits> {
        let place = number.checked_sub(1).map(|place| self.overrides.get(place));
        place.map_or(Some(&self.limits), |own| own.map(|(_, limits)| limits))
    }

    /// The record with this identity, of the policy's own limits or of an override.
    #[must_use]
    pub fn record(&self, identity: u64) -> Option<&Record> {
        self.records().find(|record| record.identity() == identity)
    }

    /// Whether the policy has this record.
    pub(crate) fn has(&self, record: &Record) -> bool {
        self.records().any(|own| own.is(record))
    }

    /// The records of the policy's own limits and of all overrides.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        let all = iter::once(&self.limits).chain(self.overrides.iter().map(|(_, own)| own));
        all.flat_map(Limits::records)
    }

    /// The rule for a key. A key on both lists is denied.
    #[must_use]
    #[inline(always)] // a call would move its answer in memory
    pub fn rule<'a>(&'a self, key: &'a str) -> Rule<'a> {
        if self.has_one_rule() && !is_address(key) {
            return Rule::Limited(&self.limits, Cow::Borrowed(key));
        }
        self.rule_of_address_or_list(key)
    }

    #[inline(never)]
    fn rule_of_address_or_list<'a>(&'a self, key: &'a str) -> Rule<'a> {
        self.rule_found(self.find(key), canonical_key(key, self.ipv6_prefix))
    }

    const fn has_one_rule(&self) -> bool {
        self.deny.is_empty() && self.allow.is_empty() && self.overrides.is_empty()
    }

    #[inline]
    pub(crate) fn find(&self, key: &str) -> RuleId {
        if self.has_one_rule() { RuleId::Limits } else { self.find_among_rules(key) }
    }

    #[inline(never)]
    fn find_among_rules(&self, key: &str) -> RuleId {
        let key = canonical_key(key, 128); // one address has several spellings
        let is = |pattern: &Pattern| pattern.matches(&key);
        if self.deny.iter().any(is) {
            return RuleId::Denied;
        }
        if self.allow.iter().any(is) {
            return RuleId::Allowed;
        }
        let own = self.overrides.iter().position(|(pattern, _)| is(pattern));
        own.map_or(RuleId::Limits, RuleId::Override)
    }

    pub(crate) fn rule_found<'a>(&'a self, found: RuleId, key: Cow<'a, str>) -> Rule<'a> {
        match self.limits_found(found) {
            Some(limits) => Rule::Limited(limits, key),
            None if found == RuleId::Allowed => Rule::Listed(ALLOWED),
            None => Rule::Listed(DENIED),
        }
    }

    /// The limits of a rule; `None` for a listed key.
    pub(crate) fn limits_found(&self, found: RuleId) -> Option<&Limits> {
        match found {
            RuleId::Denied | RuleId::Allowed => None,
            RuleId::Limits => Some(&self.limits),
            RuleId::Override(place) => self.overrides.get(place).map(|(_, own)| own),
        }
    }
}

const ALLOWED: Decision =
    Decision::Allow { limit: MAX_QUANTITY, remaining: MAX_QUANTITY, reset_after: Micros::ZERO };

const DENIED: Decision =
    Decision::Deny { limit: 0, remaining: 0, retry_after: Micros::MAX, reset_after: Micros::MAX };
