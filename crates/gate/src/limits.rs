//! The limits that hold for a key, and the states that they are counted in.

use alloc::string::String;
use alloc::vec::Vec;
use core::iter;

use tidegate_core::{InvalidState, MAX_QUANTITY, Micros, Timestamp};

use crate::fnv::fnv1a;
use crate::key::Depth;
use crate::limit::{self, Limit};
use crate::policy::OnChange;

/// More limits on one request than anyone has asked for; each decision costs time for each.
pub(crate) const MAX_LIMITS: usize = 16;

/// A limit with the name that headers and reports call it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLimit {
    /// Letters, digits, `_`, `-` and `.`.
    pub name: String,
    /// How much of the key it counts by.
    pub depth: Depth,
    /// The limiter.
    pub limit: Limit,
    /// A hash of the name that the policy file gives it, by which it is found again after an edit; 0
    /// if the file gives it none.
    pub(crate) tag: u64,
}

/// The limits on a key, decided all or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    parts: Vec<Part>,
    words: usize,
    period: Micros,
}

/// The limits of one rule that count by the same part of the key. Their states are stored together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    depth: Depth,
    limits: Vec<NamedLimit>,
    words: usize,
    /// A hash of its rule and its depth: it stays over edits of the limits.
    place: u64,
    fingerprint: u64,
    identity: u64,
}

impl Limits {
    /// Those that count by less of the key come first.
    pub(crate) fn new(mut limits: Vec<NamedLimit>) -> Self {
        limits.sort_by_key(|limit| limit.depth);
        let period = limits.iter().map(|limit| limit.limit.period()).max().unwrap_or_default();
        let parts: Vec<Part> =
            limits.chunk_by(|one, next| one.depth == next.depth).map(Part::new).collect();
        let words = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.words));
        Self { parts, words, period }
    }

    /// The same as the limits of a rule: an override by its pattern, or the policy's own, whose
    /// pattern is empty.
    pub(crate) fn of_rule(mut self, pattern: &str, on_change: OnChange) -> Self {
        for part in &mut self.parts {
            // no pattern has this byte: it is no UTF-8
            let rule = pattern.bytes().chain([0xff]);
            let depth = part.depth.parameter().into_iter().flat_map(u64::to_le_bytes);
            part.place = fnv1a(rule.chain(depth));
            part.fingerprint = part.checksum(&part.parameters());
            part.identity = if on_change.keeps_states() { part.place } else { part.fingerprint };
        }
        self
    }

    /// A single limit without a name of its own is called after its policy.
    pub(crate) fn name_the_only_one(&mut self, name: &str) {
        if let [part] = self.parts.as_mut_slice()
            && let [only] = part.limits.as_mut_slice()
            && only.name.is_empty()
        {
            only.name = name.into();
        }
    }

    /// Each with its name, at least one: those that count by less of the key first, else in the
    /// order of the policy file.
    pub fn iter(&self) -> impl Iterator<Item = &NamedLimit> {
        self.parts.iter().flat_map(|part| &part.limits)
    }

    /// By the part of the key that they count by, the shortest first.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The only limit, if there is no other.
    #[inline]
    pub(crate) const fn only(&self) -> Option<&Limit> {
        if let [part] = self.parts.as_slice()
            && let [only] = part.limits.as_slice()
        {
            return Some(&only.limit);
        }
        None
    }

    /// All limits in numbers, as [`Policy::of_parameters`](crate::Policy::of_parameters) reads them.
    #[must_use]
    pub fn parameters(&self) -> Vec<u64> {
        limit::write(self.iter().map(|each| &each.limit))
    }

    /// The states of all parts together: this many zeros for a key never seen.
    #[must_use]
    #[inline]
    pub const fn words(&self) -> usize {
        self.words
    }

    /// The longest period of the limits.
    #[must_use]
    pub const fn period(&self) -> Micros {
        self.period
    }

    /// The most that a single request can ever be granted.
    #[must_use]
    pub fn most_at_once(&self) -> u64 {
        let least = self.iter().map(|limit| limit.limit.capacity()).min();
        least.unwrap_or(0).min(MAX_QUANTITY)
    }

    /// Each part with its words out of the words of all.
    pub fn split<'a>(
        &'a self,
        mut words: &'a [u64],
    ) -> impl Iterator<Item = (&'a Part, &'a [u64])> {
        self.parts.iter().map(move |part| {
            let (own, rest) = words.split_at_checked(part.words).unwrap_or((words, &[]));
            words = rest;
            (part, own)
        })
    }
}

impl Part {
    fn new(limits: &[NamedLimit]) -> Self {
        Self {
            depth: limits.first().map_or(Depth::Whole, |limit| limit.depth),
            limits: limits.into(),
            words: limits.iter().fold(0, |sum, limit| sum.saturating_add(limit.limit.words())),
            place: 0,
            fingerprint: 0,
            identity: 0,
        }
    }

    /// Of limits in numbers that hold here: other numbers, another rule or another depth have another.
    pub(crate) fn checksum(&self, limits: &[u64]) -> u64 {
        fnv1a(iter::once(&self.place).chain(limits).flat_map(|word| word.to_le_bytes()))
    }

    /// Its limits in numbers.
    fn parameters(&self) -> Vec<u64> {
        limit::write(self.limits.iter().map(|each| &each.limit))
    }

    /// The same with the tag of each limit behind its numbers: what [`before`](Self::before) reads.
    pub(crate) fn described(&self) -> Vec<u64> {
        let each = self.limits.iter();
        each.flat_map(|each| limit::write([&each.limit]).into_iter().chain([each.tag])).collect()
    }

    /// This part with the limits that were [`described`](Self::described) so; `None` if no limits can
    /// have been.
    pub(crate) fn before(&self, mut described: &[u64]) -> Option<Self> {
        let mut limits = Vec::new();
        while let Some((&length, rest)) = described.split_first() {
            let (parameters, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            let (&tag, rest) = rest.split_first()?;
            let (name, limit) = (String::new(), Limit::from_parameters(parameters).ok()?);
            limits.push(NamedLimit { name, depth: self.depth, limit, tag });
            if limits.len() > MAX_LIMITS {
                return None;
            }
            described = rest;
        }
        Some(Self::new(&limits))
    }

    /// How much of the key it is counted by.
    #[must_use]
    #[inline]
    pub const fn depth(&self) -> Depth {
        self.depth
    }

    /// At least one.
    #[must_use]
    pub fn limits(&self) -> &[NamedLimit] {
        &self.limits
    }

    /// A state for a key never seen: this many zeros.
    #[must_use]
    #[inline]
    pub const fn words(&self) -> usize {
        self.words
    }

    /// What tells its states from those of the policy's other parts, wherever they are kept. Where an
    /// edit starts states afresh it changes with the limits; where an edit keeps them it does not.
    #[must_use]
    #[inline]
    pub const fn identity(&self) -> u64 {
        self.identity
    }

    /// A number that changes with the rule, the depth and the limits.
    #[must_use]
    pub(crate) const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Whether a refusal leaves more than the newest time behind in this state.
    #[must_use]
    pub fn remembers_refusals(&self) -> bool {
        self.limits.iter().any(|each| each.limit.remembers_refusals())
    }

    /// How long a store must keep this state from `now` on: then it equals a fresh one.
    #[must_use]
    pub fn time_to_live(&self, words: &[u64], now: Timestamp) -> Micros {
        let (words, block) = self.unblocked(words);
        let blocked = block.and_then(|block| block.retry_after(now)).unwrap_or_default();
        self.split(words)
            .map(|(limit, words)| {
                // spans rather than a time: a clock that stands at its end still has a tomorrow
                let (newest, reset) = limit.newest_and_reset(words);
                let from_now = newest.saturating_since(now).0.saturating_add(reset.0);
                Micros(from_now.saturating_sub(now.saturating_since(newest).0))
            })
            .max()
            .unwrap_or_default()
            .max(blocked)
            .min(Micros::MAX)
    }

    /// # Errors
    /// [`InvalidState`] if no decision of these limits can have left these words behind.
    pub fn accepts(&self, words: &[u64]) -> Result<(), InvalidState> {
        let given = words.len();
        let (words, block) = self.unblocked(words);
        let blocked = if block.is_some() && self.can_be_blocked() { 2 } else { 0 };
        if words.len() != self.words || given != words.len().saturating_add(blocked) {
            return Err(InvalidState);
        }
        self.split(words).try_for_each(|(limit, words)| limit.accepts(words))?;
        // all that is stored together was written at one time
        let mut newest = self.split(words).map(|(limit, words)| limit.newest_and_reset(words).0);
        match newest.next().is_none_or(|first| newest.all(|next| next == first)) {
            true => Ok(()),
            false => Err(InvalidState),
        }
    }

    /// Each limit with its own words. Too short a state leaves the last ones with too little, which
    /// [`Limit`] refuses.
    pub(crate) fn split<'a>(
        &'a self,
        mut words: &'a [u64],
    ) -> impl Iterator<Item = (&'a Limit, &'a [u64])> {
        self.limits.iter().map(move |each| {
            let (own, rest) = words.split_at_checked(each.limit.words()).unwrap_or((words, &[]));
            words = rest;
            (&each.limit, own)
        })
    }
}
