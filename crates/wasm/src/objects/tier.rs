//! The operations that wait for objects.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use slab::Slab;
use tidegate_gate::{AskError, Id, Micros, Timestamp, Verdict};
use tidegate_tier::authority::Failure;
use tidegate_tier::outage::Shares;
use tidegate_tier::wire::{NodeOptions, Outbox, Outgoing};
use tidegate_tier::{Node, Outage, cache};

use crate::chance::Chance;
use crate::far::caller::{Answer, Caller, Taken};
use crate::fields::Fields;

/// The most keys that a node remembers, the most of its operations that wait, and what it remembers in an outage. Several limiters
/// share the memory of an isolate with its objects.
const MOST_KEYS: usize = 1 << 11;
const MOST_WAITING: usize = 1 << 12;
const MOST_BYTES: usize = 1_000_000;

thread_local! {
    /// The shares of this isolate, which is one node however many limiters it has.
    static SHARES: RefCell<Outage> = const { RefCell::new(Outage::new(MOST_BYTES)) };
}

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
    /// The operations without an answer, by their tokens.
    waiting: Slab<Caller>,
    /// The answers that need no object, by their tokens. They wait for what the node itself asks, which a request must send.
    own: VecDeque<(usize, Verdict)>,
    /// The newest time of the wall clock.
    now: Timestamp,
    /// What [`policy_of`](crate::policy_of) reads.
    policy: String,
    /// What the name of each object begins with.
    prefix: String,
}

impl Tier {
    /// What an error of the store begins with.
    pub(crate) const STORE: &str = "durable object";

    pub(super) fn new((text, name): (&str, Option<&str>), prefix: &str, deadline: Micros) -> Self {
        let mut policy = Fields::with_capacity(text.len());
        policy.text(name.unwrap_or_default()).text(text);
        Self {
            node: node([0; 3], prefix, deadline),
            is_random: false,
            chance: Chance::default(),
            deadline,
            waiting: Slab::new(),
            own: VecDeque::new(),
            now: Timestamp::EPOCH,
            policy: policy.into_text(),
            prefix: escaped(prefix),
        }
    }

    /// Takes an operation.
    pub(crate) fn ask(&mut self, caller: Caller, now: Timestamp) -> Taken {
        let Caller { operation, is_timed, at, .. } = caller;
        self.now = now;
        if !self.is_random {
            let mut number = || self.chance.number();
            let Some(numbers) = number().zip(number()).zip(number()) else {
                let failure = Failure::Store(AskError::NoRandomness.to_string());
                return Taken::Answered(caller, Err(failure));
            };
            let ((first, second), third) = numbers;
            self.node = node([first, second, third], &self.prefix, self.deadline);
            self.is_random = true;
        }
        let given = is_timed.then_some(now);
        let resolved = caller.resolved.clone();
        let token = self.waiting.insert(caller);
        let asked = Outgoing { resolved, operation, now: given, at, token: Some(token) };
        if let Some(answer) = self.node.ask(asked, now) {
            self.own.push_back((token, answer.verdict()));
        }
        Taken::Waits(token)
    }

    /// The next answer to a caller, and the caller's token.
    pub(crate) fn poll_answer(&mut self, _at: Micros) -> Option<(usize, Caller, Answer)> {
        let (token, answer) = self.next_answer()?;
        Some((token, self.waiting.try_remove(token)?, answer))
    }

    fn next_answer(&mut self) -> Option<(usize, Answer)> {
        if let Some((token, verdict)) = self.own.pop_front() {
            return Some((token, Ok(verdict)));
        }
        loop {
            let answer = self.node.poll_answer()?;
            let shared = self.node.share(&answer, self.now);
            // what the node itself asks has no token
            if let Some(token) = answer.asked.token {
                let failed = |failure: &dyn ToString| Failure::Store(failure.to_string());
                let verdict = answer.result.map_err(|failure| failed(&failure));
                return Some((token, verdict.or_else(|failure| shared.ok_or(failure))));
            }
        }
    }

    /// Why no object can be asked.
    #[expect(clippy::unused_self, reason = "Redis has several reasons")]
    pub(crate) fn cause(&self) -> Failure<String> {
        Failure::Store("no reply came".into())
    }

    pub(super) const fn outbox(&mut self) -> &mut Outbox<Option<usize>> {
        self.node.outbox()
    }

    pub(super) fn policy(&self) -> &str {
        &self.policy
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }
}

fn node(random: [u64; 3], prefix: &str, deadline: Micros) -> Node<usize> {
    let store = BuildHasherDefault::<DefaultHasher>::default().hash_one(prefix);
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
    let shares = Shares::Process(|to| SHARES.with_borrow_mut(|shares| to(shares)));
    Node::new(cache, outbox, (store, shares))
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
