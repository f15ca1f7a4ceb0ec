//! How many hosts use this Redis, as far as this host knows. Hosts need the number in an outage, under policies with
//! `on_error = "local"`.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicBool;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tidegate_gate::Micros;
use tidegate_tier::outage::Fleet;

use crate::clock::micros;
use crate::store::error::StoreError;

/// The name of this process, which no other has. With all its stores it is one host.
pub(super) static ID: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one("host"));

/// The host among the others.
pub(super) struct Presence {
    began: Instant,
    fleet: Mutex<Fleet>,
    /// Why Redis has not counted this host the last time.
    uncounted: Mutex<Option<StoreError>>,
    /// A task [announces](super::announce) the host.
    pub(super) is_announced: AtomicBool,
}

impl Default for Presence {
    fn default() -> Self {
        let is_announced = AtomicBool::new(false);
        let (fleet, uncounted) = (Mutex::default(), Mutex::default());
        Self { began: Instant::now(), fleet, uncounted, is_announced }
    }
}

impl Presence {
    /// Takes the number of hosts that Redis has just counted. After an error the last count holds.
    pub(super) fn handle_count(&self, count: Result<u64, StoreError>) {
        self.handle_count_at(count, Micros(micros(self.began.elapsed())));
    }

    fn handle_count_at(&self, count: Result<u64, StoreError>, at: Micros) {
        if let Ok(count) = count {
            self.fleet().handle_count(count, at);
        }
        *self.uncounted.lock().unwrap_or_else(PoisonError::into_inner) = count.err();
    }

    /// Why Redis does not count this host. In an outage the last count holds.
    pub(super) fn uncounted(&self) -> Option<StoreError> {
        let uncounted = self.uncounted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        uncounted.filter(|error| error.is_unreadable() || self.nodes().is_none())
    }

    /// The number of hosts last seen, this one included; `None` until the others must have counted this one.
    pub(super) fn nodes(&self) -> Option<u64> {
        self.fleet().nodes()
    }

    fn fleet(&self) -> MutexGuard<'_, Fleet> {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use redis::RedisError;

    use super::{Micros, Presence, StoreError};
    use crate::store::redis::swap::unreadable;

    #[test]
    fn in_an_outage_the_last_count_holds_and_there_is_nothing_to_tell() {
        let (presence, late) = (Presence::default(), Micros(4_000_000));
        let away = || Err(StoreError::Deadline { within: Duration::from_millis(1), server: None });
        presence.handle_count(away());
        assert_eq!(presence.nodes(), None);
        assert!(matches!(presence.uncounted(), Some(StoreError::Deadline { .. })), "never counted");
        presence.handle_count_at(Ok(3), Micros::ZERO);
        assert!(presence.uncounted().is_none());
        presence.handle_count_at(Ok(3), late);
        presence.handle_count(away());
        assert_eq!(presence.nodes(), Some(3));
        assert!(presence.uncounted().is_none(), "in an outage");
        let error = RedisError::from(io::Error::other("WRONGTYPE"));
        presence.handle_count(Err(unreadable(&[b"tidegate:hosts"], "a sorted set", error)));
        assert_eq!(presence.nodes(), Some(3));
        assert!(matches!(presence.uncounted(), Some(StoreError::Unreadable { .. })));
    }
}
