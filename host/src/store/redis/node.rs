//! What this host answers without asking Redis, as far as a policy allows it.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_gate::{Budget, Effect, Id, Micros, Operation, Resolved, Timestamp, Verdict};
use tidegate_tier::NodeCache;
use tidegate_tier::cache::{Counts, LocalVerdict, NodeStep, Options, Transmit, VerdictOf};

use super::driver::Queue;
use crate::clock::micros;

/// How often a node that stops looks for units that have arrived.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// The refusals, units and factors of this host.
pub(super) struct Node {
    state: Mutex<State>,
    began: Instant,
}

struct State {
    cache: NodeCache,
    /// The newest time. Threads read the clock before they take the lock.
    newest: Micros,
    /// A task reports what is due later.
    has_reporter: bool,
    /// What it has answered by itself.
    answers: Counts,
}

/// What to do about an operation.
pub(super) struct Step {
    /// The answer. Without one, ask Redis.
    pub(super) answer: Option<LocalVerdict>,
    /// What the node itself asks, after the operation.
    pub(super) own: Vec<Transmit>,
    /// When all this is asked.
    pub(super) sent: Micros,
    /// Start [`Node::report_later`].
    pub(super) starts_reporter: bool,
}

impl Node {
    pub(super) fn new() -> Self {
        let random = RandomState::new(); // random keys of the standard library
        let node = Id([random.hash_one("first"), random.hash_one("second")]);
        let options = Options { node, seed: random.hash_one("seed"), ..Options::default() };
        let (cache, newest) = (NodeCache::new(options), Micros::ZERO);
        let state = State { cache, newest, has_reporter: false, answers: Counts::default() };
        Self { state: Mutex::new(state), began: Instant::now() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it has answered by itself.
    pub(super) fn answers(&self) -> Counts {
        self.lock().answers.clone()
    }

    pub(super) fn ask(&self, resolved: &Resolved, now: Timestamp, operation: &Operation) -> Step {
        let (mut state, sent) = self.state();
        let NodeStep { answer, own } = state.cache.ask(resolved, operation, now, sent);
        let starts_reporter = !state.has_reporter && state.cache.poll_timeout().is_some();
        state.has_reporter |= starts_reporter;
        if let Some(kind) = answer.as_ref().and_then(LocalVerdict::kind) {
            state.answers.count(kind);
        }
        drop(state);
        Step { answer, own, sent, starts_reporter }
    }

    /// Takes the verdict of Redis on an operation that was asked at `sent`.
    pub(super) fn handle_verdict(
        &self,
        resolved: &Resolved,
        operation: &Operation,
        verdict: &Verdict,
        sent: Micros,
    ) {
        let (mut state, at) = self.state();
        state.cache.handle_verdict(&VerdictOf { resolved, operation, verdict, sent, at });
    }

    /// Asks Redis what the node itself asks. No caller waits for the answers.
    pub(super) fn transmit(
        self: &Arc<Self>,
        queue: &Queue,
        own: Vec<Transmit>,
        now: Timestamp,
        sent: Micros,
    ) {
        for Transmit { resolved, operation } in own {
            let (answer, node) = (queue.begin(&resolved, now, operation), Arc::clone(self));
            tokio::spawn(async move {
                if let Ok((Ok(verdict), _)) = answer.await {
                    node.handle_verdict(&resolved, &operation, &verdict, sent);
                }
            });
        }
    }

    /// Asks Redis to take back the units that this node holds, also those that are on their way. Returns how many went back.
    pub(super) async fn give_back(&self, queue: &Queue, clock: fn() -> Timestamp) -> u64 {
        let mut units = 0_u64;
        loop {
            let (own, sent, waits) = self.held();
            let now = clock();
            let asked: Vec<_> = own
                .into_iter()
                .map(|Transmit { resolved, operation }| {
                    (queue.begin(&resolved, now, operation), resolved, operation)
                })
                .collect();
            for (answer, resolved, operation) in asked {
                let Ok((Ok(verdict), _)) = answer.await else { continue };
                if verdict.degraded {
                    continue; // the store is away, so nothing went back
                }
                self.handle_verdict(&resolved, &operation, &verdict, sent);
                if let Operation::Budget(Budget { unspent: Some(unspent), .. }) = operation
                    && matches!(verdict.effect, Effect::Budget { returned: Some(true), .. })
                {
                    units = units.saturating_add(unspent.left);
                }
            }
            if !waits {
                return units;
            }
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        }
    }

    /// What this node has to give back, and whether more may arrive.
    fn held(&self) -> (Vec<Transmit>, Micros, bool) {
        let (mut state, at) = self.state();
        let waits = state.cache.waits_for_units(at);
        (state.cache.give_back(at), at, waits)
    }

    /// Reports what is due, until everything is reported.
    pub(super) fn report_later(self: &Arc<Self>, queue: &Arc<Queue>, clock: fn() -> Timestamp) {
        let (reporter, queue) = (Reporter(Arc::clone(self)), Arc::clone(queue));
        tokio::spawn(async move {
            let node = &reporter.0;
            while let Some(wait) = node.until_due() {
                tokio::time::sleep(wait).await;
                let now = clock();
                let (own, sent) = node.due(now);
                node.transmit(&queue, own, now, sent);
            }
        });
    }

    fn due(&self, now: Timestamp) -> (Vec<Transmit>, Micros) {
        let (mut state, at) = self.state();
        (state.due(now, at).collect(), at)
    }

    /// The span until a report is due. `None` if there is none; a task that reports then ends.
    fn until_due(&self) -> Option<Duration> {
        let (mut state, at) = self.state();
        let due = state.cache.poll_timeout();
        state.has_reporter = due.is_some();
        due.map(|due| Duration::from_micros(due.0.saturating_sub(at.0)))
    }

    /// The state, and a time that is not earlier than any before.
    fn state(&self) -> (MutexGuard<'_, State>, Micros) {
        let at = Micros(micros(self.began.elapsed()));
        let mut state = self.lock();
        state.newest = state.newest.max(at);
        let at = state.newest;
        (state, at)
    }
}

impl State {
    fn due(&mut self, now: Timestamp, at: Micros) -> impl Iterator<Item = Transmit> {
        std::iter::from_fn(move || self.cache.poll_transmit(now, at))
    }
}

/// A task that reports. If its runtime ends before it, the next request starts another one. Two such tasks do no harm.
struct Reporter(Arc<Node>);

impl Drop for Reporter {
    fn drop(&mut self) {
        self.0.state().0.has_reporter = false;
    }
}
