//! Budget: units taken out of another limiter, to be spent by a holder without asking.
//!
//! Sources: the capacity leases of Doorman (github.com/youtube/doorman) and its fair share, which
//! is max-min fairness (Bertsekas and Gallager, "Data Networks", section 6.5.2).
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | T | time of a lease, and of a holder's account | µs |
//! | wᵢ | what holder i, at its last grant, wanted per T | units |
//! | uᵢ | taken by holder i within its account of length T, and not given back | units |
//! | A | what the parent can grant at this moment | units |
//! | P = A + Σ uᵢ | pool, over the live holders | units |
//! | λ | level: the greatest whole number with Σ min(wᵢ, λ) ≤ P | units |
//!
//! A holder's share is min(wᵢ, λ), and a grant is what it lacks of that, within A and the most
//! that a lease may hold. Where λ leaves units over, those who ask while there are any get one
//! more. A holder's account begins with a grant and lasts T; the first grant after that begins
//! another, so one that took everything while it was alone is back at its share T later at most,
//! however often it asks. A holder that was not granted anything for T is forgotten.
//!
//! The parent, a [`bucket`] or a [`window`](crate::window), is the caller's: it
//! peeks what remains, asks for a [grant](Config::grant), takes so many units from the parent at
//! the same `now`, and puts back what comes of [`give_back`](Config::give_back), by the rule of
//! the parent ([`Refundable`]). One lease is one grant: a renewal first gives back, and then
//! replaces it. What a lease still holds at its end is lost, since it may have been spent.
//!
//! **Guarantee:** in any span of length L all holders together spend at most what the parent can
//! grant in a span of length L + T, as long as their clocks agree with that of the key.
//!
//! State: 3 + ⌈slots/4⌉ + 8·holders words, with the least power of two of slots that is at least
//! twice the holders. A grant looks at all holders, up to 54 times.
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
use crate::quantity::{ConfigError, MAX_QUANTITY, in_range};
use crate::time::{Micros, Timestamp};
use crate::window::Refund;

/// Validated budget leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    most: u64,
    layout: Layout<WIDTH>,
}

/// What is remembered of a key: made by [`Limiter::state`].
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

/// What a holder has: units to spend before a time. The default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "units that nobody spends are lost"]
pub struct Allowance {
    /// Units not yet spent.
    pub left: u64,
    /// When they were granted; tells one lease of a holder from another.
    pub granted_at: Timestamp,
    /// From this time on they must not be spent.
    pub expires_at: Timestamp,
}

impl Allowance {
    /// Spends `cost` units at `now`, or nothing if fewer are left or the lease has ended. The
    /// clock may be behind that of the grant by the time of the lease; one further back is not
    /// believed.
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

/// Units that a holder gave back. How many of them return to the parent depends on what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "units that are not put back are lost"]
pub struct Refundable {
    /// The units given back.
    pub units: u64,
    /// The units of the whole grant.
    pub granted: u64,
    /// When they were granted.
    pub granted_at: Timestamp,
    /// From the grant to this moment.
    pub after: Micros,
}

impl Refundable {
    /// For a window: taken out of the segment that the grant was counted in, as if never granted.
    #[must_use]
    pub const fn to_window(&self) -> Refund {
        Refund { granted_at: self.granted_at, cost: self.units }
    }

    /// For a bucket: how many of the units come back.
    ///
    /// Had they never been taken, the bucket might have been full in the meantime, and have lost
    /// what flowed in. That is at most rate × [`after`](Self::after), and it can lose nothing of
    /// that as long as more than that is missing from it, to which the grant itself adds. So
    /// min(units, granted − rate × after) can be put back without granting more than the bucket
    /// alone would have.
    #[must_use]
    pub fn to_bucket(&self, parent: &bucket::Config) -> Refund {
        let (units, period) = parent.rate();
        let inflow = u128::from(units).saturating_mul(self.after.0.into());
        // up: a started unit may be lost
        let inflow = inflow.saturating_add(u128::from(period.0).saturating_sub(1));
        let inflow = inflow.checked_div(period.0.into()).unwrap_or(0);
        let inflow = u64::try_from(inflow).unwrap_or(u64::MAX);
        let cost = self.units.min(self.granted.saturating_sub(inflow));
        Refund { granted_at: self.granted_at, cost }
    }
}

/// What became of a holder's last grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The units wanted per T.
    pub wanted: u64,
    /// The units granted.
    pub granted: u64,
    /// Those of them that were spent.
    pub spent: u64,
    /// From the grant until all were spent, or until now if some were not.
    pub elapsed: Micros,
}

impl Config {
    /// Leases of at most `most` units, which last `time`, for at most `max_holders` holders.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`]; [`ConfigError::OutOfRange`] if `max_holders` is 0 or above
    /// [`MAX_ENTRIES`](super::MAX_ENTRIES).
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

    /// Grants `holder`, which wants so many units per T, its part of the `available` ones. The
    /// caller takes as many from the parent as are granted, at the same `now`.
    ///
    /// A lease that the holder has is replaced: what it did not give back before counts as spent.
    /// Nothing is granted if there is no room for another holder, or for a second time in a
    /// microsecond, since a lease is told from another by when it was granted. To want nothing
    /// changes nothing.
    pub fn grant(
        &self,
        state: &mut State<impl WordsMut>,
        now: Timestamp,
        holder: Id,
        wants: u64,
        available: u64,
    ) -> Allowance {
        if wants == 0 {
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

    /// Ends the lease that `allowance` is left of, and says what may return to the parent: at most
    /// what was granted. `None` if the lease is unknown: it has expired, was replaced, was given back
    /// before, or was granted by a clock that has come back since; nothing returns then.
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

    /// What a holder should want next, by what became of its last grant: an eighth more than it
    /// would spend in T at the same speed. At most twice and at least a quarter of what it wanted,
    /// never 0, and no less than it wanted if it spent all it got. A constant demand is met within
    /// 25 % once doubling has reached it; an idle holder falls from n to 1 in ⌈log₄ n⌉ leases.
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

    /// From the beginning of a holder's account to the newest time.
    fn account<W: AsRef<[u64]>>(&self, table: &Table<W, WIDTH>, place: usize) -> u64 {
        table.extra(place, ACCOUNT).saturating_add(table.age(place).0)
    }

    /// uᵢ
    fn taken<W: AsRef<[u64]>>(&self, table: &Table<W, WIDTH>, place: usize) -> u64 {
        if self.account(table, place) < self.period().0 { table.value(place) } else { 0 }
    }

    /// min(wᵢ, λ), and one more while units are left over.
    fn share<W: AsRef<[u64]>>(&self, table: &Table<W, WIDTH>, asker: usize, available: u64) -> u64 {
        let holders = 1..=table.count();
        let sum = |of: &dyn Fn(usize) -> u64| {
            holders.clone().fold(0_u64, |sum, place| sum.saturating_add(of(place)))
        };
        let wants = |place| table.extra(place, WANTS);
        let needed = |level: u64| sum(&|place| wants(place).min(level));
        let taken = |place| self.taken(table, place);
        let pool = sum(&taken).saturating_add(available);
        let count = u64::try_from(table.count()).unwrap_or(1);
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
/// The units of the last grant; 0 once they were given back.
const HELD: usize = 1;
/// From the beginning of the account to the last grant. The value is what was taken in it.
const ACCOUNT: usize = 2;
/// The words of an entry with these.
const WIDTH: usize = FIELDS + 3;
