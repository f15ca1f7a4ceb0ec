mod inbox;
mod messages;
mod node;
mod outbox;

use alloc::sync::Arc;
use alloc::vec::Vec;
use std::collections::HashMap;
use std::string::String;

use tidegate_gate::{Id, Micros, Operation, Policies, Request, Resolved, Timestamp, Verdict};

use super::*;
use crate::authority::{self, Authority, SwapOutcome};

const NODE: Id = Id([0x0123_4567_89ab_cdef, 7]);
const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

const POLICIES: &str = "
[policies.api]
share_calls = false
limits = [
  { algorithm = 'fixed_window', limit = 1_000_000, period = '1d' },
  { algorithm = 'fixed_window', limit = 1_000_000, period = '1d', depth = 1 },
]
[policies.one]
share_calls = false
limits = [{ algorithm = 'fixed_window', limit = 1, period = '1d' }]
[policies.shared]
placement = 'shard:1'
limits = [{ algorithm = 'fixed_window', limit = 9, period = '1d' }]
";

fn policies() -> Policies {
    Policies::parse(POLICIES).unwrap()
}

fn resolved(key: &str) -> Resolved {
    Resolved::new(policies().get("api").unwrap(), key).unwrap()
}

fn options() -> NodeOptions {
    NodeOptions { node: NODE, ..NodeOptions::default() }
}

fn asked<T>(key: &str, at: u64, token: T) -> Outgoing<T> {
    let (operation, at) = (Operation::from(1), Micros(at));
    Outgoing { resolved: resolved(key), operation, now: None, at, token }
}

/// An authority with a store of its own.
struct Object {
    policies: Policies,
    inbox: Inbox<usize>,
    authority: Authority<Place, &'static str>,
    store: HashMap<String, Vec<u8>>,
    at: Micros,
    /// The operations that the authority has decided, as far as their keys' windows count them.
    swaps: usize,
}

impl Object {
    fn new(options: AuthorityOptions) -> Self {
        Self {
            policies: policies(),
            inbox: Inbox::new(options),
            authority: Authority::new(authority::Options::default()),
            store: HashMap::new(),
            at: Micros(0),
            swaps: 0,
        }
    }

    fn now(&self) -> Timestamp {
        NOW.saturating_add(self.at)
    }

    fn handle(&mut self, to: usize, question: &[u8]) -> Result<(), (usize, WireError)> {
        let now = (self.now(), self.at);
        let Self { policies, inbox, authority, .. } = self;
        inbox.handle_question((to, question), policies, now, authority)
    }

    /// Decides what waits, and stores it.
    fn decide(&mut self) {
        let times = (Some(self.now()), self.at);
        while let Some(swap) = self.authority.poll_swap(times, |_| false) {
            self.swaps += 1;
            self.write(&swap);
            let outcomes = alloc::vec![SwapOutcome::Swapped; swap.len()];
            self.authority.handle(swap, outcomes, times);
        }
    }

    fn write(&mut self, swap: &authority::Swap) {
        for partition in 0..swap.len() {
            for record in self.authority.records(swap, partition) {
                if let Some(bytes) = record.becomes {
                    self.store.insert(record.name.into(), bytes.into());
                }
            }
        }
    }

    fn replies(&mut self) -> Vec<Addressed<usize>> {
        let mut replies = Vec::new();
        while let Some(reply) = self.inbox.poll_reply(self.at, &mut self.authority) {
            replies.push(reply);
        }
        replies
    }

    /// The reply to a question.
    fn call(&mut self, question: &[u8]) -> Arc<[u8]> {
        self.handle(0, question).unwrap();
        self.decide();
        let replies = self.replies();
        let [(0, reply)] = replies.as_slice() else { panic!("{replies:?}") };
        Arc::clone(reply)
    }

    /// How many units of the key are taken.
    fn taken(&mut self, key: &str) -> u64 {
        let question = question(Id([99, 99]), wide(self.swaps), &[key], Operation::from(0));
        let Ok((_, message::Reply::Answers(answers))) = message::Reply::read(&self.call(&question))
        else {
            panic!()
        };
        let verdict = answers[0].as_ref().unwrap();
        1_000_000 - verdict.limits[1].remaining()
    }
}

/// An operation of which no repeat is known.
fn item(key: &str, now: Option<Timestamp>, operation: impl Into<Operation>) -> message::Item<'_> {
    message::Item { key, now, operation: operation.into(), idempotency: None }
}

/// The bytes of a question about some keys.
fn question(node: Id, number: u64, keys: &[&str], operation: Operation) -> Vec<u8> {
    let mut question = message::QuestionWriter::new(message::Name { node, number }, "api");
    for key in keys {
        assert!(question.add(&item(key, None, operation), usize::MAX));
    }
    question.finish()
}

fn answers<T>(outbox: &mut Outbox<T>) -> Vec<(T, Result<Verdict, Failure>)> {
    let mut answers = Vec::new();
    while let Some(answer) = outbox.poll_answer() {
        answers.push((answer.asked.token, answer.result));
    }
    answers
}

/// A count as a number.
fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap()
}

/// A number as a count.
fn narrow(number: u64) -> usize {
    usize::try_from(number).unwrap()
}
