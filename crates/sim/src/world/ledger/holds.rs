//! The leases and connections that are held.

use std::collections::BTreeMap;

use tidegate_gate::{Class, Id, Operation};

use super::done::Done;

#[derive(Debug, Default)]
pub(super) struct Holds {
    /// When each lease or owner expires, and how many connections the owner has.
    held: BTreeMap<Id, (u64, u64)>,
}

impl Holds {
    /// Leases, of which a holder has one.
    pub(super) fn count(&mut self, most: u64, time: u64, done: &Done<'_>) -> Result<(), String> {
        self.count_each(most, time, done, |_| 1)
    }

    /// Leases of requests that are not of the most important class. The others are never refused.
    pub(super) fn count_low(
        &mut self,
        most: u64,
        time: u64,
        done: &Done<'_>,
    ) -> Result<(), String> {
        match done.operation {
            Operation::Decide(request) if request.class == Class::CRITICAL => Ok(()),
            _ => self.count(most, time, done),
        }
    }

    /// Connections by owner.
    pub(super) fn count_owners(
        &mut self,
        most: u64,
        time: u64,
        done: &Done<'_>,
    ) -> Result<(), String> {
        if let (Operation::Count(owner, count), Some(true)) =
            (done.operation, done.verdict.effect.live())
        {
            let expires_at = done.now().saturating_add(time);
            self.held.insert(*owner, (expires_at, *count));
            self.held.retain(|_, (_, count)| *count > 0);
        }
        self.count_each(most, time, done, |had| had + 1)
    }

    fn count_each(
        &mut self,
        most: u64,
        time: u64,
        done: &Done<'_>,
        has_then: impl Fn(u64) -> u64,
    ) -> Result<(), String> {
        let now = done.now();
        let until = now.saturating_add(time);
        self.held.retain(|_, (expires_at, _)| *expires_at > now);
        let was_live = match done.operation {
            Operation::Decide(request) if done.verdict.decision.is_allowed() => {
                if let Some(id) = request.lease.filter(|_| request.cost > 0) {
                    let (_, had) = self.held.get(&id).copied().unwrap_or_default();
                    self.held.insert(id, (until, has_then(had)));
                    return self.check(most);
                }
                None
            }
            Operation::Heartbeat(id) => {
                let held = self.held.get_mut(id);
                Some(held.map(|(expires_at, _)| *expires_at = until).is_some())
            }
            Operation::Release(id) => {
                let held = self.held.get_mut(id);
                let was_live = held.map(|(_, count)| *count -= 1).is_some();
                self.held.retain(|_, (_, count)| *count > 0);
                Some(was_live)
            }
            _ => None,
        };
        let live = done.verdict.effect.live();
        if was_live.is_some() && live != was_live {
            return Err(format!("a lease is said to be live: {live:?}; it is: {was_live:?}"));
        }
        Ok(())
    }

    fn check(&self, most: u64) -> Result<(), String> {
        let held: u64 = self.held.values().map(|(_, count)| count).sum();
        match held <= most {
            true => Ok(()),
            false => Err(format!("{held} places are held of {most}")),
        }
    }
}
