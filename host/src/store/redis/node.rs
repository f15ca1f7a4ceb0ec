//! What this host answers without asking Redis, as far as a policy allows it.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tidegate_gate::{Id, Micros, Operation, Resolved, Timestamp, Verdict};
use tidegate_tier::Local;
use tidegate_tier::local::{Heard, Next, Options};

use super::driver::micros;

/// The refusals and units of this host.
pub(super) struct Node {
    local: Mutex<Local>,
    began: Instant,
}

/// What to do about an operation.
pub(super) enum Step {
    Answer(Box<Verdict>),
    /// Ask Redis, and then for the budget.
    Ask {
        budget: Option<Operation>,
        sent: Micros,
    },
}

impl Node {
    pub(super) fn new() -> Self {
        let random = RandomState::new(); // random keys of the standard library
        let node = Id([random.hash_one("first"), random.hash_one("second")]);
        let options = Options { node, seed: random.hash_one("seed"), ..Options::default() };
        Self { local: Mutex::new(Local::new(options)), began: Instant::now() }
    }

    pub(super) fn ask(&self, resolved: &Resolved, now: Timestamp, operation: &Operation) -> Step {
        let mut local = self.local();
        let at = self.at(); // under the lock, so that it never goes back
        match local.ask(resolved, operation, now, at) {
            Next::Answer(answer) => Step::Answer(Box::new(answer.verdict())),
            Next::Forward { budget } => Step::Ask { budget, sent: at },
        }
    }

    /// Takes the verdict of Redis on an operation that was asked at `sent`.
    pub(super) fn heard(
        &self,
        resolved: &Resolved,
        operation: &Operation,
        verdict: &Verdict,
        sent: Micros,
    ) {
        let mut local = self.local();
        let at = self.at();
        local.heard(&Heard { resolved, operation, verdict, sent, at });
    }

    fn at(&self) -> Micros {
        Micros(micros(self.began.elapsed()))
    }

    fn local(&self) -> MutexGuard<'_, Local> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
