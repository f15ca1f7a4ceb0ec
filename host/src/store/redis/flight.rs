//! A flight is the operations on one home that are under way together.
//!
//! A flight takes a batch of the operations that wait for the home, reads the states once, does the
//! operations in the order in which they came, swaps the states once, and answers. Operations that come
//! meanwhile wait for the next flight.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use tidegate_gate::{
    Answered, Limits, Micros, Operation, Resolved, Seat, Session, Timestamp, Verdict,
};
use tokio::task::yield_now;

use super::Shared;
use super::queue::{HomeId, Question, Waiting};
use crate::store::StoreError;

/// After this many operations the flight lets other tasks run.
const YIELD_AFTER: usize = 256;

/// The bytes stored under each name of a session; `None` where nothing is stored.
type Found = Vec<Option<Vec<u8>>>;

/// Runs one flight after another until no operation waits for the home. It runs in its own task, so a
/// caller that goes away does not end a flight.
pub(super) async fn serve(mut home: Home) {
    while let Some(batch) = home.shared.queues.take_batch(&home.id) {
        home.shared.decide_batch(batch.operations).await;
        drop(batch.when_written);
    }
    home.is_idle = true;
}

/// A home that a task serves.
pub(super) struct Home {
    shared: Arc<Shared>,
    id: HomeId,
    is_idle: bool,
}

impl Home {
    /// Made before the task begins: a runtime may end before it polls the task for the first time.
    pub(super) const fn new(shared: Arc<Shared>, id: HomeId) -> Self {
        Self { shared, id, is_idle: false }
    }
}

/// If the task ends early, for example with its runtime, the callers that wait get an error.
impl Drop for Home {
    fn drop(&mut self) {
        if !self.is_idle {
            self.shared.queues.close(&self.id);
        }
    }
}

/// An operation that has joined the session of its flight.
struct Joined<'a> {
    resolved: &'a Resolved,
    seat: Seat<'a>,
    question: Question,
}

/// An operation whose answer waits for the write.
struct Unanswered<'a> {
    joined: Joined<'a>,
    verdict: Verdict,
}

impl Shared {
    /// Decides and answers a batch of operations on one home.
    async fn decide_batch(&self, asked: Vec<Waiting>) {
        let asked = asked.into_iter().filter(|waiting| !waiting.question.is_abandoned());
        let (resolved, questions): (Vec<Resolved>, Vec<Question>) =
            asked.map(|waiting| (waiting.resolved, waiting.question)).unzip();
        if questions.is_empty() {
            return;
        }
        let mut session = Session::default();
        let mut asked = Vec::with_capacity(questions.len());
        for (resolved, question) in resolved.iter().zip(questions) {
            asked.push(Joined { resolved, seat: session.join(resolved), question });
        }
        let names = self.names(&session);
        let began = Instant::now();
        let mut found = match self.get(&names).await {
            Ok(found) => found,
            Err(error) => return fail(asked, &error),
        };
        let mut in_redis = began.elapsed();
        loop {
            session.load(found.clone());
            let unanswered = self.decide(&mut session, asked).await;
            if session.writes().next().is_none() {
                return answer_all(unanswered);
            }
            let began = Instant::now();
            let swapped = self.swap(&names, &found, &session).await;
            in_redis += began.elapsed();
            let error = match swapped {
                Ok(None) => return answer_all(unanswered),
                Ok(Some(others)) if in_redis < self.options.deadline => {
                    found = others;
                    // a settled answer was true of the states that were read: it needs no second decision
                    let joined = unanswered.into_iter().map(|each| each.joined);
                    asked = joined.filter(|joined| !joined.question.is_abandoned()).collect();
                    if asked.is_empty() {
                        return;
                    }
                    continue;
                }
                // other hosts won every race until the deadline
                Ok(Some(_)) => StoreError::Contended(self.options.deadline),
                Err(error) => error,
            };
            return self.give_up(unanswered, &session.names().zip(&found).collect(), &error);
        }
    }

    /// Decides in order, on states that were read before. Answers at once each operation whose answer does
    /// not depend on the write, and returns the others.
    async fn decide<'a>(
        &self,
        session: &mut Session<'a>,
        asked: Vec<Joined<'a>>,
    ) -> Vec<Unanswered<'a>> {
        let mut unanswered = Vec::new();
        for (place, joined) in asked.into_iter().enumerate() {
            if place % YIELD_AFTER == YIELD_AFTER - 1 {
                yield_now().await;
            }
            let now = self.time_of(joined.resolved, &joined.question);
            match session.operate(&joined.seat, now, &joined.question.operation) {
                Ok(Answered { verdict, is_settled: true }) => joined.question.answer(Ok(verdict)),
                Ok(Answered { verdict, .. }) => unanswered.push(Unanswered { joined, verdict }),
                Err(error) => joined.question.answer(Err(error.into())),
            }
        }
        unanswered
    }

    /// Answers the operations whose write failed, or may have failed. The store decides each operation
    /// alone on the states that it read. An operation that then takes nothing gets this answer, so a
    /// refusal stays a refusal. The other operations get the error.
    fn give_up(
        &self,
        unanswered: Vec<Unanswered<'_>>,
        found: &HashMap<&str, &Option<Vec<u8>>>,
        error: &StoreError,
    ) {
        for Unanswered { joined: Joined { resolved, question, .. }, .. } in unanswered {
            let mut alone = Session::default();
            let seat = alone.join(resolved);
            let own: Found =
                alone.names().map(|name| found.get(name).copied().cloned().flatten()).collect();
            alone.load(own);
            let operation = &question.operation;
            let answer = match alone.operate(&seat, self.time_of(resolved, &question), operation) {
                Ok(Answered { verdict, .. }) if takes_nothing(operation, &verdict) => Ok(verdict),
                _ => Err(error.clone()),
            };
            question.answer(answer);
        }
    }

    /// The time at which an operation is decided: the time that its caller gave, unless that time is
    /// older than half the period of the limits. An older time could turn a key's clock back.
    fn time_of(&self, resolved: &Resolved, question: &Question) -> Timestamp {
        let period = resolved.limits().map_or(Micros::ZERO, Limits::period);
        let now = self.options.clock.map_or(question.now, |clock| clock());
        let is_old = now.saturating_since(question.now).0 > period.0 / 2;
        if is_old { now } else { question.now }
    }

    /// Stores the session's writes if all its states are still as they were found. Otherwise stores
    /// nothing and returns the states that are there now.
    async fn swap(
        &self,
        names: &[String],
        found: &Found,
        session: &Session<'_>,
    ) -> Result<Option<Found>, StoreError> {
        let mut writes = session.writes().peekable();
        let (mut becomes, mut keep_ms) = (Vec::new(), Vec::new());
        for name in session.names() {
            let write = writes.next_if(|write| write.name == name); // in the order of the names
            let keep = write.as_ref().map_or(Micros::ZERO, |write| {
                let needed = write.time_to_live.0;
                Micros(needed.saturating_add(self.options.keep_longer.0).max(1))
            });
            becomes.push(write.map_or_else(Vec::new, |write| write.bytes));
            keep_ms.push(keep.as_millis_ceil());
        }
        let mut script = self.compare_and_swap.prepare_invoke();
        script.key(names);
        for found in found {
            script.arg(found.as_deref().unwrap_or_default());
        }
        for becomes in &becomes {
            script.arg(becomes.as_slice());
        }
        for keep_ms in keep_ms {
            script.arg(keep_ms);
        }
        let script = &script;
        let others: Option<Vec<Vec<u8>>> = self
            .connection
            .ask(|mut connection| async move { script.invoke_async(&mut connection).await })
            .await?;
        let stored = |bytes: Vec<u8>| (!bytes.is_empty()).then_some(bytes);
        Ok(others.map(|others| others.into_iter().map(stored).collect()))
    }
}

/// Answers the operations whose write is stored.
fn answer_all(unanswered: Vec<Unanswered<'_>>) {
    for Unanswered { joined, verdict } in unanswered {
        joined.question.answer(Ok(verdict));
    }
}

fn takes_nothing(operation: &Operation, verdict: &Verdict) -> bool {
    let is_refused = matches!(operation, Operation::Decide(_)) && !verdict.decision.is_allowed();
    is_refused || operation.is_peek()
}

fn fail(asked: Vec<Joined<'_>>, error: &StoreError) {
    for joined in asked {
        joined.question.answer(Err(error.clone()));
    }
}
