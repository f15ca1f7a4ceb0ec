//! The stores, where the states of keys are kept: [`Memory`] in this process, and `Redis`, which needs the feature `redis`.
//!
//! ```
//! use std::sync::Arc;
//! use tidegate::{Policies, Resolved, Store, Timestamp};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policies = Policies::parse(
//!     "[policies.login]
//!      limits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]",
//! )?;
//! let store = Store::memory(&policies, 64 << 20)?; // at most 64 MiB
//! let key = Resolved::new(&policies.all()[0], "user:42")?;
//! assert!(store.operate(&key, Timestamp(0), 1).await?.decision.is_allowed());
//! assert!(!store.operate(&key, Timestamp(1), 1).await?.decision.is_allowed());
//! # Ok(())
//! # }
//! ```

mod error;
mod memory;
#[cfg(feature = "redis")]
mod redis;

use std::collections::BTreeMap;
use std::sync::Arc;

#[cfg(feature = "redis")]
use futures_util::future::join_all;
#[cfg(feature = "redis")]
use tidegate_gate::OnError;
use tidegate_gate::{Operation, Policies, Policy, Resolved, Timestamp, Verdict};

pub use error::StoreError;
pub use memory::{Memory, TooLittleMemory};
#[cfg(feature = "redis")]
pub use redis::{Redis, RedisClientFiles, RedisOptions, RedisTls};

/// A place where the states of keys are kept.
#[derive(Debug)]
#[non_exhaustive]
pub enum Store {
    /// States in this process.
    Memory {
        /// One [`Memory`] for each policy, by the policy's name.
        tables: BTreeMap<String, Arc<Memory>>,
        /// Those of policies that an edit has removed, until their states expire. A policy that comes back goes on with them.
        removed: BTreeMap<String, Arc<Memory>>,
        /// The most bytes of all of them.
        max_bytes: usize,
    },
    /// States in Redis or Valkey.
    #[cfg(feature = "redis")]
    Redis(Arc<Redis>),
}

/// What a store says of an operation.
pub(crate) struct Told {
    pub(crate) verdict: Result<Verdict, StoreError>,
    /// Why the store did not decide, if the host has decided by its share of the limits.
    #[cfg_attr(
        not(any(feature = "command", feature = "tower")),
        expect(dead_code, reason = "only these tell it")
    )]
    pub(crate) cause: Option<StoreError>,
}

impl From<Result<Verdict, StoreError>> for Told {
    fn from(verdict: Result<Verdict, StoreError>) -> Self {
        Self { verdict, cause: None }
    }
}

impl Store {
    /// The word for the store, such as `redis`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Memory { .. } => "memory",
            #[cfg(feature = "redis")]
            Self::Redis(_) => "redis",
        }
    }

    /// The store as one that never waits for something outside of this process; `None` if it may.
    #[cfg(feature = "tower")]
    pub(crate) const fn at_once(&self) -> Option<AtOnce<'_>> {
        match self {
            Self::Memory { tables, .. } => Some(AtOnce(tables)),
            #[cfg(feature = "redis")]
            Self::Redis(_) => None,
        }
    }

    /// Whether the store can decide by this policy.
    #[cfg(feature = "tower")]
    pub(crate) fn is_for(&self, policy: &Policy) -> bool {
        match self {
            Self::Memory { tables, .. } => {
                tables.get(policy.name()).is_some_and(|table| **table.policy() == *policy)
            }
            #[cfg(feature = "redis")]
            Self::Redis(_) => true, // its states have names of their own
        }
    }

    /// The kinds of answers that this host gave without asking the store, and their numbers.
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn local_answers(&self) -> [(&'static str, u64); 3] {
        match self {
            Self::Redis(redis) => redis.local_answers(),
            Self::Memory { .. } => None,
        }
        .unwrap_or_default()
        .all()
    }

    /// A store in this process of at most `max_bytes`, which the policies share in equal parts.
    ///
    /// # Errors
    /// Returns [`TooLittleMemory`] for the first policy whose states need more than its part.
    pub fn memory(policies: &Policies, max_bytes: usize) -> Result<Self, TooLittleMemory> {
        Self::memory_with(policies, max_bytes, BTreeMap::new(), |_| None)
    }

    /// `known` returns the table of a policy, if there is one already.
    fn memory_with(
        policies: &Policies,
        max_bytes: usize,
        removed: BTreeMap<String, Arc<Memory>>,
        known: impl Fn(&Policy) -> Option<Arc<Memory>>,
    ) -> Result<Self, TooLittleMemory> {
        let policies = policies.all();
        let each = max_bytes / policies.len().saturating_add(removed.len()).max(1);
        let table = |policy: &Arc<Policy>| {
            // also for a known table: a policy must have room in its new part
            let new = Memory::new(policy.clone(), each)?;
            Ok((policy.name().to_owned(), known(policy).unwrap_or_else(|| Arc::new(new))))
        };
        let tables = policies.iter().map(table).collect::<Result<_, _>>()?;
        Ok(Self::Memory { tables, removed, max_bytes })
    }

    /// The store for an edited policy file, without states of the policies that were edited:
    /// [`take_over`](Self::take_over) brings them. Policies that are equal share their states.
    ///
    /// # Errors
    /// Returns [`TooLittleMemory`] for the first policy whose states need more than its part.
    pub fn edited(&self, policies: &Policies) -> Result<Self, TooLittleMemory> {
        match self {
            Self::Memory { tables, removed, max_bytes } => {
                let known = |name: &str| tables.get(name).or_else(|| removed.get(name));
                let both = tables
                    .iter()
                    .chain(removed)
                    .map(|(name, table)| (name.clone(), Arc::clone(table)));
                let left =
                    both.filter(|(name, table)| policies.get(name).is_none() && !table.is_empty());
                Self::memory_with(policies, *max_bytes, left.collect(), |policy| {
                    known(policy.name()).filter(|table| **table.policy() == *policy).cloned()
                })
            }
            #[cfg(feature = "redis")]
            Self::Redis(redis) => Ok(Self::Redis(Arc::clone(redis))), // its states have names of their own
        }
    }

    /// Takes over at `now` the states of the store that this one was [edited](Self::edited) from. From then on that one grants
    /// nothing by a policy that was edited.
    pub fn take_over(&self, earlier: &Self, now: Timestamp) {
        let (tables, each, earlier) = match (self, earlier) {
            (
                Self::Memory { tables, removed: left, max_bytes },
                Self::Memory { tables: own, removed, .. },
            ) => (
                tables,
                max_bytes / tables.len().saturating_add(left.len()).max(1),
                |name: &str| own.get(name).or_else(|| removed.get(name)),
            ),
            #[cfg(feature = "redis")]
            _ => return,
        };
        for (name, table) in tables {
            table.set_max_bytes(each);
            if let Some(earlier) = earlier(name).filter(|earlier| !Arc::ptr_eq(earlier, table)) {
                table.take_over(earlier, now);
            }
        }
    }

    /// Does one operation and returns its verdict.
    ///
    /// # Errors
    /// Returns a [`StoreError`] if the store did not do the operation, or cannot know whether it did.
    pub async fn operate(
        &self,
        resolved: &Resolved,
        now: Timestamp,
        operation: impl Into<Operation>,
    ) -> Result<Verdict, StoreError> {
        let operation = operation.into();
        match self {
            Self::Memory { tables, .. } => in_memory(tables, resolved, now, operation),
            #[cfg(feature = "redis")]
            Self::Redis(redis) => redis.operate(resolved, now, operation).await,
        }
    }

    /// Does several operations and returns their verdicts in the order of `asked`. Operations on one partition
    /// are done in that order too.
    pub async fn operate_all<'a>(
        &self,
        now: Timestamp,
        asked: impl IntoIterator<Item = (&'a Resolved, Operation)>,
    ) -> Vec<Result<Verdict, StoreError>> {
        let asked = asked.into_iter().map(|(resolved, operation)| ((), resolved, operation));
        self.operate_each(now, asked, |(), told| told.verdict).await
    }

    /// The same, of which each verdict becomes something else beside what comes with its operation.
    pub(crate) async fn operate_each<'a, W, T>(
        &self,
        now: Timestamp,
        asked: impl Iterator<Item = (W, &'a Resolved, Operation)>,
        mut told: impl FnMut(W, Told) -> T,
    ) -> Vec<T> {
        match self {
            Self::Memory { tables, .. } => asked
                .map(|(with, resolved, operation)| {
                    told(with, in_memory(tables, resolved, now, operation).into())
                })
                .collect(),
            // the store keeps the order of the operations on one partition
            #[cfg(feature = "redis")]
            Self::Redis(redis) => {
                let (with, asked): (Vec<W>, Vec<_>) = asked
                    .map(|(with, resolved, operation)| (with, redis.ask(resolved, now, operation)))
                    .unzip();
                with.into_iter()
                    .zip(join_all(asked).await)
                    .map(|(with, answer)| told(with, answer))
                    .collect()
            }
        }
    }

    /// Announces this host to the others on the same Redis, if a policy has `on_error = "local"`: from then on, and as long as
    /// the store lives, they count it among those that share the limits in an outage. The first operation under such a policy
    /// does the same. Call it in the runtime of the operations.
    pub fn announce(&self, policies: &Policies) {
        match self {
            Self::Memory { .. } => {}
            #[cfg(feature = "redis")]
            Self::Redis(redis) => {
                if policies.all().iter().any(|policy| policy.on_error() == OnError::Local) {
                    redis.announce();
                }
            }
        }
        #[cfg(not(feature = "redis"))]
        let _ = policies;
    }

    /// The number of hosts that were last seen on the same store, this one included; `None` before this host has
    /// [announced](Self::announce) itself.
    #[must_use]
    pub fn hosts(&self) -> Option<u64> {
        match self {
            Self::Memory { .. } => None,
            #[cfg(feature = "redis")]
            Self::Redis(redis) => redis.hosts(),
        }
    }

    /// Why the store does not count this host; `None` if it does, and in an outage, because the last count holds until its end.
    #[must_use]
    pub fn uncounted(&self) -> Option<StoreError> {
        match self {
            Self::Memory { .. } => None,
            #[cfg(feature = "redis")]
            Self::Redis(redis) => redis.uncounted(),
        }
    }

    /// Forgets expired states. Redis does this by itself.
    pub fn sweep(&self, now: Timestamp) {
        match self {
            Self::Memory { tables, removed, .. } => {
                tables.values().chain(removed.values()).for_each(|table| table.sweep(now));
            }
            #[cfg(feature = "redis")]
            Self::Redis(_) => {}
        }
    }
}

/// A store that decides without waiting.
#[cfg(feature = "tower")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtOnce<'s>(&'s BTreeMap<String, Arc<Memory>>);

#[cfg(feature = "tower")]
impl AtOnce<'_> {
    /// Does one operation: see [`Store::operate`].
    pub(crate) fn operate(
        self,
        resolved: &Resolved,
        now: Timestamp,
        operation: Operation,
    ) -> Result<Verdict, StoreError> {
        in_memory(self.0, resolved, now, operation)
    }
}

fn in_memory(
    tables: &BTreeMap<String, Arc<Memory>>,
    resolved: &Resolved,
    now: Timestamp,
    operation: Operation,
) -> Result<Verdict, StoreError> {
    let policy = resolved.policy().name();
    let table = tables.get(policy).ok_or_else(|| StoreError::NoPolicy(policy.into()))?;
    table.operate(resolved, now, operation).map_err(StoreError::of_table)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise names that change at each edit would hold memory without bound.
    #[test]
    fn removed_policies_have_their_part_of_the_memory_until_their_states_expire() {
        let limits = "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1d' }]";
        let named = |name: u64| Policies::parse(&format!("[policies.p{name}]\n{limits}")).unwrap();
        let mut store = Store::memory(&named(0), 1 << 16).unwrap();
        let refused = (1..1_000).find(|name| {
            let policies = named(name - 1);
            let resolved = Resolved::new(&policies.all()[0], "k").unwrap();
            let tables = match &store {
                Store::Memory { tables, .. } => tables,
                #[cfg(feature = "redis")]
                Store::Redis(_) => panic!("expected the memory"),
            };
            let taken = in_memory(tables, &resolved, Timestamp(0), 1.into()).unwrap();
            assert!(taken.decision.is_allowed());
            match store.edited(&named(*name)) {
                Ok(edited) => {
                    edited.take_over(&store, Timestamp(0));
                    store = edited;
                    false
                }
                Err(_) => true,
            }
        });
        assert!(refused.is_some(), "the parts are too small at some time");
        store.sweep(Timestamp(2 * 86_400_000_000));
        assert!(store.edited(&named(1_000)).is_ok(), "their states have expired");
    }
}
