//! Who decides for a limiter on Durable Objects: a node answers what its policy lets it answer, and
//! asks the objects for the rest. The Worker's crate sends the questions, and hands the replies in.

use std::collections::VecDeque;

use tidegate_gate::{
    AskError, Explanation, Id, Micros, Operation, Policies, Request, Resolved, Timestamp,
    TransactionError, Verdict,
};
use tidegate_tier::authority::Failure;
use tidegate_tier::wire::{NodeOptions, Outbox, Outgoing};
use tidegate_tier::{Node, cache, outage};

use crate::chance::Chance;
use crate::fields::Fields;
use crate::policy;

/// The most keys that a node remembers, the most of its operations that wait, and what it remembers in an outage. Several limiters
/// share the memory of an isolate with its objects.
const MOST_KEYS: usize = 1 << 11;
const MOST_WAITING: usize = 1 << 12;
const SHARES: usize = 1_000_000;
const MOST_COMMITS: usize = 1 << 9;

/// How many questions about one partition may be under way: as many as there are. Each request sends its own questions,
/// because no request can wait in the name of another one.
const MOST_UNDER_WAY: usize = 1 << 20;

/// Asks objects.
#[derive(Debug)]
pub(crate) struct Tier {
    node: Node<usize>,
    /// Whether the node has an id of its own. While a Worker loads its scripts there are no random numbers, so it gets one when it is
    /// first asked.
    is_random: bool,
    chance: Chance,
    deadline: Micros,
    /// The answers that need no object, by their tokens.
    own: VecDeque<(usize, Result<Verdict, Failure<String>>)>,
    /// The newest time of the wall clock.
    now: Timestamp,
    /// What [`policy_of`] reads.
    policy: String,
    /// What the name of each object begins with.
    prefix: String,
}

impl Tier {
    pub(crate) fn new((text, name): (&str, Option<&str>), prefix: &str, deadline: Micros) -> Self {
        let mut policy = Fields::with_capacity(text.len());
        policy.text(name.unwrap_or_default()).text(text);
        Self {
            node: node([0; 3], deadline),
            is_random: false,
            chance: Chance::default(),
            deadline,
            own: VecDeque::new(),
            now: Timestamp::EPOCH,
            policy: policy.into_text(),
            prefix: escaped(prefix),
        }
    }

    /// Asks an operation. `is_timed` says whether its caller gave the time `now`.
    pub(crate) fn ask(
        &mut self,
        resolved: Resolved,
        operation: Operation,
        (now, is_timed, at): (Timestamp, bool, Micros),
        token: usize,
    ) {
        self.now = now;
        if !self.is_random {
            let mut number = || self.chance.number();
            let Some(numbers) = number().zip(number()).zip(number()) else {
                let failure = Failure::Store(AskError::NoRandomness.to_string());
                return self.own.push_back((token, Err(failure)));
            };
            let ((first, second), third) = numbers;
            self.node = node([first, second, third], self.deadline);
            self.is_random = true;
        }
        let given = is_timed.then_some(now);
        let asked = Outgoing { resolved, operation, now: given, at, token: Some(token) };
        if let Some(answer) = self.node.ask(asked, now) {
            self.own.push_back((token, Ok(answer.verdict())));
        }
    }

    pub(crate) fn poll_answer(&mut self) -> Option<(usize, Result<Verdict, Failure<String>>)> {
        if let Some(answer) = self.own.pop_front() {
            return Some(answer);
        }
        loop {
            let answer = self.node.poll_answer(self.now)?;
            let shared = self.node.share(&answer, self.now);
            // what the node itself asks has no token
            if let Some(token) = answer.asked.token {
                let failed = |failure: &dyn ToString| Failure::Store(failure.to_string());
                let verdict = answer.result.map_err(|failure| failed(&failure));
                return Some((token, verdict.or_else(|failure| shared.ok_or(failure))));
            }
        }
    }

    /// The states are elsewhere, and no object explains them.
    #[expect(clippy::unused_self, reason = "an authority explains")]
    pub(crate) const fn explain(
        &mut self,
        _resolved: &Resolved,
        _now: Timestamp,
        _request: &Request,
    ) -> Option<Result<Explanation, TransactionError>> {
        None
    }

    pub(crate) const fn outbox(&mut self) -> &mut Outbox<Option<usize>> {
        self.node.outbox()
    }

    pub(crate) fn policy(&self) -> &str {
        &self.policy
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }
}

fn node(random: [u64; 3], deadline: Micros) -> Node<usize> {
    let [first, second, seed] = random;
    let node = Id([first, second]);
    let cache = cache::Options { node, seed, most_keys: MOST_KEYS };
    let outbox = NodeOptions {
        node,
        most: MOST_WAITING,
        most_under_way: MOST_UNDER_WAY,
        deadline,
        ..NodeOptions::default()
    };
    let outage = outage::Options { most_bytes: SHARES, most_commits: MOST_COMMITS };
    Node::new(cache, outbox, outage)
}

/// A prefix as part of a name: with a slash at its end, and without what ends the name of a policy.
fn escaped(prefix: &str) -> String {
    if prefix.is_empty() {
        return String::new();
    }
    let escape = |character: char| match character {
        '%' | ':' | '#' | '/' => format!("%{:02x}", u32::from(character)),
        other => other.to_string(),
    };
    prefix.chars().map(escape).chain(["/".to_owned()]).collect()
}

/// Reads a policy, or the policy `name` of a policy file, as the limiter did that asks about it.
///
/// # Errors
/// Returns what is wrong with it.
pub fn policy_of(name: &str, text: &str) -> Result<Policies, String> {
    let name = Some(name).filter(|name| !name.is_empty());
    let read = policy::read(text, name).map(|(policy, _)| Policies::from(policy));
    read.map_err(|failure| failure.message())
}
