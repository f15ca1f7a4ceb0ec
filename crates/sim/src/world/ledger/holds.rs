//! The leases and connections that are held.

use std::collections::BTreeMap;

use tidegate_gate::{Class, Decision, Id, Operation};

use super::done::Done;

#[derive(Debug, Default)]
pub(super) struct Holds {
    /// When each lease or owner expires, and how many connections the owner has.
    held: BTreeMap<Id, (u64, u64)>,
}

/// How many places there are and for how many holders, and how long a place is held, in µs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) places: u64,
    pub(super) holders: usize,
    pub(super) time: u64,
}

impl Holds {
    /// Leases, of which a holder has one.
    pub(super) fn count(
        &mut self,
        room: Room,
        done: &Done<'_>,
        said: &Decision,
    ) -> Result<(), String> {
        self.count_each(room, done, |_| 1)?;
        self.check_remaining(room, said)
    }

    /// Leases of requests that are not of the most important class. The others are never refused.
    pub(super) fn count_low(&mut self, room: Room, done: &Done<'_>) -> Result<(), String> {
        match done.operation {
            Operation::Decide(request) if request.class == Class::CRITICAL => Ok(()),
            _ => self.count_each(room, done, |_| 1),
        }
    }

    /// Connections by owner.
    pub(super) fn count_owners(
        &mut self,
        room: Room,
        done: &Done<'_>,
        said: &Decision,
    ) -> Result<(), String> {
        if let (Operation::Count(owner, count), Some(true)) =
            (done.operation, done.verdict.effect.live())
        {
            let expires_at = done.now().saturating_add(room.time);
            self.held.insert(*owner, (expires_at, *count));
            self.held.retain(|_, (_, count)| *count > 0);
        }
        self.count_each(room, done, |had| had + 1)?;
        self.check_remaining(room, said)
    }

    fn count_each(
        &mut self,
        Room { places, time, .. }: Room,
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
                    return self.check_granted(places);
                }
                None
            }
            Operation::Heartbeat(id) => {
                let held = self.held.get_mut(id);
                Some(held.map(|(expires_at, _)| *expires_at = until).is_some())
            }
            Operation::Commit(id, _) => {
                self.held.remove(id);
                None
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

    fn places(&self) -> u64 {
        self.held.values().map(|(_, count)| count).sum()
    }

    fn check_granted(&self, most: u64) -> Result<(), String> {
        match self.places() <= most {
            true => Ok(()),
            false => Err(format!("{} places are held of {most}", self.places())),
        }
    }

    /// What remains is what nobody holds. Nothing remains for a further holder if there are as many as there may be.
    fn check_remaining(&self, room: Room, said: &Decision) -> Result<(), String> {
        let (held, remaining) = (self.places(), said.remaining());
        let is_full = remaining == 0 && self.held.len() >= room.holders;
        match is_full || remaining == room.places.saturating_sub(held) {
            true => Ok(()),
            false => Err(format!("{held} places are held of {room:?}, and {remaining} remain")),
        }
    }
}
