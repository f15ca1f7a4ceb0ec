//! A limiter whose states are in Redis. An authority decides; JavaScript sends the commands that it is handed, and hands the
//! replies in.

mod arguments;
mod call;
mod middleware;
mod operate;
mod reply;

use std::sync::Arc;

use slab::Slab;
use tidegate_gate::{
    AskError, Asked, Explanation, Gateway, InvalidKey, Limits, Micros, NamedLimit, OnError,
    Operation, Policy, Request, Resolved, Rule, Softness, TableError, Timestamp, TransactionError,
    Verdict,
};
use tidegate_http::Outcome;
use tidegate_tier::authority::{Failure as TierFailure, Options, Queued, Swap, SwapOutcome};
use tidegate_tier::{Authority as Tier, outage};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use self::call::{Call, Outcomes, Step};
use self::operate::Begun;
use self::reply::Reply;
use crate::answer::{self, Extras, NO_NUMBERS, Numbers};
use crate::chance::Chance;
use crate::failure::Failure;
use crate::limiter::{parsed, quantity};
use crate::middleware::{Asking, Next};
use crate::number::{from_quantity, to_quantity};

/// How many calls are under way at once: as many as the host has.
const MOST_CALLS: usize = 4;

/// An operation that has waited for this many deadlines is not begun any more.
const MOST_DEADLINES: u64 = 16;

/// What a client of middleware is told of an outage.
const AWAY: &str = "the store is unavailable";

/// Why a peek that is answered cannot be explained: Redis took no write, or other writers kept changing the states.
const UNKNOWN_STATES: &str = "the states were not known for long enough to explain them";

/// Decides by one policy on states in Redis.
#[wasm_bindgen(js_name = NativeAuthority)]
#[derive(Debug)]
pub struct Authority {
    policy: Arc<Policy>,
    /// Where middleware finds keys.
    gateway: Gateway,
    /// The prefix of every name in Redis.
    prefix: String,
    tier: Tier<usize, String>,
    /// The operations without an answer, by their tokens.
    waiting: Slab<Waiting>,
    /// How many of them have a time that the caller gave.
    timed: usize,
    calls: Slab<(Swap, Call)>,
    begun: Begun,
    deadline: Micros,
    chance: Chance,
    /// Boxed, because JavaScript keeps its address.
    numbers: Box<Numbers>,
    /// What the last answer says beside its numbers.
    said: Said,
}

/// An operation that waits for its answer.
#[derive(Debug)]
struct Waiting {
    resolved: Resolved,
    /// What the caller asked; `None` for an operation that a caller cannot write.
    asked: Option<Asked>,
    operation: Operation,
    is_timed: bool,
    /// Whether the answer is to be explained.
    explains: bool,
    /// The request of middleware that asks for it.
    asking: Option<Box<Asking>>,
}

#[derive(Debug, Default)]
struct Said {
    passes: bool,
    lease: Option<String>,
    /// How often to renew the lease.
    renew_every: Option<Micros>,
    /// Why the request passes or not.
    explained: Option<String>,
    /// Why Redis has not decided.
    degraded: Option<String>,
    failure: Option<Failure>,
    /// What becomes of a request of middleware: the fields of [`Next::Done`](crate::middleware::Next::Done).
    served: String,
}

#[wasm_bindgen(js_class = NativeAuthority)]
impl Authority {
    /// An authority with the policy in `text`, or with the policy `name` of the file in `text`. `written` says whether the caller
    /// wrote this text, so that errors name its lines.
    ///
    /// # Errors
    /// Throws a text that `errors.js` reads, as all calls do.
    #[wasm_bindgen(constructor)]
    pub fn new(
        text: &str,
        written: bool,
        name: Option<String>,
        prefix: String,
        deadline_us: f64,
    ) -> Result<Self, JsValue> {
        let (policy, gateway) = parsed(text, written, name.as_deref())?;
        let deadline = Micros(quantity("options.deadline", "INVALID_OPTION", deadline_us)?);
        let mut chance = Chance::default();
        let seed = chance.number().ok_or(Failure::Ask(AskError::NoRandomness))?;
        let most_wait = Micros(deadline.0.saturating_mul(MOST_DEADLINES));
        // this process does not announce itself to the other nodes, so it decides nothing by a share of the limits
        let outage = outage::Options { most_bytes: 0, most_commits: 0 };
        let options = Options { patience: deadline, most_wait, seed, outage, ..Options::default() };
        Ok(Self {
            policy,
            gateway,
            prefix,
            tier: Tier::new(options),
            waiting: Slab::new(),
            timed: 0,
            calls: Slab::new(),
            begun: Begun::default(),
            deadline,
            chance,
            numbers: Box::new(NO_NUMBERS),
            said: Said::default(),
        })
    }

    /// The address from which JavaScript reads the [`Numbers`] of the last answer.
    #[wasm_bindgen(js_name = numbersAddress)]
    pub fn numbers_address(&mut self) -> *mut f64 {
        self.numbers.as_mut_ptr()
    }

    /// How many [`Numbers`] there are.
    #[wasm_bindgen(js_name = numbersLength)]
    #[must_use]
    pub fn numbers_length(&self) -> usize {
        self.numbers.len()
    }

    /// The cost of a request that names no cost.
    #[wasm_bindgen(js_name = defaultCost)]
    #[must_use]
    pub fn default_cost(&self) -> f64 {
        from_quantity(self.policy.cost().stated())
    }

    /// Whether the policy reports its refusals but lets every request pass.
    #[wasm_bindgen(js_name = isShadow)]
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.policy.is_shadow()
    }

    /// Whether some limit counts several keys together.
    #[wasm_bindgen(js_name = sharesStates)]
    #[must_use]
    pub fn shares_states(&self) -> bool {
        self.policy.shares_states()
    }

    /// The names of the limits of a rule, as those of a [`Limiter`](crate::Limiter).
    #[wasm_bindgen(js_name = limitNames)]
    #[must_use]
    pub fn limit_names(&self, rule: usize) -> String {
        let limits = self.policy.limits_of_rule(rule).into_iter().flat_map(Limits::iter);
        let texts = limits.flat_map(|NamedLimit { name, limit, .. }| {
            [name.as_str(), "\0", limit.zone_version().unwrap_or_default(), "\0"]
        });
        texts.collect()
    }

    /// The number of operations without an answer.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Begins a call of the script if operations wait for one and not too many calls are under way. Returns its number.
    #[wasm_bindgen(js_name = beginCall)]
    pub fn begin_call(&mut self, now: f64, at: f64) -> Option<usize> {
        if self.calls.len() >= MOST_CALLS {
            return None;
        }
        let times = self.times(now, at);
        let swap = self.tier.poll_swap(times, |_| false)?;
        let call = Call::new(&self.prefix, &mut self.tier, &swap);
        Some(self.calls.insert((swap, call)))
    }

    /// The words of the command that a call sends next, one after another; `undefined` if the call has ended.
    #[must_use]
    pub fn command(&self, call: usize) -> Option<Vec<u8>> {
        self.calls.get(call).map(|(_, call)| call.command().bytes().to_vec())
    }

    /// Where each word of [`command`](Self::command) ends.
    #[must_use]
    pub fn ends(&self, call: usize) -> Option<Vec<u32>> {
        self.calls.get(call).map(|(_, call)| call.command().ends().to_vec())
    }

    /// Takes the reply to the command of a call: what the client returned, or the `Error` that it threw.
    pub fn reply(&mut self, call: usize, reply: &JsValue, now: f64, at: f64) {
        let times = self.times(now, at);
        let Some((_, under_way)) = self.calls.get_mut(call) else { return };
        if let Step::End(outcomes) = under_way.reply(Reply::read(reply)) {
            self.end(call, outcomes, times);
        }
    }

    /// Ends a call that gets no reply, for this reason.
    #[wasm_bindgen(js_name = giveUp)]
    pub fn give_up(&mut self, call: usize, why: String, now: f64, at: f64) {
        let times = self.times(now, at);
        self.end(call, Err(why), times);
    }

    /// The token of the next answer, which then is the last answer.
    #[wasm_bindgen(js_name = pollAnswer)]
    pub fn poll_answer(&mut self) -> Option<usize> {
        let (token, answer) = self.tier.poll_answer()?;
        if let Some(waiting) = self.waiting.try_remove(token) {
            self.timed = self.timed.saturating_sub(usize::from(waiting.is_timed));
            self.said = self.say(waiting, answer);
        }
        Some(token)
    }

    /// Whether the request of the last answer passes, before shadow.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.said.passes
    }

    /// The name of the lease, or the id of the reservation, that the last answer concerns.
    pub fn lease(&mut self) -> Option<String> {
        self.said.lease.take()
    }

    /// The µs after which to renew the lease of the last answer; 0 without one.
    #[wasm_bindgen(js_name = renewEveryUs)]
    #[must_use]
    pub fn renew_every_us(&self) -> f64 {
        self.said.renew_every.map_or(0.0, |every| from_quantity(every.0))
    }

    /// Why the request of the last answer passes or not, in the words of a [`Limiter`](crate::Limiter).
    pub fn explained(&mut self) -> Option<String> {
        self.said.explained.take()
    }

    /// Why Redis has not decided on the last answer, so that the policy's `on_error` has.
    pub fn degraded(&mut self) -> Option<String> {
        self.said.degraded.take()
    }

    /// Why the last operation failed.
    pub fn failure(&mut self) -> JsValue {
        self.said.failure.take().map_or(JsValue::UNDEFINED, JsValue::from)
    }
}

/// Why a key cannot be counted by whose UTF-8 has so many bytes.
#[wasm_bindgen(js_name = longKey)]
#[must_use]
pub fn long_key(bytes: usize) -> JsValue {
    Failure::Key(InvalidKey::Length(bytes)).into()
}

type Times = (Option<Timestamp>, Micros);

impl Authority {
    /// While an operation waits whose time the caller gave, no operation is decided at the time of the clock. A clock that says no
    /// time does not count.
    fn times(&self, now: f64, at: f64) -> Times {
        let now = to_quantity(now).filter(|_| self.timed == 0);
        (now.map(Timestamp), Micros(to_quantity(at).unwrap_or_default()))
    }

    fn queue(&mut self, waiting: Waiting, now: Timestamp, at: Micros) -> usize {
        let (resolved, operation) = (waiting.resolved.clone(), waiting.operation);
        self.timed = self.timed.saturating_add(usize::from(waiting.is_timed));
        let token = self.waiting.insert(waiting);
        self.tier.ask(Queued { resolved, now, at, operation, token });
        token
    }

    fn end(&mut self, call: usize, outcomes: Result<Outcomes, String>, times: Times) {
        let Some((swap, _)) = self.calls.try_remove(call) else { return };
        match outcomes {
            Ok(outcomes) => self.tier.handle(swap, outcomes, times),
            Err(error) => {
                let failed = vec![SwapOutcome::Failed(error.clone()); swap.len()];
                self.tier.handle(swap, failed, times);
                self.tier.fail_waiting(&error, times.0);
            }
        }
    }

    fn say(&mut self, waiting: Waiting, answer: Result<Verdict, TierFailure<String>>) -> Said {
        let Waiting { resolved, asked, operation, explains, asking, .. } = waiting;
        if let Some(mut asking) = asking {
            let away = |_| Outcome::Unavailable(AWAY.into());
            asking.decided(answer.map_or_else(away, Outcome::Decided));
            let served = match asking.next() {
                Next::Done(fields) => fields,
                Next::Decide(..) => String::new(), // a key asks for one decision
            };
            return Said { served, ..Said::default() };
        }
        let lease = asked.as_ref().and_then(Asked::lease).map(String::from);
        let renew_every = resolved.limits().and_then(Limits::renew_every);
        let mut said = Said { lease, renew_every, ..Said::default() };
        let mut answer = answer;
        if explains
            && let (Ok(verdict), Operation::Decide(request) | Operation::Peek(request)) =
                (&mut answer, operation)
        {
            match self.why_so(&resolved, verdict, &request) {
                Ok(text) => said.explained = Some(text),
                Err(why) => answer = Err(why),
            }
        }
        match answer {
            Ok(verdict) => {
                let verdict = asked.map_or(verdict.clone(), |asked| asked.said(verdict));
                let soft = resolved.limits().filter(|_| self.policy.is_soft());
                let soft = soft.map_or_else(Softness::default, |limits| limits.softness(&verdict));
                let (rule, has_lease) = (resolved.rule_number(), said.lease.is_some());
                answer::write(&mut self.numbers, &verdict, Extras { rule, has_lease }, soft);
                said.passes = verdict.decision.is_allowed();
            }
            Err(TierFailure::Transaction(TransactionError::Operation(error))) => {
                said.failure = Some(Failure::Table(TableError::Operation(error)));
            }
            Err(failure) => {
                let why = self.why(failure);
                // `on_error` is for requests: a key that is not blocked or reset must not look as if it were
                match operation {
                    Operation::Block(_) | Operation::Reset(_) => {
                        said.failure = Some(Failure::Unavailable(why));
                    }
                    _ => said.degraded = Some(why),
                }
                said.passes = self.policy.on_error() == OnError::Open;
            }
        }
        said
    }

    /// Explains a peek, whose verdict becomes that on the states that are explained.
    fn why_so(
        &mut self,
        resolved: &Resolved,
        verdict: &mut Verdict,
        request: &Request,
    ) -> Result<String, TierFailure<String>> {
        let why = match resolved.rule() {
            Rule::Listed(decision) => Explanation::listed(verdict.at, decision),
            Rule::Limited(..) => {
                let unknown = || TierFailure::Store(UNKNOWN_STATES.to_owned());
                let why = self.tier.explain(resolved, verdict.at, request).ok_or_else(unknown)?;
                why.map_err(TierFailure::Transaction)?
            }
        };
        let text = answer::in_words(&why);
        *verdict = why.verdict;
        Ok(text)
    }

    /// Why Redis has not decided. The text has no key.
    fn why(&self, failure: TierFailure<String>) -> String {
        let milliseconds = self.deadline.as_millis_ceil();
        match failure {
            TierFailure::Transaction(TransactionError::Blob { error, .. }) => {
                format!("redis: the stored bytes are not a state of this policy: {error}")
            }
            TierFailure::Transaction(error) => error.to_string(),
            TierFailure::Overloaded { most } => {
                format!("redis: {most} operations are already waiting for the same state")
            }
            TierFailure::TooLate => {
                format!(
                    "redis: the operation has waited for {MOST_DEADLINES} deadlines of {milliseconds} ms"
                )
            }
            TierFailure::Contended => {
                format!("redis: other writers kept changing the same state for {milliseconds} ms")
            }
            TierFailure::Store(error) => format!("redis: {error}"),
        }
    }
}
