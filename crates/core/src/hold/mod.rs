//! Holds: grants whose true cost is known only afterwards.
//!
//! A limiter that [holds](Config) takes the estimate of such a request like any other cost, and remembers it: the grant is a *hold*
//! until its true cost is [committed](Config::commit), or until it ends. Used and held units together never exceed what the limiter
//! grants. So a [refund](Config::refund) gives back no units that are held.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | e, t | estimate of a hold, and the time of its grant | units, µs |
//! | c | true cost; 0 if the hold is released | units |
//! | n | the most holds of a key: live ones, and those that ended less than a stated span ago | – |
//!
//! A commit puts c in the place of e *at t*: the state is then, to the unit, the one to which the whole history would have led with
//! the true costs. That holds however many calls run side by side and in whatever order they commit. Each limiter says
//! how. c may exceed e, and what the limiter has room for: that is debt, as after a [charge](crate::RateLimiter::charge).
//!
//! A commit is taken once. For a stated span the key remembers how each hold ended, and a repeated commit gets the same answer and
//! changes nothing.
//!
//! A hold that nobody commits ends by itself: its units come back as if c were 0, or they [stay charged](OnExpiry). A commit that
//! comes later still charges, but at its own time, and says that it was [late](Committed::late).
//!
//! **Guarantee:** what was reserved is what was committed, came back, stayed charged, or is live.
//!
//! ```
//! use tidegate_core::hold::{self, OnExpiry, Reserved, Terms};
//! use tidegate_core::{Limiter, Micros, Rate, Timestamp, bucket, lease::Id};
//!
//! let minute = Micros(60_000_000);
//! let bucket = bucket::Config::new(60_000, Rate::new(60_000, minute).unwrap()).unwrap();
//! let terms = Terms { most: 8, longest: minute, remember: minute, on_expiry: OnExpiry::Release };
//! let tokens: hold::Config = hold::Config::new(bucket, terms).unwrap();
//! let mut words = vec![0; tokens.words()];
//! let mut state = tokens.state(&mut words[..]).unwrap();
//! let at = |seconds: u64| Timestamp(1_700_000_000_000_000 + seconds * 1_000_000);
//!
//! // three calls side by side reserve 20,000 tokens each, and use 500
//! let call = |number| Id([0, number]);
//! for number in 0..3 {
//!     let reserved = tokens.reserve(&mut state, at(0), call(number), 20_000, minute).unwrap();
//!     assert!(matches!(reserved, Reserved::Decided(decision) if decision.is_allowed()));
//! }
//! assert_eq!(tokens.decide(&mut state, at(0), 0).unwrap().remaining(), 0);
//! for number in 0..3 {
//!     assert_eq!(tokens.commit(&mut state, at(20), call(number), 500).charged, 500);
//! }
//! // 1,500 were used, and 20 s are enough for them to come back
//! assert_eq!(tokens.decide(&mut state, at(20), 0).unwrap().remaining(), 60_000);
//! ```

mod counter;
mod edit;
mod key;
pub(crate) mod list;
pub(crate) mod reservable;
mod terms;
#[cfg(test)]
mod tests;

use crate::decision::{Answer, CostExceedsCapacity, InvalidState};
use crate::lease::Id;
use crate::limiter::{self, Limiter, RateLimiter, Words, WordsMut, sealed};
use crate::quantity::{ConfigError, MAX_QUANTITY, in_bounds, in_range};
use crate::time::{Micros, Timestamp};
use crate::window::Refund;
use crate::window::calendar::Boundaries;

use self::counter::Counting;
pub use self::counter::{Counter, Listed};
pub use self::edit::Times;
use self::key::Key;
use self::list::{HEAD, Hold, Holds, Outcome};
pub use self::terms::{Committed, Known, MAX_HOLDS, OnExpiry, Reserved, Terms};

/// A limiter that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config<B = Listed> {
    counter: Counter<B>,
    terms: Terms,
    /// The most holds; how many words a state has, how many of them are the limiter's, and how many a live hold has.
    most: usize,
    words: usize,
    counted: usize,
    width: usize,
}

/// The state of a key: the newest time; the words of the limiter; the number of live holds, the number of holds that have ended, the
/// earliest time at which something ends, what the limiter knew before the first hold; and the holds. [`Limiter::state`] makes it.
pub type State<W, B = Listed> = limiter::State<Config<B>, W>;

impl<B> sealed::Sealed for Config<B> {}

impl<B: Boundaries> Config<B> {
    /// Makes a limiter that holds on these terms.
    ///
    /// # Errors
    /// Returns [`ConfigError::OutOfRange`] if `most` is 0 or above [`MAX_HOLDS`], or if a span is 0, or both spans
    /// together are above 2^53 − 1 µs.
    pub fn new(counter: impl Into<Counter<B>>, terms: Terms) -> Result<Self, ConfigError> {
        in_bounds("most", terms.most, 1, MAX_HOLDS)?;
        in_range("longest", terms.longest.0)?;
        // the longest wait for a place is both together
        in_bounds("remember", terms.remember.0, 1, MAX_QUANTITY.saturating_sub(terms.longest.0))?;
        let counter = counter.into().beside_holds();
        let counted = counter.counting().words();
        let width = Holds::<&[u64]>::width(counter.counting().since());
        let most = usize::try_from(terms.most).unwrap_or(usize::MAX);
        let before = counted.saturating_add(1).saturating_add(HEAD);
        let words = before.saturating_add(most.saturating_mul(width));
        Ok(Self { counter, terms, most, words, counted, width })
    }

    /// The limiter that counts the units.
    #[must_use]
    pub const fn counter(&self) -> &Counter<B> {
        &self.counter
    }

    fn counting(&self) -> &dyn Counting {
        self.counter.counting()
    }

    /// The most units that can be granted at once.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.counting().capacity()
    }

    /// The terms of the holds.
    #[must_use]
    pub const fn terms(&self) -> Terms {
        self.terms
    }

    /// Reserves `cost` units for at most `span`, cut to the longest span of the [terms](Terms). A cost of 0 is a peek.
    ///
    /// # Errors
    /// Returns [`CostExceedsCapacity`] if `cost` is above the limiter's [capacity](Self::capacity). The state does not change
    /// then.
    pub fn reserve(
        &self,
        state: &mut State<impl WordsMut, B>,
        now: Timestamp,
        id: Id,
        cost: u64,
        span: Micros,
    ) -> Result<Reserved, CostExceedsCapacity> {
        CostExceedsCapacity::check(cost, self.capacity())?;
        let mut key = self.key(state).ok_or(CostExceedsCapacity { cost, capacity: 0 })?;
        key.reserve(now, id, cost, span)
    }

    /// Says what [`reserve`](Self::reserve) would answer for this id, or [`decide`](Self::decide) without an id, and changes `copy`, a
    /// copy of the key's state. A refusal has the exact wait: the same question is refused one microsecond before its end and granted
    /// at its end, because holds that end meanwhile are counted. `reserve` and `decide` do not count them. An id whose hold has ended
    /// is refused until the key forgets it.
    ///
    /// # Errors
    /// Returns [`CostExceedsCapacity`] if `cost` is above the limiter's [capacity](Self::capacity).
    pub fn peek(
        &self,
        copy: &mut State<impl WordsMut, B>,
        now: Timestamp,
        id: Option<Id>,
        cost: u64,
    ) -> Result<Reserved, CostExceedsCapacity> {
        CostExceedsCapacity::check(cost, self.capacity())?;
        let mut key = self.key(copy).ok_or(CostExceedsCapacity { cost, capacity: 0 })?;
        key.peek(now, id, cost)
    }

    /// Charges what a hold has really cost, once. A cost of 0 releases the hold.
    pub fn commit(
        &self,
        state: &mut State<impl WordsMut, B>,
        now: Timestamp,
        id: Id,
        actual: u64,
    ) -> Committed {
        let key = self.key(state);
        key.map_or(Committed { charged: 0, late: true }, |mut key| key.commit(now, id, actual))
    }

    /// Decides on a request of `cost` units that is known now. A cost of 0 is a peek, but moves the state to `now`.
    ///
    /// # Errors
    /// Returns [`CostExceedsCapacity`] as [`RateLimiter::decide`](crate::RateLimiter::decide) does.
    #[inline]
    pub fn decide(&self, state: &mut State<impl WordsMut, B>, now: Timestamp, cost: u64) -> Answer {
        // the most frequent limiter, and keys without holds: so short that a call by a table of functions would double its time
        if let Counter::TokenBucket(bucket) = &self.counter
            && self.has_no_holds(state)
            && let Some((newest, rest)) = state.words_mut().split_first_mut()
            && let Some(words) = rest.get_mut(..self.counted)
        {
            let mut counted = limiter::State::over(words);
            let answer = RateLimiter::decide(bucket, &mut counted, now, cost);
            *newest = counted.newest().0;
            return answer;
        }
        CostExceedsCapacity::check(cost, self.capacity())?;
        self.key(state).ok_or(CostExceedsCapacity { cost, capacity: 0 })?.decide(now, cost)
    }

    /// Charges units that were already spent, as [`RateLimiter::charge`](crate::RateLimiter::charge) does.
    pub fn charge(&self, state: &mut State<impl WordsMut, B>, now: Timestamp, cost: u64) {
        self.key(state).into_iter().for_each(|mut key| key.charge(now, cost));
    }

    /// Returns units of a grant that was no reservation, as [`RateLimiter::refund`](crate::RateLimiter::refund) does, but at most
    /// those that are used beyond the live holds.
    pub fn refund(&self, state: &mut State<impl WordsMut, B>, refund: Refund) {
        self.key(state).into_iter().for_each(|mut key| key.refund(refund));
    }

    /// Whether the key has no live and no remembered holds. If so, the words of the limiter alone say what the key is granted.
    #[must_use]
    pub fn has_no_holds(&self, state: &State<impl Words, B>) -> bool {
        self.holds(state).is_some_and(|holds| holds.are_none())
    }

    /// Whether no hold ends from the newest time to `now`, and none is forgotten. If so, the words of the limiter alone say
    /// whether a request without an id is granted at `now`.
    #[must_use]
    pub fn ends_nothing(&self, state: &State<impl Words, B>, now: Timestamp) -> bool {
        state.newest() <= now && self.holds(state).is_some_and(|holds| !holds.is_due(now))
    }

    /// Whether the key has a place for another hold at its newest time.
    #[must_use]
    pub fn has_room(&self, state: &State<impl Words, B>) -> bool {
        self.holds(state).is_some_and(|holds| holds.has_room())
    }

    /// The units of a live hold, and the time at which it ends.
    #[must_use]
    pub fn find(&self, state: &State<impl Words, B>, id: Id) -> Option<(u64, Timestamp)> {
        let holds = self.holds(state)?;
        let Hold { units, until, .. } = holds.get(holds.find(id)?);
        Some((units, until))
    }

    /// What the key knows of an id at its newest time; `None` if the id is new.
    #[must_use]
    pub fn known(&self, state: &State<impl Words, B>, id: Id) -> Option<Known> {
        let holds = self.holds(state)?;
        if holds.find(id).is_some() {
            return Some(Known::Live);
        }
        let ended = holds.outcomes().find(|(own, ..)| *own == id);
        ended.map(|(_, _, until)| Known::Ended { until })
    }

    /// Remembers the holds of a key that counted under `old`, which has other numbers. The live ones end, and their units stay
    /// charged: a later commit charges what exceeds the estimate. The words of the limiter are not carried over.
    pub fn remember_holds_of(
        &self,
        state: &mut State<impl WordsMut, B>,
        old: &Self,
        held: &State<impl Words, B>,
    ) {
        let (Some(mut key), Some(before)) = (self.key(state), old.holds(held)) else { return };
        let longest = held.newest().saturating_add(self.terms.remember);
        for (id, outcome, until) in before.outcomes() {
            key.holds.end(id, outcome, until.min(longest));
        }
        for Hold { id, units, .. } in before.each() {
            let outcome = Outcome { charged: units, late: true, is_final: false };
            key.holds.end(id, outcome, longest);
        }
    }

    /// The words of the limiter that counts the units.
    #[must_use]
    pub fn counted<'a>(&self, state: &'a State<impl Words, B>) -> &'a [u64] {
        let words = state.words();
        words.get(1..).and_then(|rest| rest.get(..self.counted)).unwrap_or(words)
    }

    /// What the limiter that counts the units says of a request, as if nothing were held that ends meanwhile.
    ///
    /// # Errors
    /// Returns [`CostExceedsCapacity`] as [`RateLimiter::peek`](crate::RateLimiter::peek) does.
    pub fn peek_counted(&self, state: &State<impl Words, B>, now: Timestamp, cost: u64) -> Answer {
        self.counting().peek(self.counted(state), now, cost)
    }

    /// Changes the words of the limiter that counts the units. The state must have been [advanced](Limiter::advance). `None` if the
    /// state is that of another limiter.
    pub fn change_counted<R>(
        &self,
        state: &mut State<impl WordsMut, B>,
        change: impl FnOnce(&mut [u64]) -> R,
    ) -> Option<R> {
        self.key(state).map(|key| change(key.words))
    }

    /// The units that are held.
    #[must_use]
    pub fn held(&self, state: &State<impl Words, B>) -> u64 {
        self.holds(state).map_or(u64::MAX, |holds| {
            holds.each().fold(0, |sum, hold| sum.saturating_add(hold.units))
        })
    }

    fn holds<'a>(&self, state: &'a State<impl Words, B>) -> Option<Holds<&'a [u64]>> {
        let has_its_words = state.words().len() == self.words;
        let (_, rest) = state.words().split_first()?;
        let (_, holds) = rest.split_at_checked(self.counted)?;
        Holds::over(holds, self.width, self.most).filter(|_| has_its_words)
    }

    /// The state of a key, to change it. `None` if the state is that of another limiter, or broken: then nothing is granted.
    #[inline]
    fn key<'a>(&'a self, state: &'a mut State<impl WordsMut, B>) -> Option<Key<'a>> {
        let has_its_words = state.words().len() == self.words;
        let (newest, rest) = state.words_mut().split_first_mut()?;
        let (words, holds) = rest.split_at_mut_checked(self.counted)?;
        let holds = Holds::over(holds, self.width, self.most).filter(|_| has_its_words)?;
        Some(Key { limiter: self.counting(), terms: self.terms, newest, words, holds })
    }
}

impl<B: Boundaries> Limiter for Config<B> {
    fn words(&self) -> usize {
        self.words
    }

    /// The limiter's period: holds do not change what a jump of the clock is.
    fn period(&self) -> Micros {
        self.counting().period()
    }

    /// Ends the holds that have expired at the new time.
    fn advance(&self, state: &mut State<impl WordsMut, B>, now: Timestamp) {
        self.key(state).into_iter().for_each(|mut key| key.advance(now));
    }

    /// Also the span until all holds have ended and are forgotten. What is charged at the end of a hold may count anew if units came
    /// back meanwhile, at most until twice the limiter's period later.
    fn reset_after(&self, state: &State<impl Words, B>) -> Micros {
        let Some(holds) = self.holds(state) else { return self.period() };
        let counted = self.counting().reset_after(self.counted(state));
        let after = match self.terms.on_expiry {
            OnExpiry::Release => self.terms.remember,
            OnExpiry::Charge => {
                let counts = Micros(self.period().0.saturating_mul(2));
                self.terms.remember.max(counts)
            }
        };
        let newest = state.newest();
        let live = holds.each().map(|hold| hold.until.saturating_add(after));
        let last = live.chain(holds.forgotten_at()).max().unwrap_or(newest);
        counted.max(last.saturating_since(newest)).min(Micros::MAX)
    }

    fn accepts(&self, state: &State<impl Words, B>) -> Result<(), InvalidState> {
        let (counting, counted) = (self.counting(), self.counted(state));
        let holds = self.holds(state).ok_or(InvalidState)?;
        counting.accepts(counted)?;
        if counting.newest(counted) != state.newest() {
            return Err(InvalidState);
        }
        holds.accepts(state.newest(), &self.terms)
    }
}
