//! Deliberately naive limiters that tests compare with the limiters of `tidegate-core`.
//!
//! An [`Oracle`] remembers every grant, and computes each answer anew by scanning all grants in
//! 128-bit integers. It does not compute waits but searches for the first microsecond at which the
//! rule grants. This crate shares no code with `tidegate-core` and is not fast.
#![expect(clippy::panic, reason = "an oracle that breaks ends its test")]

pub mod calendar;
pub mod lease;
pub mod log;
pub mod penalty;
pub mod shed;

/// The answer of an oracle. Spans are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of tidegate_core::Decision")]
pub struct Outcome {
    pub allowed: bool,
    pub remaining: u64,
    pub retry_after: u64,
    pub reset_after: u64,
}

/// The rule to follow, in whole units and microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the fields are the configuration's")]
pub enum Rule {
    /// The level starts full or empty and grows continuously by `units` per `period`. A request is
    /// granted if level ≥ cost.
    TokenBucket { capacity: u64, units: u64, period: u64, starts_empty: bool },
    /// A request is granted if the grants in its window leave room. Window k is [k·period, (k + 1)·period).
    /// If windows start at the `first` grant, the first grant outside of all windows begins one.
    FixedWindow { limit: u64, period: u64, first: bool },
    /// A request is granted if the estimate leaves room. The estimate is over `segments` segments
    /// and a weighted trailing segment.
    SlidingWindow { limit: u64, period: u64, segments: u64 },
    /// A request is granted if the grants in its window leave room. Windows begin at 0 and at each boundary.
    Calendar { limit: u64, boundaries: &'static [u64] },
}

/// A naive limiter for one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Oracle {
    rule: Rule,
    newest: i128,
    /// (Time, units × [`length`](Self::length)) of each grant. A refund is a negative grant.
    grants: Vec<(i128, i128)>,
}

impl Oracle {
    /// Makes the oracle of a key never seen.
    #[must_use]
    pub fn new(rule: Rule) -> Self {
        Self { rule, newest: 0, grants: Vec::new() }
    }

    /// Decides at `now`. Returns `None` if the cost can never be granted. A cost of 0 changes
    /// nothing.
    pub fn decide(&mut self, now: u64, cost: u64) -> Option<Outcome> {
        if i128::from(cost) > self.most() {
            return None;
        }
        if cost == 0 {
            return self.clone().settle_and_decide(now, 0);
        }
        self.settle_and_decide(now, cost)
    }

    /// Gives back `cost` units granted at `granted_at`.
    pub fn refund(&mut self, granted_at: u64, cost: u64) {
        let at = match self.rule {
            Rule::TokenBucket { .. } => self.newest,
            Rule::FixedWindow { .. } | Rule::SlidingWindow { .. } | Rule::Calendar { .. } => {
                i128::from(granted_at)
            }
        };
        let index = self.index(at);
        let granted: i128 = self
            .grants
            .iter()
            .filter(|grant| self.index(grant.0) == index)
            .map(|grant| grant.1)
            .sum();
        let cost = match self.rule {
            Rule::TokenBucket { .. } => i128::from(cost) * self.length(), // `room` caps the level
            Rule::FixedWindow { .. } | Rule::SlidingWindow { .. } | Rule::Calendar { .. } => {
                (i128::from(cost) * self.length()).min(granted)
            }
        };
        if at <= self.newest {
            self.grants.push((at, -cost));
        }
    }

    /// The facts that determine every later answer: the newest time, and the level of a bucket or
    /// the units of each segment that can still count.
    #[must_use]
    pub fn essence(&self) -> Vec<i128> {
        let current = self.index(self.newest);
        let segments = match self.rule {
            Rule::TokenBucket { .. } => return vec![self.newest, self.room(self.newest)],
            Rule::FixedWindow { first: true, .. } => {
                let granted = self.granted(|index| index == current);
                return vec![self.newest, granted, self.until_closed(self.newest).into()];
            }
            Rule::FixedWindow { .. } | Rule::Calendar { .. } => 0,
            Rule::SlidingWindow { segments, .. } => i128::from(segments),
        };
        let held = |age: i128| self.granted(|index| index == current - age);
        std::iter::once(self.newest).chain((0..=segments).map(held)).collect()
    }

    /// The newest time seen.
    #[must_use]
    pub fn newest(&self) -> u64 {
        u64::try_from(self.newest).unwrap_or_default()
    }

    /// Counts units that were already spent. The debt is at most one more limit.
    pub fn charge(&mut self, now: u64, cost: u64) {
        let now = self.settle(now);
        let deepest = match self.rule {
            // `units` are paid off per µs, and the debt must be paid off within 2^53 − 1 µs
            Rule::TokenBucket { units, .. } => {
                (2 * self.most() * self.length()).min(((1 << 53) - 1) * i128::from(units))
            }
            Rule::FixedWindow { .. } | Rule::SlidingWindow { .. } | Rule::Calendar { .. } => {
                (2 * self.most()).min(i128::from(u64::MAX) / self.length()) * self.length()
            }
        };
        let spent = match self.rule {
            Rule::TokenBucket { .. } => self.most() * self.length() - self.room(now),
            Rule::FixedWindow { .. } | Rule::Calendar { .. } => {
                self.granted(|index| index == self.index(now))
            }
            Rule::SlidingWindow { segments, .. } => {
                let oldest = self.index(now) - i128::from(segments);
                self.granted(|index| index > oldest)
            }
        };
        let most = (deepest - spent).max(0);
        self.grants.push((now, (i128::from(cost) * self.length()).min(most)));
    }

    /// Moves to `now` by the clock rule, and returns the time that is taken.
    fn settle(&mut self, now: u64) -> i128 {
        let now = i128::from(now);
        let full = self.most() * self.length();
        if self.starts_empty() && self.newest == 0 && self.room(0) >= full {
            (self.newest, self.grants) = (now, vec![(now, full)]);
        }
        if now < self.newest - self.period() {
            // the newest time came from a clock that was ahead, so all grants move back
            if let Rule::Calendar { .. } = self.rule {
                let held = self.granted(|index| index == self.index(self.newest));
                self.grants = vec![(now, held)];
            }
            let shift = match self.rule {
                Rule::TokenBucket { .. } | Rule::FixedWindow { first: true, .. } => {
                    self.newest - now
                }
                Rule::Calendar { .. } => 0,
                Rule::FixedWindow { .. } | Rule::SlidingWindow { .. } => {
                    (self.index(self.newest) - self.index(now)) * self.length()
                }
            };
            for grant in &mut self.grants {
                grant.0 -= shift;
            }
            self.newest = now;
        }
        self.newest = now.max(self.newest);
        self.newest
    }

    fn settle_and_decide(&mut self, now: u64, cost: u64) -> Option<Outcome> {
        let now = self.settle(now);
        let cost = i128::from(cost);
        // after a jump back the room may be negative, but a peek is always allowed
        let allowed = cost == 0 || self.room(now) >= cost * self.length();
        let retry_after =
            if allowed { 0 } else { self.first(|d| self.room(now + d) >= cost * self.length()) };
        if allowed {
            self.grants.push((now, cost * self.length()));
        }
        let full = self.most() * self.length();
        Some(Outcome {
            allowed,
            remaining: u64::try_from(self.room(now).max(0) / self.length()).ok()?,
            retry_after,
            reset_after: match self.rule {
                Rule::TokenBucket { starts_empty: true, .. } => (1 << 53) - 1,
                Rule::FixedWindow { first: true, .. } => self.until_closed(now),
                _ => self.first(|d| self.room(now + d) >= full),
            },
        })
    }

    /// The room at `t`, in units × [`length`](Self::length).
    fn room(&self, t: i128) -> i128 {
        let length = self.length();
        match self.rule {
            Rule::TokenBucket { capacity, units, .. } => {
                let full = i128::from(capacity) * length;
                let mut level = full;
                let mut last = i128::MIN / 2;
                for &(at, cost) in &self.grants {
                    level = (level + (at - last).min(1 << 70) * i128::from(units)).min(full);
                    level = (level - cost).min(full);
                    last = at;
                }
                (level + (t - last).min(1 << 70) * i128::from(units)).min(full)
            }
            Rule::FixedWindow { limit, .. } | Rule::Calendar { limit, .. } => {
                let current = self.index(t);
                let granted: i128 = self.granted(|index| index == current);
                i128::from(limit) * length - granted
            }
            Rule::SlidingWindow { limit, segments, .. } => {
                let (current, n) = (self.index(t), i128::from(segments));
                let full = self.granted(|index| index > current - n && index <= current);
                let trailing = self.granted(|index| index == current - n);
                let covered = length - (t - current * length);
                i128::from(limit) * length - full - trailing / length * covered
            }
        }
    }

    const fn starts_empty(&self) -> bool {
        matches!(self.rule, Rule::TokenBucket { starts_empty: true, .. })
    }

    fn granted(&self, counts: impl Fn(i128) -> bool) -> i128 {
        self.grants.iter().filter(|grant| counts(self.index(grant.0))).map(|grant| grant.1).sum()
    }

    /// The number of the segment or window at `t`. Windows that start at their first grant have even numbers,
    /// and the time between two windows has an odd number.
    fn index(&self, t: i128) -> i128 {
        if let Rule::Calendar { boundaries, .. } = self.rule {
            return boundaries.iter().map(|boundary| i128::from(i128::from(*boundary) <= t)).sum();
        }
        let Rule::FixedWindow { first: true, period, .. } = self.rule else {
            return t.div_euclid(self.length());
        };
        let (mut begun, mut ends) = (0, i128::MIN);
        for &(at, units) in &self.grants {
            if units > 0 && ends <= at && at <= t {
                (begun, ends) = (begun + 1, at + i128::from(period));
            }
        }
        2 * begun + i128::from(ends <= t)
    }

    /// The span until no window is open, for windows that start at their first grant.
    fn until_closed(&self, now: i128) -> u64 {
        first(|d| self.index(now + d) % 2 == 1)
    }

    /// The length of a segment, or the scale of a bucket's level.
    fn length(&self) -> i128 {
        match self.rule {
            Rule::TokenBucket { period, .. } | Rule::FixedWindow { period, .. } => period.into(),
            Rule::SlidingWindow { period, segments, .. } => (period / segments).into(),
            Rule::Calendar { .. } => 1,
        }
    }

    fn most(&self) -> i128 {
        match self.rule {
            Rule::TokenBucket { capacity, .. } => capacity.into(),
            Rule::FixedWindow { limit, .. }
            | Rule::SlidingWindow { limit, .. }
            | Rule::Calendar { limit, .. } => limit.into(),
        }
    }

    fn period(&self) -> i128 {
        match self.rule {
            Rule::TokenBucket { capacity, units, period, .. } => {
                let (full, units) = (i128::from(capacity) * i128::from(period), i128::from(units));
                (full + units - 1) / units
            }
            Rule::FixedWindow { period, .. } | Rule::SlidingWindow { period, .. } => period.into(),
            Rule::Calendar { boundaries, .. } => {
                let (mut longest, mut before) = (1, 0);
                for &boundary in boundaries {
                    longest = longest.max(boundary - before);
                    before = boundary;
                }
                longest.into()
            }
        }
    }

    /// The first moment at which something is true, counted from now. Nothing changes after the last boundary of a calendar.
    fn first(&self, yes: impl Fn(i128) -> bool) -> u64 {
        if let Rule::Calendar { boundaries, .. } = self.rule {
            let ahead = boundaries.iter().map(|boundary| i128::from(*boundary) - self.newest);
            let mut ahead = std::iter::once(0).chain(ahead.filter(|ahead| *ahead > 0));
            let found = ahead.find(|ahead| yes(*ahead)).unwrap_or((1 << 53) - 1);
            return u64::try_from(found).unwrap_or_default();
        }
        first(yes)
    }
}

/// The least d ≥ 0 at which `yes` is true. `yes` may turn from false to true, but not back.
fn first(yes: impl Fn(i128) -> bool) -> u64 {
    if yes(0) {
        return 0;
    }
    let mut no = 0;
    let mut some_yes = 1;
    while !yes(some_yes) {
        no = some_yes;
        some_yes *= 2;
        assert!(some_yes < 1 << 64, "the rule never says yes");
    }
    while some_yes - no > 1 {
        let middle = no + (some_yes - no) / 2;
        if yes(middle) { some_yes = middle } else { no = middle }
    }
    match u64::try_from(some_yes) {
        Ok(wait) => wait,
        Err(_) => panic!("the rule says yes after more than 64 bits of microseconds"),
    }
}
