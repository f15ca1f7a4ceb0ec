//! What this host answers without asking Redis, as far as a policy allows it.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_gate::{Id, Micros, Operation, Resolved, Timestamp, Verdict};
use tidegate_tier::NodeCache;
use tidegate_tier::cache::Counts;
use tidegate_tier::cache::{Next, Options, Transmit, VerdictOf};

use super::driver::micros;
use super::queue::Queue;

/// The refusals, units and factors of this host.
pub(super) struct Node {
    state: Mutex<State>,
    began: Instant,
    /// What it has answered by itself.
    pub(super) answers: Counts,
}

struct State {
    local: NodeCache,
    /// A task reports what is due later.
    has_reporter: bool,
}

/// What to do about an operation.
pub(super) struct Step {
    /// The answer. Without one, ask Redis.
    pub(super) answer: Option<Box<Verdict>>,
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
        let state = State { local: NodeCache::new(options), has_reporter: false };
        Self { state: Mutex::new(state), began: Instant::now(), answers: Counts::default() }
    }

    pub(super) fn ask(&self, resolved: &Resolved, now: Timestamp, operation: &Operation) -> Step {
        let mut state = self.state();
        let sent = self.at(); // under the lock, so that it never goes back
        let (answer, budget) = match state.local.ask(resolved, operation, now, sent) {
            Next::Answer(answer) => {
                answer.kind().into_iter().for_each(|kind| self.answers.count(kind));
                (Some(Box::new(answer.verdict())), None)
            }
            Next::Forward { budget } => (None, budget),
        };
        let budget = budget.map(|operation| Transmit { resolved: resolved.clone(), operation });
        let own = budget.into_iter().chain(state.due(now, sent)).collect();
        let starts_reporter = !state.has_reporter && state.local.poll_timeout().is_some();
        state.has_reporter |= starts_reporter;
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
        let mut state = self.state();
        let at = self.at();
        state.local.handle_verdict(&VerdictOf { resolved, operation, verdict, sent, at });
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
                if let Ok(Ok(verdict)) = answer.await {
                    node.handle_verdict(&resolved, &operation, &verdict, sent);
                }
            });
        }
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
        let mut state = self.state();
        let at = self.at();
        (state.due(now, at).collect(), at)
    }

    /// The span until a report is due. `None` if there is none; a task that reports then ends.
    fn until_due(&self) -> Option<Duration> {
        let mut state = self.state();
        let due = state.local.poll_timeout();
        state.has_reporter = due.is_some();
        due.map(|due| Duration::from_micros(due.0.saturating_sub(self.at().0)))
    }

    fn at(&self) -> Micros {
        Micros(micros(self.began.elapsed()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn due(&mut self, now: Timestamp, at: Micros) -> impl Iterator<Item = Transmit> {
        std::iter::from_fn(move || self.local.poll_transmit(now, at))
    }
}

/// A task that reports. If its runtime ends before it, the next request starts another one. Two such tasks do no harm.
struct Reporter(Arc<Node>);

impl Drop for Reporter {
    fn drop(&mut self) {
        self.0.state().has_reporter = false;
    }
}
