//! The task that drives the authority: it takes the operations, keeps some swaps under way, and answers.

use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tidegate_gate::{Micros, Timestamp, Verdict};
use tidegate_tier::Authority;
use tidegate_tier::authority::{Asked, Failure, Options, Outcome, Swap};
use tokio::sync::{mpsc, oneshot};

use super::Shared;
use super::swap::Call;
use crate::store::StoreError;

/// How many calls of the script are under way at once. With fewer, Redis waits for the driver; with more, the
/// swaps become small.
static MOST_CALLS: std::sync::LazyLock<usize> = std::sync::LazyLock::new(|| std::env::var("CALLS").map_or(4, |v| v.parse().unwrap()));

/// How many operations the driver takes before it looks for answers again.
const MOST_TAKEN: usize = 1_024;

/// Where an answer goes.
pub(super) type Token = oneshot::Sender<Answer>;

pub(super) type Answer = Result<Verdict, Failure<StoreError>>;

/// A call that has ended: the outcome of each home, or the error of the whole call.
type Ended = (Swap, Result<Vec<Outcome<StoreError>>, StoreError>);

pub(super) struct Driver {
    shared: Arc<Shared>,
    authority: Authority<Token, StoreError>,
    calls: FuturesUnordered<BoxFuture<'static, Ended>>,
    began: Instant,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let patience = Micros(shared.options.deadline.as_micros().try_into().unwrap_or(u64::MAX));
        let options = Options { patience, seed: shared.seed, most_slices: std::env::var("SLICES").map_or(64, |v| v.parse().unwrap()), ..Options::default() };
        let authority = Authority::new(options);
        Self { shared, authority, calls: FuturesUnordered::new(), began: Instant::now() }
    }

    /// Runs until the store is dropped and all operations are answered.
    pub(super) async fn run(mut self, mut asked: mpsc::UnboundedReceiver<Asked<Token>>) {
        let mut taken = Vec::with_capacity(MOST_TAKEN);
        let mut is_open = true;
        while is_open || !self.calls.is_empty() {
            tokio::select! {
                biased;
                Some(ended) = self.calls.next(), if !self.calls.is_empty() => self.end(ended),
                count = asked.recv_many(&mut taken, MOST_TAKEN), if is_open => {
                    is_open = count > 0;
                    taken.drain(..).for_each(|asked| self.authority.ask(asked));
                }
            }
            self.begin();
            while let Some((token, answer)) = self.authority.poll_answer() {
                let _ = token.send(answer); // the caller may be gone
            }
        }
    }

    /// Begins calls while the authority has swaps.
    fn begin(&mut self) {
        while self.calls.len() < *MOST_CALLS {
            let now = self.now();
            let Some(swap) = self.authority.poll_swap(now, oneshot::Sender::is_closed) else {
                return;
            };
            let options = &self.shared.options;
            let mut call = Call::default();
            for home in 0..swap.len() {
                call.add(options, self.authority.slices(&swap, home));
            }
            let shared = Arc::clone(&self.shared);
            self.calls.push(Box::pin(async move { (swap, call.make(&shared).await) }));
        }
    }

    fn end(&mut self, (swap, outcomes): Ended) {
        let at = Micros(self.began.elapsed().as_micros().try_into().unwrap_or(u64::MAX));
        let now = self.now();
        match outcomes {
            Ok(outcomes) => self.authority.handle(swap, outcomes, (now, at)),
            Err(error) => {
                let failed = vec![Outcome::Failed(error.clone()); swap.len()];
                self.authority.handle(swap, failed, (now, at));
                self.authority.fail_waiting(&error);
            }
        }
    }

    fn now(&self) -> Option<Timestamp> {
        self.shared.options.clock.map(|clock| clock())
    }
}
