//! The limits that hold for a key, and the states that they are counted in.

use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::{ConfigError, InvalidState, MAX_QUANTITY, Micros, Timestamp};

use crate::fnv::fnv1a;
use crate::key::Depth;
use crate::limit::{self, Limit};

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
}

/// The limits on a key, decided all or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    parts: Vec<Part>,
    words: usize,
    period: Micros,
}

/// The limits that count by the same part of the key. Their states are stored together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    depth: Depth,
    limits: Vec<NamedLimit>,
    words: usize,
    fingerprint: u64,
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
        let depth = limits.first().map_or(Depth::Whole, |limit| limit.depth);
        let parameters = limit::write(limits.iter().map(|limit| &limit.limit));
        Self {
            depth,
            limits: limits.into(),
            words: limits.iter().fold(0, |sum, limit| sum.saturating_add(limit.limit.words())),
            fingerprint: fnv1a(
                depth.parameter().into_iter().chain(parameters).flat_map(u64::to_le_bytes),
            ),
        }
    }

    /// The limits of a stored state.
    pub(crate) fn of_parameters(depth: Depth, parameters: &[u64]) -> Result<Self, ConfigError> {
        let name = String::new();
        let limits = limit::read(parameters)?;
        let (found, most) = (limits.len(), MAX_LIMITS);
        if found > most {
            let [found, most] = [found, most].map(|count| u64::try_from(count).unwrap_or(u64::MAX));
            return Err(ConfigError::OutOfRange { field: "limits", found, least: 1, most });
        }
        let limits = limits.into_iter();
        let named = limits.map(|limit| NamedLimit { name: name.clone(), depth, limit });
        Ok(Self::new(&named.collect::<Vec<_>>()))
    }

    /// Its limits in numbers.
    pub(crate) fn parameters(&self) -> Vec<u64> {
        limit::write(self.limits.iter().map(|each| &each.limit))
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

    /// A number that changes with the limits.
    #[must_use]
    #[inline]
    pub const fn fingerprint(&self) -> u64 {
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
        self.split(words)
            .map(|(limit, words)| {
                // spans rather than a time: a clock that stands at its end still has a tomorrow
                let (newest, reset) = limit.newest_and_reset(words);
                let from_now = newest.saturating_since(now).0.saturating_add(reset.0);
                Micros(from_now.saturating_sub(now.saturating_since(newest).0))
            })
            .max()
            .unwrap_or_default()
            .min(Micros::MAX)
    }

    /// # Errors
    /// [`InvalidState`] if no decision of these limits can have left these words behind.
    pub fn accepts(&self, words: &[u64]) -> Result<(), InvalidState> {
        if words.len() != self.words {
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
