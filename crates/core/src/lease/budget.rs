//! Budget: leases of units that are taken out of another limiter, the parent. A holder spends them
//! without asking.
//!
//! Sources: the capacity leases of Doorman (github.com/youtube/doorman) and its fair share, which
//! is max-min fairness (Bertsekas and Gallager, "Data Networks", section 6.5.2).
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | T | length of a lease, and of a holder's account | µs |
//! | wᵢ | units that holder i wanted per T at its last grant | units |
//! | uᵢ | units that holder i took within its account of length T, less those it gave back | units |
//! | A | units that the parent can grant at this moment | units |
//! | P = A + Σ uᵢ | pool, over the live holders | units |
//! | λ | level: the greatest whole number with Σ min(wᵢ, λ) ≤ P | units |
//!
//! The share of holder i is min(wᵢ, λ). A grant is the share less uᵢ, at most A, and at most the
//! most units that a lease may hold. If λ leaves units over, each holder that asks gets one more
//! while they last.
//!
//! An account begins with a grant and lasts T. The first grant after that begins a new account. So
//! a holder that took everything while it was alone is back at its share after at most T, however
//! often it asks. A holder without a grant for T is forgotten.
//!
//! The caller keeps the parent, which is a [`bucket`] or a [`window`](crate::window). For a grant,
//! the caller
//!
//! 1. peeks at the parent for the units that remain,
//! 2. asks for a [grant](Config::grant),
//! 3. takes the granted units from the parent at the same `now`.
//!
//! The caller puts back the result of [`give_back`](Config::give_back) as the parent's rule allows
//! ([`Refundable`]). Each lease has exactly one grant: a renewal first gives the old lease back and
//! then replaces it. Units that a lease still holds at its end are lost, because the holder may
//! have spent them.
//!
//! **Guarantee:** in any span of length L, all holders together spend at most what the parent can
//! grant in a span of length L + T, as long as their clocks agree with that of the key.
//!
//! State: 3 + ⌈slots/4⌉ + 8·holders words. `slots` is the least power of two that is at least twice
//! the holders. A grant reads all holders up to 54 times.
//!
//! ```
//! use tidegate_core::{Limiter, Micros, Rate, RateLimiter, Timestamp, bucket, lease::{Id, budget}};
//!
//! let parent = bucket::Config::new(120, Rate::new(60, Micros::SECOND).unwrap()).unwrap();
//! let mut level = bucket::State::default();
//! let budgets = budget::Config::new(100, Micros::SECOND, 10).unwrap();
//! let mut state = budgets.state(vec![0; budgets.words()]).unwrap();
//! let (one, other, now) = (Id([1, 0]), Id([2, 0]), Timestamp(1_700_000_000_000_000));
//!
//! let available = parent.peek(&level, now, 0).unwrap().remaining();
//! let mut allowance = budgets.grant(&mut state, now, one, 80, available);
//! assert!(parent.decide(&mut level, now, allowance.left).unwrap().is_allowed());
//! assert!(allowance.spend(now, 80)); // without asking anyone
//! assert!(!allowance.spend(now, 1));
//!
//! let available = parent.peek(&level, now, 0).unwrap().remaining();
//! assert_eq!(budgets.grant(&mut state, now, other, 80, available).left, 40);
//! ```

#[cfg(test)]
mod tests;

use super::Id;
use super::table::{FIELDS, Layout, Table, Tabled, limiter_with_table};
use crate::bucket;
use crate::limiter::{self, Limiter, WordsMut};
use crate::never::never;
use crate::quantity::{ConfigError, MAX_QUANTITY, in_range};
use crate::time::{Micros, Timestamp};
use crate::window::Refund;

/// Validated budget leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    most: u64,
    layout: Layout<WIDTH>,
}

/// The state of a key. [`Limiter::state`] makes it.
pub type State<W> = limiter::State<Config, W>;

impl Tabled<WIDTH> for Config {
    #[inline]
    fn layout(&self) -> Layout<WIDTH> {
        self.layout
    }

    fn made<W: AsRef<[u64]>>(&self, table: &Table<W, WIDTH>, place: usize) -> bool {
        let held = table.extra(place, HELD);
        (1..=MAX_QUANTITY).contains(&table.extra(place, WANTS))
            && held <= self.most
            && held <= table.value(place)
            && table.extra(place, ACCOUNT) < self.period().0
    }
}

limiter_with_table!(Config);

/// The units that a holder may spend until a time. The default has no units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "units that nobody spends are lost"]
pub struct Allowance {
    /// The units not yet spent.
    pub left: u64,
    /// The time of the grant. It distinguishes the leases of one holder.
    pub granted_at: Timestamp,
    /// The time from which the units must not be spent.
    pub expires_at: Timestamp,
}

impl Allowance {
    /// Spends `cost` units at `now`, and returns whether it did. Spends nothing if fewer units are
    /// left, if the lease has ended, or if `now` is before the grant by more than the length of the
    /// lease.
    #[inline]
    pub const fn spend(&mut self, now: Timestamp, cost: u64) -> bool {
        let time = self.expires_at.saturating_since(self.granted_at);
        if now.0 >= self.expires_at.0 || now.saturating_add(time).0 < self.granted_at.0 {
            return false;
        }
        match self.left.checked_sub(cost) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

/// Units that a holder gave back. The kind of the parent determines how many of them return to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "units that are not put back are lost"]
pub struct Refundable {
    /// The units given back.
    pub units: u64,
    /// The units of the whole grant.
    pub granted: u64,
    /// The time of the grant.
    pub granted_at: Timestamp,
    /// The span from the grant to this moment.
    pub after: Micros,
}

impl Refundable {
    /// The refund for a window. It takes the units out of the segment in which they were counted,
    /// as if they had never been granted.
    #[must_use]
    pub const fn to_window(&self) -> Refund {
        Refund { granted_at: self.granted_at, cost: self.units }
    }

    /// The refund for a bucket: min(units, granted − rate × [`after`](Self::after)).
    ///
    /// Without the grant the bucket might have been full in the meantime, and might have lost the
    /// tokens that flowed in. These are at most rate × after. A bucket loses no inflow while it
    /// lacks more tokens than flow in, and it lacks at least the grant. So the refund makes the
    /// bucket grant no more than it would have granted without the lease.
    #[must_use]
    pub fn to_bucket(&self, parent: &bucket::Config) -> Refund {
        let (units, period) = parent.rate();
        let inflow = u128::from(units).saturating_mul(self.after.0.into());
        // up: a started unit may have been lost
        let inflow = inflow.saturating_add(u128::from(period.0).saturating_sub(1));
        let inflow = inflow.checked_div(period.0.into()).unwrap_or_else(|| never(u128::MAX));
        let inflow = u64::try_from(inflow).unwrap_or(u64::MAX);
        let cost = self.units.min(self.granted.saturating_sub(inflow));
        Refund { granted_at: self.granted_at, cost }
    }
}

/// How a holder used its last grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The units wanted per T.
    pub wanted: u64,
    /// The units granted.
    pub granted: u64,
    /// The units of the grant that were spent.
    pub spent: u64,
    /// The span from the grant until all its units were spent, or until now if some are left.
    pub elapsed: Micros,
}

impl Config {
    /// Makes leases of at most `most` units that last `time`, for at most `max_holders` holders.
    ///
    /// # Errors
    /// Returns [`ConfigError::OutOfRange`] if `most` or `time` is 0 or above 2^53 − 1, or if
    /// `max_holders` is 0 or above [`MAX_ENTRIES`](super::MAX_ENTRIES).
    pub fn new(most: u64, time: Micros, max_holders: u64) -> Result<Self, ConfigError> {
        in_range("most", most)?;
        in_range("time", time.0)?;
        Ok(Self { most, layout: Layout::new("max_holders", max_holders, time)? })
    }

    /// The most units that a lease may hold.
    #[must_use]
    pub const fn most(&self) -> u64 {
        self.most
    }

    /// The most holders at once.
    #[must_use]
    pub const fn max_holders(&self) -> usize {
        self.layout.entries()
    }

    /// Grants `holder`, which wants `wants` units per T, its share of the `available` units. The
    /// caller takes the granted units from the parent at the same `now`.
    ///
    /// The grant replaces the holder's lease. Units of that lease that the holder did not give back
    /// count as spent. If the table has no room for another holder, nothing is granted. A second
    /// grant in the same microsecond grants nothing either, because only the time of a grant
    /// distinguishes leases. If `wants` is 0, nothing changes.
    pub fn grant(
        &self,
        state: &mut State<impl WordsMut>,
        now: Timestamp,
        holder: Id,
        wants: u64,
        available: u64,
    ) -> Allowance {
        if wants == 0 || self.most_of(state, wants) == 0 {
            return Allowance::default();
        }
        let mut table = Table::new(self.layout, state.words_mut());
        table.advance(now);
        let found = table.search(holder);
        let place = match found.place {
            0 => match table.insert(found, holder, 0) {
                Some(place) => place,
                None => return Allowance::default(),
            },
            place if table.age(place) == Micros::ZERO => return Allowance::default(),
            place => {
                let account = self.account(&table, place);
                table.set_value(place, self.taken(&table, place));
                table.set_extra(
                    place,
                    ACCOUNT,
                    if account < self.period().0 { account } else { 0 },
                );
                table.touch(place);
                place
            }
        };
        table.set_extra(place, WANTS, wants.min(MAX_QUANTITY));
        let available = available.min(MAX_QUANTITY.saturating_sub(table.sum()));
        let taken = table.value(place);
        let lacks = self.share(&table, place, available).saturating_sub(taken);
        let units = lacks.min(available).min(self.most);
        table.set_value(place, taken.saturating_add(units));
        table.set_extra(place, HELD, units);
        let granted_at = table.newest();
        Allowance { left: units, granted_at, expires_at: granted_at.saturating_add(self.period()) }
    }

    /// Ends the lease of `allowance`, and returns the units that may return to the parent: at most
    /// the granted units. `None` if the lease is unknown, and nothing returns then. A lease is
    /// unknown if it has expired, was replaced, was given back before, or was granted at a clock
    /// that has since come back from a jump ahead.
    pub fn give_back(
        &self,
        state: &mut State<impl WordsMut>,
        now: Timestamp,
        holder: Id,
        allowance: Allowance,
    ) -> Option<Refundable> {
        let mut table = Table::new(self.layout, state.words_mut());
        table.advance(now);
        let place = table.find(holder)?;
        let (granted, after) = (table.extra(place, HELD), table.age(place));
        let granted_at = Timestamp(table.newest().0.checked_sub(after.0)?);
        if granted == 0 || granted_at != allowance.granted_at {
            return None;
        }
        let units = allowance.left.min(granted);
        table.set_extra(place, HELD, 0);
        table.set_value(place, table.value(place).saturating_sub(units));
        Some(Refundable { units, granted, granted_at, after })
    }

    /// The units that a holder should want next, by the usage of its last grant: an eighth more
    /// than it would spend in T at the same speed. The result is
    ///
    /// - at most twice and at least a quarter of the units wanted last,
    /// - at least the units wanted last if the holder spent the whole grant,
    /// - never 0.
    ///
    /// A constant demand is met within 25 % once doubling has reached it. An idle holder falls from
    /// n to 1 in ⌈log₄ n⌉ leases.
    #[must_use]
    pub fn next_wants(&self, usage: Usage) -> u64 {
        let in_all = u128::from(usage.spent).saturating_mul(self.period().0.into());
        let spends = match in_all.checked_div(usage.elapsed.0.into()) {
            Some(spends) => u64::try_from(spends).unwrap_or(u64::MAX),
            None if in_all == 0 => 0,
            None => u64::MAX,
        };
        let wants = spends.saturating_add(spends >> 3);
        let wants = if usage.spent < usage.granted { wants } else { wants.max(usage.wanted) };
        let least = usage.wanted.div_ceil(4).max(1);
        let most = usage.wanted.saturating_mul(2).max(1);
        wants.clamp(least.min(most), most).min(MAX_QUANTITY)
    }

    /// The span from the beginning of a holder's account to the newest time.
    fn account<W: AsRef<[u64]>>(&self, table: &Table<W, WIDTH>, place: usize) -> u64 {
        table.extra(place, ACCOUNT).saturating_add(table.age(place).0)
    }

    /// uᵢ
    fn taken<W: AsRef<[u64]>>(&self, table: &Table<W, WIDTH>, place: usize) -> u64 {
        if self.account(table, place) < self.period().0 { table.value(place) } else { 0 }
    }

    /// min(wᵢ, λ), and one unit more while units are left over.
    fn share<W: AsRef<[u64]>>(&self, table: &Table<W, WIDTH>, asker: usize, available: u64) -> u64 {
        let holders = 1..=table.count();
        let sum = |of: &dyn Fn(usize) -> u64| {
            holders.clone().fold(0_u64, |sum, place| sum.saturating_add(of(place)))
        };
        let wants = |place| table.extra(place, WANTS);
        let needed = |level: u64| sum(&|place| wants(place).min(level));
        let taken = |place| self.taken(table, place);
        let pool = sum(&taken).saturating_add(available);
        let count = u64::try_from(table.count()).unwrap_or_else(|_| never(u64::MAX));
        let (mut fits, mut exceeds) = (pool.checked_div(count).unwrap_or(0), wants(asker));
        if needed(exceeds) <= pool {
            return exceeds;
        }
        loop {
            let middle = fits.midpoint(exceeds);
            if middle <= fits {
                break;
            }
            if needed(middle) <= pool {
                fits = middle;
            } else {
                exceeds = middle;
            }
        }
        let left_over = pool.saturating_sub(needed(fits));
        let by_others = sum(&|place| {
            let share = if place == asker { u64::MAX } else { wants(place).min(fits) };
            taken(place).saturating_sub(share)
        });
        fits.saturating_add(u64::from(left_over > by_others))
    }
}

/// wᵢ
const WANTS: usize = 0;
/// The units of the last grant. 0 after the holder gave the lease back.
const HELD: usize = 1;
/// The span from the beginning of the account to the last grant. The entry's value is the number
/// of units taken in the account.
const ACCOUNT: usize = 2;
/// The words of an entry, including the three above.
const WIDTH: usize = FIELDS + 3;
