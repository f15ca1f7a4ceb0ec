//! The limits on a key, and the records in which their states are stored.

mod apart;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::iter;

use tidegate_core::{Ahead, InvalidState, MAX_QUANTITY, Micros, Timestamp, never};

use super::payers::Payers;
use crate::decide::{OnChange, PersistAhead};
use crate::key::Depth;

use crate::fnv::fnv1a;
use smallvec::SmallVec;

use crate::limit::{self, Kind, Limit, NamedLimit};

/// The most limits of a rule. Every limit costs time in every decision.
pub(crate) const MAX_LIMITS: usize = 16;

/// The limits on a key, which are decided all or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    records: Vec<Record>,
    /// All limits in one list, because every decision walks over them.
    each: Vec<LimitFacts>,
    /// The words in which the limits hold their newest times.
    newest: Vec<usize>,
    words: usize,
    period: Micros,
    capacity: u64,
    shadow_or_warn: bool,
    /// One bit for each limit in shadow, the lowest for the first of [`iter`](Self::iter).
    shadows: u16,
    payers: Payers,
}

/// A limit, and what every decision asks of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitFacts {
    pub(crate) limit: Limit,
    pub(crate) words: usize,
    pub(crate) kind: Kind,
    pub(crate) punishes_refusals: bool,
    pub(crate) shadow: bool,
    pub(crate) pays: bool,
}

/// A record: the limits of one rule that count by the same part of the key. Their states are stored
/// together. All clones are one record, of which a state in memory holds one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record(Arc<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    depth: Depth,
    limits: Vec<NamedLimit>,
    words: usize,
    /// A hash of the rule and the depth. An edit of the limits does not change it.
    place: u64,
    /// A hash of what tells the count of the record from others; 0 unless each limit [counts apart](Limits::counting_apart).
    count: u64,
    fingerprint: u64,
    identity: u64,
    /// Whether the record has all limits of the rule that pay.
    has_all_payers: bool,
}

/// The words of a record: the words of its limits, and the words of the block while the key is blocked.
pub(crate) type RecordWords = SmallVec<[u64; 4]>;

impl Limits {
    /// Sorts the limits by depth, the shortest part of the key first.
    pub(crate) fn new(unsorted: Vec<NamedLimit>) -> Self {
        let mut limits = Vec::<NamedLimit>::with_capacity(unsorted.len());
        for limit in unsorted {
            // they are few, and the code of `sort` is large
            let at = limits.partition_point(|before| before.depth <= limit.depth);
            limits.insert(at, limit);
        }
        let each: Vec<LimitFacts> = limits.iter().map(LimitFacts::new).collect();
        let period = each.iter().map(|each| each.limit.period()).max();
        let period = period.unwrap_or_else(|| never(Micros::MAX));
        let mut words = 0_usize;
        let newest_at = |each: &LimitFacts| {
            let at = words.saturating_add(each.limit.newest_at());
            words = words.saturating_add(each.words);
            at
        };
        let newest = each.iter().map(newest_at).collect();
        let mut records: Vec<Record> =
            limits.chunk_by(|one, next| one.depth == next.depth).map(Record::new).collect();
        let shadows = each.iter().zip(0..u16::BITS);
        let shadows = shadows.fold(0, |all, (each, bit)| all | u16::from(each.shadow) << bit);
        let payers = Payers::of(&limits);
        for record in &mut records {
            let pay = record.limits().iter().filter(|limit| limit.payer.is_some()).count();
            record.inner().has_all_payers = pay > 0 && pay == payers.in_order().count();
        }
        let capacity = capacity_of(&each);
        let shadow_or_warn = limits.iter().any(|limit| limit.shadow || limit.warn_at.is_some());
        Self { records, each, newest, words, period, capacity, shadow_or_warn, shadows, payers }
    }

    /// Gives the records the identity of their rule: an override has the rule of its pattern, the policy's own
    /// limits have the empty pattern.
    pub(crate) fn of_rule(mut self, pattern: &str, on_change: OnChange) -> Self {
        for record in &mut self.records {
            // no pattern contains this byte, because it is not UTF-8
            let rule = pattern.bytes().chain([0xff]);
            let depth = record.depth().parameter().into_iter().flat_map(u64::to_le_bytes);
            record.inner().place = fnv1a(rule.chain(depth));
            let fingerprint = record.checksum(&record.parameters());
            let inner = record.inner();
            inner.fingerprint = fingerprint;
            inner.identity = if on_change.keeps_states() { inner.place } else { fingerprint };
        }
        self
    }

    /// Names a single limit without a name after its policy.
    pub(crate) fn name_the_only_one(&mut self, name: &str) {
        // several limits were named already
        let all = self.records.iter_mut().flat_map(|record| &mut record.inner().limits);
        all.filter(|limit| limit.name.is_empty()).for_each(|limit| limit.name = name.into());
    }

    /// The limits, at least one, sorted by depth with the shortest part of the key first. Limits of the same
    /// depth are in the order of the policy file.
    pub fn iter(&self) -> impl Iterator<Item = &NamedLimit> {
        self.records.iter().flat_map(Record::limits)
    }

    /// How often to renew a lease: a third of its shortest time to live, so that it outlives one renewal that fails. `None` if no limit
    /// holds leases.
    #[must_use]
    pub fn renew_every(&self) -> Option<Micros> {
        let leases = self.iter().filter(|limit| limit.limit.kind() == Kind::Lease);
        leases.map(|limit| limit.limit.period()).min().map(|shortest| Micros(shortest.0 / 3))
    }

    /// The records, sorted by depth with the shortest part of the key first.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// All limits in the order of [`iter`](Self::iter).
    #[inline]
    pub(crate) fn each(&self) -> &[LimitFacts] {
        &self.each
    }

    /// The newest time of each limit.
    #[inline]
    pub(crate) fn newest(&self, words: &[u64]) -> impl Iterator<Item = Timestamp> {
        let word = move |&at: &usize| words.get(at).copied().unwrap_or_else(|| never(u64::MAX));
        self.newest.iter().map(word).map(Timestamp)
    }

    /// The limit, if the rule has only one.
    #[inline]
    pub(crate) const fn only(&self) -> Option<&Limit> {
        if let [only] = self.each.as_slice() { Some(&only.limit) } else { None }
    }

    /// All limits in numbers, as [`Policy::of_parameters`](crate::Policy::of_parameters) reads them.
    #[must_use]
    pub fn parameters(&self) -> Vec<u64> {
        limit::write(self.iter())
    }

    /// One bit for each limit in shadow, the lowest for the first of [`iter`](Self::iter).
    #[inline]
    pub(crate) const fn shadows(&self) -> u16 {
        self.shadows
    }

    /// Whether a limit is in shadow or [warns](NamedLimit::warns).
    #[inline]
    pub(super) const fn shadow_or_warn(&self) -> bool {
        self.shadow_or_warn
    }

    /// The number of words of all records together. They are all zero for a new key.
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

    /// The limits that pay.
    #[inline]
    pub(super) const fn payers(&self) -> &Payers {
        &self.payers
    }

    /// The highest cost that the limits can ever grant to one request. A limit in shadow refuses no cost, and of the limits that pay
    /// one is enough.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Each record with its words, out of the words of all records.
    pub fn split<'a>(
        &'a self,
        mut words: &'a [u64],
    ) -> impl Iterator<Item = (&'a Record, &'a [u64])> {
        self.records.iter().map(move |record| {
            let (own, rest) = words.split_at_checked(record.words()).unwrap_or((words, &[]));
            words = rest;
            (record, own)
        })
    }
}

/// See [`Limits::capacity`].
fn capacity_of(each: &[LimitFacts]) -> u64 {
    let of = |limits: fn(&&LimitFacts) -> bool| {
        each.iter().filter(limits).map(|each| each.limit.capacity())
    };
    let enforced = of(|each| !each.shadow && !each.pays);
    let least = enforced.chain(of(|each| each.pays).max()).min();
    least.unwrap_or(0).min(MAX_QUANTITY) // 0 only if all limits are in shadow, which the policy file refuses after this
}

impl LimitFacts {
    fn new(NamedLimit { limit, shadow, payer, .. }: &NamedLimit) -> Self {
        let (kind, punishes_refusals) = (limit.kind(), limit.punishes_refusals());
        Self {
            words: limit.words(),
            limit: limit.clone(),
            kind,
            punishes_refusals,
            shadow: *shadow,
            pays: payer.is_some(),
        }
    }
}

impl Record {
    fn new(limits: &[NamedLimit]) -> Self {
        Self(Arc::new(Inner {
            depth: limits.first().map_or(Depth::Whole, |limit| limit.depth),
            limits: limits.into(),
            words: limits.iter().fold(0, |sum, limit| sum.saturating_add(limit.limit.words())),
            place: 0,
            count: 0,
            fingerprint: 0,
            identity: 0,
            has_all_payers: false,
        }))
    }

    /// To change the record before it has clones.
    fn inner(&mut self) -> &mut Inner {
        Arc::make_mut(&mut self.0)
    }

    /// Whether a state in memory holds a clone of the record, or anything else does.
    pub(crate) fn has_clones(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Whether states of the one are states of the other.
    #[inline]
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.identity == other.0.identity
    }

    /// Whether words of the one are words of the other: an edit may have changed the numbers of a record.
    #[inline]
    pub(crate) fn has_words_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.identity == other.0.identity && self.0.fingerprint == other.0.fingerprint)
    }

    /// A checksum of limits in numbers. It differs for other numbers, another rule or another depth.
    pub(crate) fn checksum(&self, limits: &[u64]) -> u64 {
        fnv1a(iter::once(&self.0.place).chain(limits).flat_map(|word| word.to_le_bytes()))
    }

    /// What the states of the limits depend on, in numbers.
    fn parameters(&self) -> Vec<u64> {
        limit::write_identity(self.0.limits.iter().map(|each| &each.limit))
    }

    /// The limits in numbers, each followed by its tag: [`before`](Self::before) reads this.
    pub(crate) fn described(&self) -> Vec<u64> {
        let each = self.0.limits.iter();
        let each = each
            .flat_map(|each| limit::write_identity([&each.limit]).into_iter().chain([each.tag]));
        each.collect()
    }

    /// This record with the limits of a [description](Self::described); `None` if no limits have it.
    pub(crate) fn before(&self, mut described: &[u64]) -> Option<Self> {
        let mut limits = Vec::new();
        while let Some((&length, rest)) = described.split_first() {
            let (parameters, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            let (&tag, rest) = rest.split_first()?;
            let limit = Limit::from_parameters(parameters).ok()?;
            limits.push(NamedLimit { tag, ..NamedLimit::unnamed(limit, self.0.depth) });
            if limits.len() > MAX_LIMITS {
                return None;
            }
            described = rest;
        }
        Some(Self::new(&limits))
    }

    /// The part of the key that these limits count by.
    #[must_use]
    #[inline]
    pub fn depth(&self) -> Depth {
        self.0.depth
    }

    /// The limits of the record, at least one.
    #[must_use]
    pub fn limits(&self) -> &[NamedLimit] {
        &self.0.limits
    }

    /// A state for a key never seen: this many zeros.
    #[must_use]
    #[inline]
    pub fn words(&self) -> usize {
        self.0.words
    }

    /// The number that tells the states of this record from those of the policy's other records. It changes
    /// with the limits only if an edit starts states afresh.
    #[must_use]
    #[inline]
    pub fn identity(&self) -> u64 {
        self.0.identity
    }

    /// Whether both records belong to the same rule and depth, so that one may be an edit of the other.
    pub(crate) fn is_edit_of(&self, other: &Self) -> bool {
        self.0.place == other.0.place
    }

    /// Whether the record has all limits of the rule that pay.
    pub(crate) fn has_all_payers(&self) -> bool {
        self.0.has_all_payers
    }

    /// A number that changes with the rule, the depth and the limits.
    #[must_use]
    pub(crate) fn fingerprint(&self) -> u64 {
        self.0.fingerprint
    }

    /// Whether a refusal changes more of this state than its newest time.
    #[must_use]
    pub fn remembers_refusals(&self) -> bool {
        self.0.limits.iter().any(|each| each.limit.remembers_refusals())
    }

    /// The first limit whose state cannot be [charged ahead](Limit::charge_ahead).
    pub(crate) fn cannot_charge_ahead(&self) -> Option<&Limit> {
        self.0.limits.iter().map(|each| &each.limit).find(|limit| !limit.charges_ahead())
    }

    /// The newest time of the limits, which they all share.
    pub(crate) fn newest(&self, words: &[u64]) -> Timestamp {
        let first = self.split(words).next();
        first.map_or(Timestamp::EPOCH, |(limit, words)| limit.newest(words))
    }

    /// Charges every limit units that are not granted yet. A block of the key is no part of it. Returns what
    /// the charge covers; `None` if it covers nothing.
    pub(crate) fn charge_ahead(
        &self,
        mut words: &mut [u64],
        PersistAhead { most, time }: PersistAhead,
    ) -> Option<Ahead> {
        let mut all = Ahead { units: most, until: Timestamp(u64::MAX) };
        for NamedLimit { limit, .. } in &self.0.limits {
            let (own, rest) = words.split_at_mut_checked(limit.words())?;
            let Ahead { units, until } = limit.charge_ahead(own, most, time)?;
            all = Ahead { units: all.units.min(units), until: all.until.min(until) };
            words = rest;
        }
        Some(all)
    }

    /// How long a store must keep this state from `now` on. After that the state equals a fresh one.
    #[must_use]
    pub fn time_to_live(&self, words: &[u64], now: Timestamp) -> Micros {
        let (words, block) = self.unblocked(words);
        let blocked = block.map(|block| block.left(now)).unwrap_or_default();
        self.split(words)
            .map(|(limit, words)| {
                // spans rather than times, which could not go beyond the last timestamp
                let (newest, reset) = limit.newest_and_reset(words);
                let from_now = newest.saturating_since(now).0.saturating_add(reset.0);
                Micros(from_now.saturating_sub(now.saturating_since(newest).0))
            })
            .max()
            .unwrap_or_default()
            .max(blocked)
            .min(Micros::MAX)
    }

    /// Checks that decisions of these limits can have written these words.
    ///
    /// # Errors
    /// Fails with [`InvalidState`] if they cannot.
    pub fn accepts(&self, words: &[u64]) -> Result<(), InvalidState> {
        let given = words.len();
        let (words, block) = self.unblocked(words);
        let blocked = if block.is_some() && self.keeps_block() { 2 } else { 0 };
        if words.len() != self.0.words || given != words.len().saturating_add(blocked) {
            return Err(InvalidState);
        }
        self.split(words).try_for_each(|(limit, words)| limit.accepts(words))?;
        // all limits of a record are written at the same time
        let mut newest = self.split(words).map(|(limit, words)| limit.newest(words));
        match newest.next().is_none_or(|first| newest.all(|next| next == first)) {
            true => Ok(()),
            false => Err(InvalidState),
        }
    }

    /// Each limit with its own words. If the state is too short, the last limits get too few words, which
    /// [`Limit`] refuses.
    pub(crate) fn split<'a>(
        &'a self,
        mut words: &'a [u64],
    ) -> impl Iterator<Item = (&'a Limit, &'a [u64])> {
        self.0.limits.iter().map(move |each| {
            let (own, rest) = words.split_at_checked(each.limit.words()).unwrap_or((words, &[]));
            words = rest;
            (&each.limit, own)
        })
    }
}
