//! The task that drives the authority: it takes the operations, keeps some swaps under way, and answers.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::stream::FuturesUnordered;
use tidegate_gate::{Micros, Operation, Resolved, Timestamp};
use tidegate_tier::Authority;
use tidegate_tier::authority::{Options, Queued, Swap, SwapOutcome};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::outage::shares;
use super::shared::{Answer, MOST_DEADLINES, Shared, Token};
use super::swap::{Call, Made};
use crate::clock::micros;
use crate::store::error::StoreError;

/// How many calls of the script are under way at once. With fewer, Redis waits for the driver; with more, the
/// swaps become small.
const MOST_CALLS: usize = 4;

/// How many operations the driver takes before it looks for answers again.
const MOST_TAKEN: usize = 1_024;

/// The pause between two questions whether a server is back.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Gives operations to the drivers. Each server has a driver of its own, so no server waits for another one.
pub(super) struct Queue {
    pub(super) shared: Arc<Shared>,
    /// Where the driver of a server takes operations from, by the number of the server. They are few, so each call would take longer
    /// to hash the number than to find it.
    drivers: Mutex<BTreeMap<u64, mpsc::UnboundedSender<Queued<Token>>>>,
}

impl Queue {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, drivers: Mutex::default() }
    }

    pub(super) fn begin(
        &self,
        resolved: &Resolved,
        now: Timestamp,
        operation: Operation,
    ) -> oneshot::Receiver<Answer> {
        let (token, answer) = oneshot::channel();
        let server = self.shared.server(resolved);
        let (resolved, at) = (resolved.clone(), Micros::ZERO); // the driver has the clock
        self.send(server, Queued { resolved, now, at, operation, token });
        answer
    }

    /// Gives an operation to the driver of a server. Starts the driver if it does not run, or if its runtime has ended. The
    /// drivers of servers that are gone end when they have answered.
    fn send(&self, server: u64, queued: Queued<Token>) {
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        let unsent = match drivers.get(&server) {
            Some(sender) => match sender.send(queued) {
                Ok(()) => return,
                Err(unsent) => unsent.0,
            },
            None => queued,
        };
        let (sender, taken) = mpsc::unbounded_channel();
        let _ = sender.send(unsent); // the receiver is here
        drivers.retain(|server, _| self.shared.servers.has(*server));
        drivers.insert(server, sender);
        tokio::spawn(Driver::new(Arc::clone(&self.shared), server).run(taken));
    }
}

/// A call that has ended: what became of it, or the error of the whole call.
type Ended = (Swap, Result<Made, StoreError>);

pub(super) struct Driver {
    shared: Arc<Shared>,
    /// The number of the server.
    server: u64,
    authority: Authority<Token, StoreError>,
    calls: FuturesUnordered<BoxFuture<'static, Ended>>,
    /// The question whether the server is back; `None` if it is not away.
    back: Option<BoxFuture<'static, Result<(), StoreError>>>,
    began: Instant,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, server: u64) -> Self {
        let options = Options {
            ttl_margin: shared.options.ttl_margin,
            patience: Micros(micros(shared.options.deadline)),
            most_wait: Micros(micros(shared.options.deadline * MOST_DEADLINES)),
            seed: shared.seed,
            store: shared.number,
            shares: Some(shares),
            ..Options::default()
        };
        let authority = Authority::new(options);
        let calls = FuturesUnordered::new();
        Self { shared, server, authority, calls, back: None, began: Instant::now() }
    }

    /// Runs until the store is dropped and all operations are answered.
    pub(super) async fn run(mut self, mut asked: mpsc::UnboundedReceiver<Queued<Token>>) {
        let mut taken = Vec::with_capacity(MOST_TAKEN);
        let mut overloaded = 0;
        let mut is_open = true;
        while is_open || !self.calls.is_empty() {
            tokio::select! {
                biased;
                Some(ended) = self.calls.next(), if !self.calls.is_empty() => self.end(ended),
                Some(answer) = OptionFuture::from(self.back.as_mut()) => self.heard(answer),
                count = asked.recv_many(&mut taken, MOST_TAKEN), if is_open => {
                    is_open = count > 0;
                    let (_, at) = self.times();
                    for queued in taken.drain(..) {
                        self.authority.ask(Queued { at, ..queued });
                    }
                }
            }
            self.begin();
            let counted = self.authority.overloaded();
            self.shared.overloaded.fetch_add(counted.saturating_sub(overloaded), Ordering::Relaxed);
            overloaded = counted;
            while let Some((token, answer, cause)) = self.authority.poll_answer() {
                let _ = token.send((answer, cause)); // the caller may be gone
            }
        }
    }

    /// Begins calls while the authority has swaps.
    fn begin(&mut self) {
        while self.calls.len() < MOST_CALLS {
            let times = self.times();
            let Some(swap) = self.authority.poll_swap(times, oneshot::Sender::is_closed) else {
                return;
            };
            let call = Call::new(&self.shared, &mut self.authority, &swap);
            self.make(swap, call);
        }
    }

    fn make(&mut self, swap: Swap, call: Call) {
        let shared = Arc::clone(&self.shared);
        self.calls.push(Box::pin(async move { (swap, call.make(&shared).await) }));
    }

    fn end(&mut self, (swap, made): Ended) {
        let times = self.times();
        if let Some(nodes) = self.shared.presence.nodes() {
            self.authority.handle_nodes(nodes);
        }
        match made {
            Ok(made) if made.again.is_empty() => self.authority.handle(swap, made.outcomes, times),
            Ok(made) => {
                let call = Call::again(&self.shared, &mut self.authority, (&swap, made));
                self.make(swap, call);
            }
            Err(error) => {
                let asked_at = swap.at();
                let failed = vec![SwapOutcome::Failed(error.clone()); swap.len()];
                self.authority.handle(swap, failed, times);
                self.authority.fail_waiting(&error, times.0);
                if self.authority.handle_away(error, asked_at) && self.back.is_none() {
                    self.ask_whether_back(Duration::ZERO);
                }
            }
        }
    }

    /// Asks after a pause whether the server is back.
    fn ask_whether_back(&mut self, pause: Duration) {
        let (shared, server) = (Arc::clone(&self.shared), self.server);
        self.back = Some(Box::pin(async move {
            sleep(pause).await;
            shared.servers.ping(server).await
        }));
    }

    /// Takes the answer to the question whether the server is back. What fails meanwhile names the newest cause.
    fn heard(&mut self, answer: Result<(), StoreError>) {
        let (_, at) = self.times();
        match answer {
            Ok(()) => {
                self.back = None;
                self.authority.handle_back(at);
            }
            Err(error) => {
                self.authority.handle_away(error, at);
                self.ask_whether_back(ASK_AGAIN_AFTER);
            }
        }
    }

    /// The time of the host's clock, if operations may be decided at it, and the time since the driver began.
    fn times(&self) -> (Option<Timestamp>, Micros) {
        let now = self.shared.options.clock.map(|clock| clock());
        (now, Micros(micros(self.began.elapsed())))
    }
}
