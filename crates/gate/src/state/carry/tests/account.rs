//! What docs/policies.md promises of an edit, written down naively: how many units of a limit count as
//! used, and what an edit makes of them.

use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

pub(super) const SECOND: u64 = 1_000_000;

/// A limit of units over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) capacity: u64,
    kind: Kind,
}

/// Spans of time in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bucket {
        a_second: u64,
        starts_empty: bool,
    },
    Fixed {
        period: u64,
    },
    /// A calendar's day, which is UTC's.
    Day,
    /// Windows that start at the first grant.
    First {
        period: u64,
    },
    Sliding {
        period: u64,
        segments: u64,
    },
    Log {
        period: u64,
    },
}

impl Spec {
    pub(super) fn any() -> impl Strategy<Value = Self> {
        let bucket = |(a_second, starts_empty)| Kind::Bucket { a_second, starts_empty };
        let kind = prop_oneof![
            (1..5_u64, any::<bool>()).prop_map(bucket),
            (1..4_u64).prop_map(|period| Kind::Fixed { period }),
            Just(Kind::Day),
            (1..4_u64).prop_map(|period| Kind::First { period }),
            (1..4_u64, prop::sample::select(vec![1, 2, 4]))
                .prop_map(|(period, segments)| Kind::Sliding { period, segments }),
            (1..4_u64).prop_map(|period| Kind::Log { period }),
        ];
        (1..13_u64, kind).prop_map(|(capacity, kind)| Self { capacity, kind })
    }

    /// As it stands in the policy file.
    pub(super) fn text(&self, name: &str, depth: &str) -> String {
        let limit = self.capacity;
        let numbers = match self.kind {
            Kind::Bucket { a_second, starts_empty } => {
                let start = if starts_empty { "empty" } else { "full" };
                format!(
                    "algorithm = 'token_bucket', capacity = {limit}, rate = '{a_second}/s', \
                     start = '{start}'"
                )
            }
            Kind::Fixed { period } => {
                format!("algorithm = 'fixed_window', limit = {limit}, period = '{period}s'")
            }
            Kind::Day => format!("algorithm = 'calendar', limit = {limit}, period = 'day'"),
            Kind::First { period } => format!(
                "algorithm = 'fixed_window', limit = {limit}, period = '{period}s', start = 'first'"
            ),
            Kind::Sliding { period, segments } => format!(
                "algorithm = 'sliding_window', limit = {limit}, period = '{period}s', \
                 segments = {segments}"
            ),
            Kind::Log { period } => {
                format!("algorithm = 'sliding_log', rates = ['{limit}/{period}s']")
            }
        };
        format!("{{ name = '{name}', {depth} {numbers} }}")
    }

    pub(super) const fn starts_empty(&self) -> bool {
        matches!(self.kind, Kind::Bucket { starts_empty: true, .. })
    }

    /// The most that it remembers as used: a debt of one capacity, but for a log.
    pub(super) const fn most(&self) -> u64 {
        if let Kind::Log { .. } = self.kind { self.capacity } else { 2 * self.capacity }
    }
}

/// What one limit has granted.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) spec: Spec,
    /// Of a bucket, in millionths of a unit.
    spent: u64,
    /// Of the others: when, and how many; the newest last.
    uses: Vec<(u64, u64)>,
    /// Of windows that start at the first grant: the start of the window that is open.
    begin: Option<u64>,
    now: u64,
}

impl Account {
    pub(super) fn new(spec: Spec, now: u64) -> Self {
        let spent = if spec.starts_empty() { spec.capacity * SECOND } else { 0 };
        Self { spec, spent, uses: Vec::new(), begin: None, now }
    }

    /// The time of the last request.
    pub(super) const fn now(&self) -> u64 {
        self.now
    }

    /// What no longer counts leaves.
    pub(super) fn advance(&mut self, now: u64) {
        if let Kind::Bucket { a_second, .. } = self.spec.kind {
            self.spent = self.spent.saturating_sub(a_second * (now - self.now));
        }
        self.now = now;
        let kind = self.spec.kind;
        if let (Kind::First { period }, Some(begin)) = (kind, self.begin)
            && now - begin >= period * SECOND
        {
            (self.begin, self.uses) = (None, Vec::new());
        }
        self.uses.retain(|(at, _)| match kind {
            Kind::Bucket { .. } => false,
            Kind::Fixed { period } => at / (period * SECOND) == now / (period * SECOND),
            Kind::Day => at / DAY == now / DAY,
            Kind::First { .. } => true,
            Kind::Sliding { segments, .. } => age(kind, *at, now) <= segments,
            Kind::Log { period } => now - at < period * SECOND,
        });
    }

    /// The units that count, a started one as a whole.
    pub(super) fn used(&self) -> u64 {
        let (kind, now) = (self.spec.kind, self.now);
        match kind {
            Kind::Bucket { .. } => self.spent.div_ceil(SECOND),
            Kind::Fixed { .. } | Kind::Day | Kind::First { .. } | Kind::Log { .. } => {
                self.uses.iter().map(|(_, units)| units).sum()
            }
            Kind::Sliding { period, segments } => {
                let length = period * SECOND / segments;
                let trailing: u64 = self.of_age(segments);
                let covered = length - now % length;
                self.in_segments(segments) + (trailing * covered).div_ceil(length)
            }
        }
    }

    fn in_segments(&self, segments: u64) -> u64 {
        (0..segments).map(|k| self.of_age(k)).sum()
    }

    /// The units of the segment so many segments ago.
    fn of_age(&self, k: u64) -> u64 {
        let of = self.uses.iter().filter(|(at, _)| age(self.spec.kind, *at, self.now) == k);
        of.map(|(_, units)| units).sum()
    }

    /// Counts units, whether there is room or not.
    pub(super) fn add(&mut self, units: u64) {
        let most = self.spec.most();
        let units = match self.spec.kind {
            Kind::Bucket { .. } => {
                let most = self.spent.max(most * SECOND);
                self.spent = most.min(self.spent + units * SECOND);
                return;
            }
            Kind::Fixed { .. } | Kind::Day | Kind::First { .. } => {
                units.min(most.saturating_sub(self.used()))
            }
            Kind::Sliding { segments, .. } => {
                units.min(most.saturating_sub(self.in_segments(segments)))
            }
            Kind::Log { .. } => units,
        };
        self.uses.extend((0..units).map(|_| (self.now, 1)));
        if let (Kind::First { .. }, false) = (self.spec.kind, self.uses.is_empty()) {
            self.begin = self.begin.or(Some(self.now));
        }
        if let Kind::Log { .. } = self.spec.kind {
            let lost = self.uses.len().saturating_sub(usize::try_from(most).unwrap());
            self.uses.drain(..lost);
        }
    }

    /// Gives back units of a grant of `granted`, except those that an edit has made the limit forget.
    pub(super) fn refund(&mut self, units: u64, granted: u64, granted_at: u64) {
        let (kind, now) = (self.spec.kind, self.now);
        let forgotten = granted.saturating_sub(self.spec.most());
        let (units, granted) = (units.saturating_sub(forgotten), granted - forgotten);
        if let Kind::Bucket { a_second, .. } = kind {
            let inflow = (a_second * (now - granted_at)).div_ceil(SECOND);
            let units = units.min(granted.saturating_sub(inflow));
            self.spent = self.spent.saturating_sub(units * SECOND);
            return;
        }
        let begin = self.begin;
        for _ in 0..units {
            let counted_together = |at: u64| match kind {
                Kind::Fixed { period } => at / (period * SECOND) == granted_at / (period * SECOND),
                Kind::Day => at / DAY == granted_at / DAY,
                Kind::First { .. } => begin.is_some_and(|begin| begin <= granted_at),
                Kind::Sliding { .. } => age(kind, at, now) == age(kind, granted_at, now),
                _ => at == granted_at,
            };
            if let Some(place) = self.uses.iter().rposition(|(at, _)| counted_together(*at)) {
                self.uses.remove(place);
            }
        }
    }

    /// Whether another limit cannot count at `now` all that was used.
    pub(super) fn exceeds(&self, spec: Spec, now: u64) -> bool {
        let mut old = self.clone();
        match (self.spec.kind, spec.kind) {
            (Kind::Bucket { .. }, Kind::Bucket { .. }) => old.advance(now),
            (Kind::Log { .. }, _) => return u64::try_from(self.uses.len()).unwrap() > spec.most(),
            _ => {}
        }
        spec != self.spec && old.used() > spec.most()
    }

    /// The promise of an edit, which comes to the limit with a request at `now`.
    pub(super) fn edited(&self, spec: Spec, proportional: bool, now: u64) -> Self {
        let is_bucket = |spec: Spec| matches!(spec.kind, Kind::Bucket { .. });
        let mut old = self.clone();
        if spec == self.spec {
            return old;
        }
        if is_bucket(spec) && is_bucket(self.spec) {
            old.advance(now); // until then units came back at the old rate
        }
        old.carried(spec, proportional)
    }

    fn carried(&self, spec: Spec, proportional: bool) -> Self {
        let (to, from) = if proportional { (spec.capacity, self.spec.capacity) } else { (1, 1) };
        let mut edited = Self { spec, spent: 0, uses: Vec::new(), begin: None, now: self.now };
        if let (Kind::Log { .. }, Kind::Log { .. }) = (spec.kind, self.spec.kind) {
            let count = u64::try_from(self.uses.len()).unwrap();
            // each unit keeps its time
            for k in (0..(count * to).div_ceil(from)).rev() {
                let of = usize::try_from(count - 1 - k * from / to).unwrap();
                edited.uses.push(self.uses[of]);
            }
            edited.add(0); // the oldest leave, if they are too many
            edited.advance(self.now);
            return edited;
        }
        let is_first = |spec: Spec| matches!(spec.kind, Kind::First { .. });
        if is_first(spec) && is_first(self.spec) {
            edited.begin = self.begin; // the window stays where it is
        }
        let used = self.used();
        let mut carried = (used * to).div_ceil(from);
        if spec.starts_empty() {
            carried = carried.max(used + spec.capacity.saturating_sub(self.spec.capacity));
        }
        edited.add(carried); // at the time of the last request
        edited.advance(self.now);
        edited
    }
}

const DAY: u64 = 86_400 * SECOND;

/// By how many segments a time is past.
fn age(kind: Kind, at: u64, now: u64) -> u64 {
    let Kind::Sliding { period, segments } = kind else { return 0 };
    let length = period * SECOND / segments;
    now / length - at / length
}
