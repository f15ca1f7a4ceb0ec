//! An isolate as a node: it answers what its policies let it answer, and asks the objects for the rest.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_gate::{Id, Micros, Operation, Resolved, Timestamp};
use tidegate_http::{Access, Check, Exchange, LogSecret, Outcome, Step};
use tidegate_tier::outage::Shares;
use tidegate_tier::wire::{Failure, NodeOptions, Outgoing};
use tidegate_tier::{Outage, cache};
use wasm_bindgen::{JsValue, throw_str};

use crate::bindings::Bindings;
use crate::call;
use crate::clock::{Clock, timestamp};
use crate::exchanges::{End, Exchanges, NextStep, Running};
use crate::in_force::{InForce, Needs};
use crate::lists::Handover;
use crate::log::log_error;
use crate::memory::{MOST_KEYS, MOST_WAITING, SHARES};
use crate::policies;
use crate::watch::Watch;

/// How long a question waits for its reply once its client has gone. Nothing else ends the wait of a client but the
/// runtime, which says when a call has failed.
const LONGEST_QUESTION: Micros = Micros(30_000_000);

/// The numbers of exchanges are below this one, so that a number and a step fit into 32 bits.
const EXCHANGES: u32 = 1 << (u32::BITS - NextStep::BITS);

/// How many questions about one partition may be under way: as many as there are. Each request sends its own questions,
/// because no request can wait in the name of another one.
const MOST_UNDER_WAY: usize = 1 << 20;

thread_local! {
    static NODE: RefCell<Option<Node>> = const { RefCell::new(None) };
}

/// The exchange and the place of a check in it; `None` for an operation of the node itself.
type Token = (u32, usize);

pub(crate) struct Node {
    pub(crate) in_force: Rc<InForce>,
    pub(crate) watch: Watch,
    /// Whether checks are decided at the times that callers give. Only a test environment may do that.
    trusts_caller_time: bool,
    /// What the isolate answers by itself, and its questions to the objects.
    pub(crate) asks: tidegate_tier::Node<Token>,
    pub(crate) exchanges: Exchanges,
    next: u32,
    /// What JavaScript knows of the revision in force.
    pub(crate) needs: Needs,
    clock: Clock,
    pub(crate) log_secret: LogSecret,
    /// What it hands over of its lists.
    pub(crate) handover: Handover,
}

impl Node {
    /// The node of an isolate with these bindings.
    ///
    /// # Errors
    /// Returns what is wrong with the policy file or with a token.
    pub(crate) fn new(bindings: Bindings, needs: Needs) -> Result<Self, String> {
        let Bindings { tokens, log_secret, telemetry, trusts_caller_time, policies_delay } =
            bindings;
        let revision = policies::deployed()?;
        let access = Access::new(&revision.policies, tokens).map_err(|error| error.to_string())?;
        let random = || getrandom::u64().map_err(|error| error.to_string());
        let (node, seed) = (Id([random()?, random()?]), random()?);
        let cache = cache::Options { node, seed, most_keys: MOST_KEYS };
        let outbox = NodeOptions {
            node,
            most: MOST_WAITING,
            most_under_way: MOST_UNDER_WAY,
            deadline: LONGEST_QUESTION,
            ..NodeOptions::default()
        };
        let shares = Shares::Own(Outage::new(SHARES));
        let watch = Watch::new(revision.tag.clone(), policies_delay);
        let in_force = InForce::new(revision, access, telemetry);
        in_force.say(&needs);
        Ok(Self {
            watch,
            in_force,
            log_secret: LogSecret::new(
                log_secret.unwrap_or(format!("{}{}", random()?, random()?)).as_bytes(),
            ),
            trusts_caller_time,
            asks: tidegate_tier::Node::new(cache, outbox, (0, shares)),
            exchanges: Exchanges::default(),
            next: 0,
            needs,
            clock: Clock::default(),
            handover: Handover::new(random()?),
        })
    }

    /// Begins an exchange under the policies that are in force now, and returns its number.
    pub(crate) fn begin(
        &mut self,
        (now, at): (Timestamp, Micros),
        begin: impl FnOnce(&InForce) -> Exchange,
    ) -> u32 {
        self.forget(at);
        self.end_overrides(now);
        let id = self.next;
        self.next = id.wrapping_add(1) % EXCHANGES;
        let running = Running::new(&self.in_force, begin(&self.in_force), at);
        self.exchanges.insert(id, Box::new(running));
        id
    }

    /// Gives up exchanges whose clients have gone, and their questions.
    pub(crate) fn forget(&mut self, at: Micros) {
        if self.asks.outbox().poll_timeout().is_some_and(|due| due <= at) {
            self.asks.outbox().handle_timeout(at);
            self.settle(&JsValue::UNDEFINED);
            self.wake_next();
        }
        self.exchanges.forget(at);
    }

    /// Goes on with an exchange, and gives it up if its body is missing.
    pub(crate) fn step(&mut self, id: u32, now: Timestamp, at: Micros) -> NextStep {
        let Some(running) = self.exchanges.get(id) else { return NextStep::Finish };
        match running.exchange.step() {
            Step::Body => {
                self.exchanges.remove(id);
                return NextStep::Body;
            }
            Step::Verify(_) | Step::Copy | Step::Watch { .. } => return NextStep::Await,
            Step::Done(served) => running.end = Some(End::Served(served)),
            Step::Probe => {
                running.exchange.probed(Ok(Vec::new())); // each key has an object of its own, so there is none to ask
                if let Step::Done(served) = running.exchange.step() {
                    running.end = Some(End::Served(served));
                }
            }
            Step::Change(call) => {
                running.end = Some(End::Asks(call.clone()));
                return NextStep::Await;
            }
            Step::Decide(_) => {
                self.decide(id, now, at);
                self.settle(&JsValue::UNDEFINED);
            }
        }
        match self.exchanges.get(id).is_some_and(|running| running.end.is_none()) {
            true => NextStep::Wait,
            false if self.asks.outbox().is_ready() => NextStep::Send,
            false => NextStep::Finish,
        }
    }

    /// Decides the checks of an exchange, or asks the objects about them. Where several policies decide, the checks of the next one
    /// follow at once, until the exchange ends or an object must answer.
    fn decide(&mut self, id: u32, now: Timestamp, at: Micros) {
        let Self { exchanges, asks, in_force, trusts_caller_time, .. } = self;
        let Some(running) = exchanges.get(id) else { return };
        while running.end.is_none()
            && let Step::Decide(checks) = running.exchange.step()
        {
            let mut ask = |(place, check): (usize, &Check)| {
                let (operation, now_given) = match trusts_caller_time {
                    true => (check.operation_with_draw(), check.caller_time()),
                    false => (check.operation(), None),
                };
                let (resolved, token) = (check.resolved().clone(), Some((id, place)));
                let asked = Outgoing { resolved, operation, now: now_given, at, token };
                let answer = asks.ask(asked, now)?;
                answer.kind().into_iter().for_each(|kind| in_force.answers.count(kind));
                Some(Outcome::Decided(answer.verdict()))
            };
            let outcomes = checks.iter().enumerate().map(&mut ask).collect();
            if !running.ask(outcomes, at) {
                return;
            }
            running.decided(now);
        }
    }

    /// The calls that are due, in fields.
    pub(crate) fn transmit(&mut self, at: Micros) -> String {
        // An empty name means the deployed revision. A forgotten revision has a name of its own, which no object finds, so its questions
        // fail and no object decides on them by other rules.
        let revision_of = |policy: &_| policies::hash_of(policy).unwrap_or_default();
        let calls = call::transmit(self.asks.outbox(), "", revision_of, at);
        self.settle(&JsValue::UNDEFINED); // operations that have waited too long have an answer now
        calls
    }

    /// Takes the reply to the questions with these numbers.
    pub(crate) fn reply(&mut self, asked: &str, reply: &str, cause: &JsValue, at: Micros) {
        call::reply(self.asks.outbox(), asked, reply, cause, at);
        self.settle(cause);
        self.wake_next();
    }

    /// Renews or releases a lease of a request that passed, or commits its reservation. Nobody waits for the answer.
    pub(crate) fn hold(&mut self, held: &LeaseOrReservation<'_>, now: Timestamp, at: Micros) {
        let LeaseOrReservation { renews, policy, key, name, actual } = *held;
        let revision = Rc::clone(&self.in_force.revision);
        let Some(policy) = revision.policies.get(policy) else { return }; // it was another revision's
        let Ok(resolved) = Resolved::new(policy, key) else { return };
        let id = resolved.lease_id(name);
        let operation = match actual {
            Some(units) => Operation::Commit(id, units),
            None if renews => Operation::Heartbeat(id),
            None => Operation::Release(id),
        };
        self.asks.ask(Outgoing { resolved, operation, now: None, at, token: None }, now);
    }

    /// Takes the answers that have come. `cause` is the error of a call that failed, for the log.
    pub(crate) fn settle(&mut self, cause: &JsValue) {
        let (now, _) = self.clock.last();
        while let Some(answer) = self.asks.poll_answer() {
            let shared = self.asks.share(&answer, now);
            let outcome = match answer.result {
                Ok(verdict) => Outcome::Decided(verdict),
                Err(failure) => {
                    log_error(&self.log_secret.describe(&answer.asked.resolved, &failure), cause);
                    let why = || format!("durable object: {failure}");
                    match (shared, &failure) {
                        (Some(verdict), _) => Outcome::Decided(verdict),
                        (None, Failure::Transaction(_)) => Outcome::Unreadable(why()),
                        (None, _) => Outcome::Unavailable(why()),
                    }
                }
            };
            if let Some(token) = answer.asked.token {
                self.decided(token, outcome, answer.at);
            } else if let Outcome::Decided(verdict) = &outcome {
                let Outgoing { resolved, operation, .. } = &answer.asked;
                self.in_force.metrics.count_reservation(resolved, operation, verdict);
            }
        }
    }

    /// Lets the exchange go on that must make the next call.
    fn wake_next(&mut self) {
        if let Some(&Some((next, _))) = self.asks.outbox().first_ready()
            && let Some(running) = self.exchanges.get(next)
        {
            running.wake();
        }
    }

    /// `answered` is the time at which the answer of an object came.
    fn decided(&mut self, (id, place): (u32, usize), outcome: Outcome, answered: Micros) {
        let Some(running) = self.exchanges.get(id) else { return };
        if !running.answer(place, outcome, answered) {
            return;
        }
        let (now, at) = self.clock.last();
        running.decided(now);
        running.wake(); // also to send what the next policy is asked
        if running.end.is_none() {
            self.decide(id, now, at);
        }
    }
}

/// A lease or reservation of a request that passed.
pub(crate) struct LeaseOrReservation<'a> {
    pub(crate) renews: bool,
    /// What the reservation has really cost.
    pub(crate) actual: Option<u64>,
    pub(crate) policy: &'a str,
    pub(crate) key: &'a str,
    pub(crate) name: &'a str,
}

/// Sets the node of this isolate.
pub(crate) fn set(node: Node) {
    NODE.set(Some(node));
}

/// Lets the node of this isolate do something now.
pub(crate) fn with<R>(now_ms: f64, change: impl FnOnce(&mut Node, Timestamp, Micros) -> R) -> R {
    NODE.with_borrow_mut(|node| match node {
        Some(node) => {
            let now = timestamp(now_ms);
            let at = node.clock.at(now);
            change(node, now, at)
        }
        None => throw_str("`start` was not called"),
    })
}
