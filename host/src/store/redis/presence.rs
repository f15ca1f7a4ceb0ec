//! How many hosts use this Redis, as far as this host knows. Hosts need the number in an outage, under policies with
//! `on_error = "local"`.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tidegate_gate::Micros;
use tidegate_tier::outage::Fleet;

use crate::clock::micros;

/// The host among the others.
pub(super) struct Presence {
    /// The name of this host, which no other has.
    pub(super) id: u64,
    began: Instant,
    fleet: Mutex<Fleet>,
    /// A task [announces](super::announce) the host.
    pub(super) is_announced: AtomicBool,
}

impl Presence {
    pub(super) fn new(id: u64) -> Self {
        let is_announced = AtomicBool::new(false);
        Self { id, began: Instant::now(), fleet: Mutex::default(), is_announced }
    }

    /// Takes the number of hosts that Redis has just counted.
    pub(super) fn handle_count(&self, count: u64) {
        self.fleet().handle_count(count, Micros(micros(self.began.elapsed())));
    }

    /// The number of hosts last seen, this one included; `None` if Redis was never asked.
    pub(super) fn nodes(&self) -> Option<u64> {
        self.fleet().nodes()
    }

    fn fleet(&self) -> MutexGuard<'_, Fleet> {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
