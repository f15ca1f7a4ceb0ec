//! Suppression, the reporters' side: refuses the fraction that the master asked for, counts the
//! offered units, and says when to report them.
//!
//! Source: "Building a distributed rate limiter that scales horizontally" (Ably), including its
//! per-channel limiter, which the source plans for the future. [`suppression`](super::suppression)
//! has the master's side, its constants and the parts of 6 s.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | L | limit of the whole account | units per µs |
//! | N | local cap, max(1, ⌊6 s · L⌋) | units |
//! | f | the factor last applied, or 0 after 24 s without a new one | – |
//!
//! If the cap is on, a request of c units is refused if c and the units that this reporter admitted
//! in this part together exceed N. A reporter that alone exceeds the account's limit so needs no
//! round trip to the master. Otherwise the request is refused with probability f. Both kinds of
//! refusal count as suppressed units, because the master must see all offered units.
//!
//! **Guarantee:** with the cap on, at most N units are admitted in each part. An account within
//! 6 s · L in every part is neither capped nor suppressed by the master.
//!
//! A reporter keeps counts for the part in progress and for one part before it. It loses other
//! counts if no report is taken in time ([`Config::take_before`] is for clocks that jump), and it
//! loses counts older than the master's 24 s. A report that is taken and does not arrive is lost
//! too. The master then sees less and refuses less.
//!
//! ```
//! use tidegate_core::shed::reporter::{Config, LocalCap, State, Verdict};
//! use tidegate_core::shed::{Draw, Probability};
//! use tidegate_core::{Micros, Rate, Timestamp};
//!
//! let limit = Rate::new(1, Micros::SECOND).unwrap(); // 6 units a part
//! let config = Config::new(limit, LocalCap::On);
//! let mut state = State::default();
//! let now = Timestamp(1_700_000_006_000_000); // 2 s into a part
//!
//! let verdict = config.decide(&mut state, now, 6, Draw(0)).unwrap();
//! assert_eq!(verdict, Verdict::Admitted);
//! let verdict = config.decide(&mut state, now, 1, Draw(0)).unwrap();
//! assert_eq!(verdict, Verdict::Capped { retry_after: Micros(4_000_000) });
//!
//! assert!(config.report_due(&state, now));
//! let [report, before] = config.take_reports(&mut state, now);
//! let report = report.unwrap();
//! assert_eq!((report.admitted, report.suppressed, before), (6, 1, None));
//!
//! let half = Probability::from_units(1 << 31).unwrap(); // the master's reply
//! config.apply(&mut state, now, half);
//! let later = Timestamp(1_700_000_010_000_000);
//! let verdict = config.decide(&mut state, later, 1, Draw(0)).unwrap();
//! assert_eq!(verdict, Verdict::Suppressed { factor: half });
//! ```

#[cfg(test)]
mod tests;

use super::suppression::{PART, PERIOD, REPORT_EVERY, Report, part_of, since_start};
use super::{Draw, Probability};
use crate::decision::{CostExceedsCapacity, InvalidState};
use crate::limiter::{self, Limiter, Words, WordsMut, small_state};
use crate::never::never;
use crate::quantity::{MAX_QUANTITY, Rate};
use crate::time::{Micros, Timestamp};

/// The span for which a factor holds if it is not renewed. A master that is silent for longer is
/// considered gone.
pub const FACTOR_LIFE: Micros = PERIOD;

/// Whether a reporter refuses on its own the load with which it alone exceeds the account's limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalCap {
    /// The reporter refuses that load at once.
    #[default]
    On,
    /// The reporter refuses only by the master's factor.
    Off,
}

/// A validated reporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    limit: Rate,
    /// N, or 2^53 − 1 if the cap is off.
    most: u64,
}

/// The state of an account. The default is the state of an account never seen.
pub type State<W = [u64; 10]> = limiter::State<Config, W>;

small_state!(Config, 10, newest: 0);

type Array = [u64; 10];

/// The words of a state, by name.
#[derive(Clone, Copy)]
struct Account {
    newest: Timestamp,
    /// The units admitted in the part of `newest`, reported or not.
    admitted: u64,
    /// The unreported units of the part of `newest`.
    current: Counts,
    /// The unreported units of an earlier part.
    previous: Counts,
    /// The number of parts by which `previous` is older, from 1 to 3, or 0 if it is empty.
    age: u64,
    /// The span from `newest` until the next report may be taken.
    report_after: Micros,
    /// The factor in units of 2^-32.
    factor: u64,
    /// The span from `newest` until the factor is dropped, or 0 with a factor of 0.
    factor_left: Micros,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    admitted: u64,
    suppressed: u64,
}

impl Counts {
    const fn is_empty(self) -> bool {
        self.admitted == 0 && self.suppressed == 0
    }
}

/// The answer to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a verdict that nobody reads suppresses nothing"]
pub enum Verdict {
    /// The request may pass.
    Admitted,
    /// The request is refused by the master's factor.
    Suppressed {
        /// The probability of the refusal.
        factor: Probability,
    },
    /// The request is refused by the local cap: this reporter alone would exceed the limit of the
    /// whole account.
    Capped {
        /// The span until the cap has room again, at the start of the next part.
        retry_after: Micros,
    },
}

impl Verdict {
    /// Whether the request may pass.
    pub const fn is_admitted(&self) -> bool {
        matches!(self, Self::Admitted)
    }
}

impl Account {
    #[inline]
    const fn of(words: Array) -> Self {
        let [newest, admitted, a0, s0, a1, s1, age, report_after, factor, factor_left] = words;
        Self {
            newest: Timestamp(newest),
            admitted,
            current: Counts { admitted: a0, suppressed: s0 },
            previous: Counts { admitted: a1, suppressed: s1 },
            age,
            report_after: Micros(report_after),
            factor,
            factor_left: Micros(factor_left),
        }
    }

    #[inline]
    fn has_unreported(&self) -> bool {
        !self.current.is_empty() || !self.previous.is_empty()
    }

    fn is_due(&self) -> bool {
        self.has_unreported() && self.report_after == Micros::ZERO
    }

    fn reports(&self) -> [Option<Report>; 2] {
        let report = |counts: Counts, age: u64| {
            let offered_at = part_of(self.newest).saturating_sub(age).saturating_mul(PART.0);
            let Counts { admitted, suppressed } = counts;
            let report = Report { offered_at: Timestamp(offered_at), admitted, suppressed };
            (!counts.is_empty()).then_some(report)
        };
        [report(self.current, 0), report(self.previous, self.age)]
    }
}

/// Moves to `now`. Every operation begins with this.
#[inline]
fn settle(words: &mut Array, now: Timestamp) {
    let [newest, admitted, a0, s0, a1, s1, age, report_after, factor, factor_left] = words;
    let taken = now.taken_after(Timestamp(*newest), PERIOD);
    // after a clock has returned from a jump ahead, no time has passed: spans and ages stay
    let elapsed = taken.saturating_since(Timestamp(*newest)).0;
    let aged = part_of(taken).saturating_sub(part_of(Timestamp(*newest)));
    *report_after = report_after.saturating_sub(elapsed);
    *factor_left = factor_left.saturating_sub(elapsed);
    *newest = taken.0;
    if aged > 0 {
        *admitted = 0;
        if [*a0, *s0] != [0; 2] {
            (*a1, *s1, *age) = (*a0, *s0, 0);
            (*a0, *s0) = (0, 0);
        }
        if [*a1, *s1] != [0; 2] {
            *age = age.saturating_add(aged);
        }
    }
    // an expired factor or count leaves only zeros behind
    if *factor_left == 0 || *factor == 0 {
        (*factor, *factor_left) = (0, 0);
    }
    if *age >= PARTS_KEPT {
        (*a1, *s1, *age) = (0, 0, 0);
    }
}

/// The account of a state at `now`.
#[inline]
fn at(state: &State<impl Words>, now: Timestamp) -> Account {
    let mut words = state.read();
    settle(&mut words, now);
    Account::of(words)
}

/// The reports of an account, whose units then count as sent.
fn taken(account: &Account, state: &mut State<impl WordsMut>) -> [Option<Report>; 2] {
    if let [_, _, a0, s0, a1, s1, age, report_after, ..] = state.words_mut() {
        (*a0, *s0, *a1, *s1, *age) = (0, 0, 0, 0, 0);
        *report_after = REPORT_EVERY.0;
    }
    account.reports()
}

impl Config {
    /// Makes a reporter of an account with this limit.
    #[must_use]
    pub fn new(limit: Rate, cap: LocalCap) -> Self {
        let in_a_part = u128::from(limit.units()).saturating_mul(u128::from(PART.0));
        let floor = in_a_part.checked_div(u128::from(limit.period().0)).unwrap_or_else(|| never(0));
        let floor = u64::try_from(floor).unwrap_or(MAX_QUANTITY).clamp(1, MAX_QUANTITY);
        Self { limit, most: if cap == LocalCap::On { floor } else { MAX_QUANTITY } }
    }

    /// The limit of the account.
    #[must_use]
    pub const fn limit(&self) -> Rate {
        self.limit
    }

    /// The most units that can be admitted at once: N if the cap is on, else 2^53 − 1.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.most
    }

    /// Decides on a request of `units`. A request of 0 units is a peek.
    ///
    /// # Errors
    /// Returns [`CostExceedsCapacity`] if `units` is above [`capacity`](Self::capacity). The state
    /// does not change then.
    pub fn decide(
        &self,
        state: &mut State<impl WordsMut>,
        now: Timestamp,
        units: u64,
        draw: Draw,
    ) -> Result<Verdict, CostExceedsCapacity> {
        if units == 0 {
            return self.peek(state, now, 0, draw);
        }
        CostExceedsCapacity::check(units, self.most)?;
        let Some(words) = state.words_mut().first_chunk_mut() else {
            return Err(never(CostExceedsCapacity { cost: units, capacity: 0 })); // a state always has its words
        };
        settle(words, now);
        let verdict = self.answer(&Account::of(*words), units, draw);
        let [_, in_part, admitted, suppressed, ..] = words;
        let plus = |count: &mut u64| *count = count.saturating_add(units).min(MAX_QUANTITY);
        if verdict.is_admitted() {
            [in_part, admitted].into_iter().for_each(plus);
        } else {
            plus(suppressed);
        }
        Ok(verdict)
    }

    /// The answer that [`decide`](Self::decide) would give. The state does not change.
    ///
    /// # Errors
    /// Returns the error that [`decide`](Self::decide) would return.
    pub fn peek(
        &self,
        state: &State<impl Words>,
        now: Timestamp,
        units: u64,
        draw: Draw,
    ) -> Result<Verdict, CostExceedsCapacity> {
        CostExceedsCapacity::check(units, self.most)?;
        Ok(self.answer(&at(state, now), units, draw))
    }

    /// Whether units are unreported and [`REPORT_EVERY`] has passed since the last report.
    #[must_use]
    pub fn report_due(&self, state: &State<impl Words>, now: Timestamp) -> bool {
        at(state, now).is_due()
    }

    /// Takes the reports to send, the part in progress first. Returns no report unless one
    /// [is due](Self::report_due). Reports that are taken count as sent.
    pub fn take_reports(
        &self,
        state: &mut State<impl WordsMut>,
        now: Timestamp,
    ) -> [Option<Report>; 2] {
        self.advance(state, now);
        let account = Account::of(state.read());
        if account.is_due() { taken(&account, state) } else { [None; 2] }
    }

    /// Takes the reports, due or not, if a move to `now` would lose units because another part begins. Otherwise takes none.
    /// The state does not move.
    pub fn take_before(
        &self,
        state: &mut State<impl WordsMut>,
        now: Timestamp,
    ) -> [Option<Report>; 2] {
        let account = Account::of(state.read());
        let now = now.taken_after(account.newest, PERIOD);
        let both_are_full = !account.current.is_empty() && !account.previous.is_empty();
        let loses = both_are_full && part_of(now) > part_of(account.newest);
        if loses { taken(&account, state) } else { [None; 2] }
    }

    /// Applies the factor that the master replied. It holds for [`FACTOR_LIFE`].
    pub fn apply(&self, state: &mut State<impl WordsMut>, now: Timestamp, factor: Probability) {
        self.advance(state, now);
        if let [.., own, left] = state.words_mut() {
            let factor = factor.units();
            (*own, *left) = (factor, if factor == 0 { 0 } else { FACTOR_LIFE.0 });
        }
    }

    #[inline]
    fn answer(&self, settled: &Account, units: u64, draw: Draw) -> Verdict {
        if settled.admitted.saturating_add(units) > self.most && self.most < MAX_QUANTITY {
            let left = PART.0.saturating_sub(since_start(settled.newest).0);
            return Verdict::Capped { retry_after: Micros(left) };
        }
        let factor = Probability::from_units(settled.factor).unwrap_or(Probability::CERTAIN);
        if factor.happens(draw) {
            return Verdict::Suppressed { factor };
        }
        Verdict::Admitted
    }
}

impl Limiter for Config {
    fn words(&self) -> usize {
        10
    }

    /// The longest span for which a state remembers anything.
    fn period(&self) -> Micros {
        PERIOD
    }

    fn advance(&self, state: &mut State<impl WordsMut>, now: Timestamp) {
        if let Some(words) = state.words_mut().first_chunk_mut() {
            settle(words, now);
        }
    }

    fn reset_after(&self, state: &State<impl Words>) -> Micros {
        let account = Account::of(state.read());
        let until_aged =
            |parts: u64| PART.0.saturating_mul(parts).saturating_sub(since_start(account.newest).0);
        let parts = if !account.current.is_empty() {
            PARTS_KEPT
        } else if !account.previous.is_empty() {
            PARTS_KEPT.saturating_sub(account.age)
        } else {
            u64::from(account.admitted > 0)
        };
        Micros(until_aged(parts)).max(account.report_after).max(account.factor_left)
    }

    fn accepts(&self, state: &State<impl Words>) -> Result<(), InvalidState> {
        let account = Account::of(state.read());
        let Account { admitted, current, previous, age, factor, .. } = account;
        let counts = [current.suppressed, previous.admitted, previous.suppressed];
        let counted = admitted <= self.most
            && current.admitted <= admitted
            && counts.iter().all(|&count| count <= MAX_QUANTITY)
            && previous.admitted <= self.most
            && age < PARTS_KEPT
            && (age == 0) == previous.is_empty();
        let timed = account.report_after <= REPORT_EVERY
            && account.factor_left <= FACTOR_LIFE
            && Probability::from_units(factor).is_some()
            && (factor == 0) == (account.factor_left == Micros::ZERO);
        if counted && timed { Ok(()) } else { Err(InvalidState) }
    }
}

/// The number of parts that the master keeps. Older parts count for nothing there.
const PARTS_KEPT: u64 = PERIOD.0 / PART.0;
