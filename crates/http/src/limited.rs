//! Who is limited: the keys that were refused most, by policy and limit, in bounded memory.

mod tally;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;

use tidegate_gate::top::{Counted, Top};
use tidegate_gate::{NamedLimit, Policies, Timestamp};

use crate::answer::Outcome;
use crate::answer::forms::BY_SHARE;
use crate::answer::json::{Object, object};
use crate::log::LogSecret;
use crate::plan::Check;
pub use tally::Tally;

/// How many keys of each limit are counted at a time.
const PLACES: usize = 32;

/// After this time the counts of keys begin anew, so that they tell who is limited now. Those of the time before are kept.
const HOUR_US: u64 = 3_600_000_000;

/// How many limits have lists, so that they take 40 MB at most. The refusals of further ones are not counted here.
const MOST_LISTS: usize = 1_024;

/// The keys that were refused most, and why the store did not answer last.
///
/// Of each limit it counts up to 32 keys an hour, by Space-Saving. [`Metrics::count`](crate::Metrics::count) says which checks
/// are to be counted here too, so that a request that passes needs no lock.
#[derive(Debug, Default)]
pub struct Limited {
    /// Sorted by policy and limit.
    lists: Vec<List>,
    /// When this hour began.
    since: Timestamp,
    failure: Option<Failure>,
}

/// The last decision that the store did not make.
#[derive(Clone, Debug)]
struct Failure {
    at: Timestamp,
    why: String,
    /// The whole error, which may have the address of a server.
    cause: Option<String>,
}

/// The refusals of a limit.
#[derive(Clone, Debug)]
pub struct List {
    /// The policy of the limit.
    pub policy: String,
    /// The name of the limit; `None` if no limit refused, because the key is blocked or on `deny`.
    pub limit: Option<String>,
    /// How many there were since the server began, or since it has [handed over](Limited::take) its lists.
    pub refusals: u64,
    /// The hours that have refusals, the newest first.
    pub hours: Vec<Hour>,
}

/// The keys that a limit has refused most in an hour.
#[derive(Clone, Debug)]
pub struct Hour {
    /// When the hour began, which is the same on all servers.
    pub since: Timestamp,
    /// The keys.
    pub keys: Box<Top<Box<str>, PLACES>>,
}

/// How answers name keys.
#[derive(Clone, Copy, Debug)]
pub enum KeysAs<'s> {
    /// By the hashes that stand for them in the log.
    Hashes(&'s LogSecret),
    /// As they are.
    Clear,
}

impl Limited {
    /// Counts a check that was refused, or that the store did not decide.
    pub fn count(&mut self, check: &Check, outcome: &Outcome, now: Timestamp) {
        let outcome = &*check.said(outcome);
        let why = match outcome {
            Outcome::Decided(verdict) => verdict.degraded.then_some(BY_SHARE),
            Outcome::Unavailable(why) => Some(why.as_str()),
            Outcome::Unreadable(_) => None,
        };
        if let Some(why) = why {
            self.failure = Some(Failure { at: now, why: why.to_string(), cause: None });
        }
        let Outcome::Decided(verdict) = outcome else { return };
        self.go_on(now);
        let (policy, key) = (check.resolved().policy().name(), check.resolved().key());
        let mut is_of_limits = false;
        if let Some(limits) = check.resolved().limits() {
            let counting = limits.counting(verdict);
            let in_shadow = limits.iter().zip(&verdict.limits).filter(|(named, _)| named.shadow);
            for (named, _) in counting.chain(in_shadow).filter(|(_, said)| !said.is_allowed()) {
                let NamedLimit { name, depth, .. } = named;
                is_of_limits = true;
                self.add(policy, Some(name), depth.of(key));
            }
        }
        if !is_of_limits && !verdict.decision.is_allowed() {
            self.add(policy, None, key);
        }
    }

    fn add(&mut self, policy: &str, limit: Option<&str>, key: &str) {
        let since = self.since;
        let Some(List { refusals, hours, .. }) = self.list(policy, limit) else { return };
        *refusals = refusals.saturating_add(1);
        if hours.first().is_none_or(|hour| hour.since != since) {
            hours.insert(0, Hour { since, keys: Box::default() });
        }
        if let Some(hour) = hours.first_mut() {
            hour.keys.count(|own| **own == *key, || key.into());
        }
    }

    /// The list of a limit; `None` if there are too many others.
    fn list(&mut self, policy: &str, limit: Option<&str>) -> Option<&mut List> {
        let order = |own: &List| (own.policy.as_str(), own.limit.as_deref()).cmp(&(policy, limit));
        let place = match self.lists.binary_search_by(order) {
            Ok(place) => place,
            Err(_) if self.lists.len() >= MOST_LISTS => return None,
            Err(place) => {
                let (policy, limit) = (policy.to_string(), limit.map(String::from));
                self.lists.insert(place, List { policy, limit, refusals: 0, hours: Vec::new() });
                place
            }
        };
        self.lists.get_mut(place)
    }

    /// Forgets policies that are not among these.
    pub fn keep(&mut self, policies: &Policies) {
        self.lists.retain(|list| policies.get(&list.policy).is_some());
    }

    /// Begins another hour if this one is over, and forgets what is older than the one before. Hours begin at the same times
    /// everywhere, so that the lists of several servers can be added up.
    pub(crate) fn go_on(&mut self, now: Timestamp) {
        let passed = now.0.abs_diff(self.since.0); // of a clock that went back far, an hour would never end otherwise
        if passed < HOUR_US {
            return;
        }
        let before = Some(self.since).filter(|_| passed < HOUR_US.saturating_mul(2));
        self.since = Timestamp(now.0.saturating_sub(now.0.checked_rem(HOUR_US).unwrap_or(0)));
        for list in &mut self.lists {
            list.hours.retain(|hour| Some(hour.since) == before);
        }
    }

    /// The answer to `GET /v1/top` at a time.
    #[must_use]
    pub fn top(&mut self, now: Timestamp, shown: KeysAs<'_>) -> String {
        self.go_on(now);
        object(|it| self.write(it, shown))
    }

    pub(crate) fn write(&self, it: &mut Object<'_>, shown: KeysAs<'_>) {
        it.objects("top", &self.lists, |List { policy, limit, refusals, hours }, it| {
            it.field("policy", policy.as_str());
            it.field("limit", limit.as_deref());
            it.field("refusals", *refusals);
            it.objects("hours", hours, |Hour { since, keys }, it| {
                it.field("since_us", since.0);
                it.field("refusals", keys.total());
                it.objects("keys", most_first(keys), |Counted { item, count, error }, it| {
                    match shown {
                        KeysAs::Clear => it.field("key", &**item),
                        KeysAs::Hashes(secret) => {
                            let hash = secret.hash(policy, item);
                            it.field("hash", alloc::format!("{hash:016x}").as_str());
                        }
                    }
                    it.field("count", *count);
                    it.field("error", *error);
                });
            });
        });
    }

    /// Says what the store did not decide for, after [`count`](Self::count): an error without keys. Callers for administration are told.
    pub fn explain(&mut self, cause: String) {
        if let Some(failure) = &mut self.failure {
            failure.cause = Some(cause);
        }
    }

    /// When the store did not make a decision last, and why: for `administration` the whole error.
    pub(crate) fn failure(&self, administration: bool) -> Option<(Timestamp, &str)> {
        let Failure { at, why, cause } = self.failure.as_ref()?;
        Some((*at, cause.as_ref().filter(|_| administration).unwrap_or(why)))
    }
}

/// The keys, those with the largest counts first. A sort would take 12 KB of code.
fn most_first(keys: &Top<Box<str>, PLACES>) -> impl Iterator<Item = &Counted<Box<str>>> {
    let mut rest: Vec<_> = keys.iter().collect();
    core::iter::from_fn(move || {
        let places = rest.iter().enumerate();
        let (place, _) = places.min_by_key(|(_, counted)| Reverse(counted.count))?;
        Some(rest.remove(place))
    })
}
