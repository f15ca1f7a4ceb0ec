//! A flight decides all operations that wait for one home: it reads once, does the operations in the
//! order in which they came, swaps once, and answers. Operations that come meanwhile wait for the next
//! flight.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use tidegate_gate::{Answered, Micros, Operation, Resolved, Seat, Session, Verdict};
use tokio::task::yield_now;

use super::Shared;
use super::queue::{HomeId, Question, Waiting};
use crate::store::StoreError;

/// After this many operations other tasks get a turn.
const YIELD_AFTER: usize = 256;

/// The bytes stored under each name of a session.
type Found = Vec<Option<Vec<u8>>>;

/// Serves a home until nothing waits for it. This runs in a task of its own, so a caller that goes away
/// ends no flight.
pub(super) async fn serve(shared: Arc<Shared>, id: HomeId) {
    let mut home = Home { shared, id, is_idle: false };
    while let Some(departure) = home.shared.queues.depart(&home.id) {
        home.shared.fly(departure.operations).await;
        drop(departure.landings);
    }
    home.is_idle = true;
}

/// A home that a task serves.
struct Home {
    shared: Arc<Shared>,
    id: HomeId,
    is_idle: bool,
}

/// A task that ends early, as with its runtime, strands nobody.
impl Drop for Home {
    fn drop(&mut self) {
        if !self.is_idle {
            self.shared.queues.close(&self.id);
        }
    }
}

/// An operation under way.
struct Passenger<'a> {
    resolved: &'a Resolved,
    seat: Seat<'a>,
    question: Question,
}

/// An operation whose answer waits for the write.
struct Unanswered<'a> {
    passenger: Passenger<'a>,
    verdict: Verdict,
}

impl Shared {
    /// Decides and answers these operations. They are on one home.
    async fn fly(&self, asked: Vec<Waiting>) {
        let asked = asked.into_iter().filter(|waiting| !waiting.question.is_abandoned());
        let (resolved, questions): (Vec<Resolved>, Vec<Question>) =
            asked.map(|waiting| (waiting.resolved, waiting.question)).unzip();
        if questions.is_empty() {
            return;
        }
        let mut session = Session::default();
        let mut asked = Vec::with_capacity(questions.len());
        for (resolved, question) in resolved.iter().zip(questions) {
            asked.push(Passenger { resolved, seat: session.join(resolved), question });
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
            let unanswered = decide(&mut session, asked).await;
            if session.writes().next().is_none() {
                return land(unanswered);
            }
            let began = Instant::now();
            let swapped = self.swap(&names, &found, &session).await;
            in_redis += began.elapsed();
            let error = match swapped {
                Ok(None) => return land(unanswered),
                Ok(Some(others)) if in_redis < self.options.deadline => {
                    found = others;
                    // a settled answer was true of what was read, so it is not decided again
                    asked = unanswered.into_iter().map(|each| each.passenger).collect();
                    if asked.is_empty() {
                        return;
                    }
                    continue;
                }
                // other hosts have been faster for as long as Redis may take
                Ok(Some(_)) => StoreError::Contended(self.options.deadline),
                Err(error) => error,
            };
            return give_up(unanswered, &session.names().zip(&found).collect(), &error);
        }
    }

    /// Stores what the session writes, if all its states are still as they were found. Else it stores
    /// nothing and returns the states that are there.
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

/// Decides in order. Answers at once the operations whose answer does not depend on the write, and returns
/// the others.
async fn decide<'a>(session: &mut Session<'a>, asked: Vec<Passenger<'a>>) -> Vec<Unanswered<'a>> {
    let mut unanswered = Vec::new();
    for (place, passenger) in asked.into_iter().enumerate() {
        if place % YIELD_AFTER == YIELD_AFTER - 1 {
            yield_now().await;
        }
        let Question { now, operation, .. } = &passenger.question;
        match session.operate(&passenger.seat, *now, operation) {
            Ok(Answered { verdict, is_settled: true }) => passenger.question.answer(Ok(verdict)),
            Ok(Answered { verdict, .. }) => unanswered.push(Unanswered { passenger, verdict }),
            Err(error) => passenger.question.answer(Err(error.into())),
        }
    }
    unanswered
}

/// Answers operations whose write is stored.
fn land(unanswered: Vec<Unanswered<'_>>) {
    for Unanswered { passenger, verdict } in unanswered {
        passenger.question.answer(Ok(verdict));
    }
}

/// Answers operations whose write failed, or may have failed. An operation that takes nothing is answered
/// by what was read, without the grants before it: what was read and refused stays refused. The others
/// get the error.
fn give_up(
    unanswered: Vec<Unanswered<'_>>,
    found: &HashMap<&str, &Option<Vec<u8>>>,
    error: &StoreError,
) {
    for Unanswered { passenger: Passenger { resolved, question, .. }, .. } in unanswered {
        let Question { now, operation, .. } = &question;
        let mut alone = Session::default();
        let seat = alone.join(resolved);
        let own: Found =
            alone.names().map(|name| found.get(name).copied().cloned().flatten()).collect();
        alone.load(own);
        let answer = match alone.operate(&seat, *now, operation) {
            Ok(Answered { verdict, .. }) if takes_nothing(operation, &verdict) => Ok(verdict),
            _ => Err(error.clone()),
        };
        question.answer(answer);
    }
}

fn takes_nothing(operation: &Operation, verdict: &Verdict) -> bool {
    let is_refused = matches!(operation, Operation::Decide(_)) && !verdict.decision.is_allowed();
    is_refused || operation.is_peek()
}

fn fail(asked: Vec<Passenger<'_>>, error: &StoreError) {
    for passenger in asked {
        passenger.question.answer(Err(error.clone()));
    }
}
