//! A limiter whose states are in Redis: an authority decides, JavaScript sends the commands that it is handed, and hands the
//! replies in. With the feature `objects` the states are in Durable Objects: [`objects`](crate::objects) asks them.

#[cfg(not(feature = "objects"))]
mod arguments;
#[cfg(not(feature = "objects"))]
mod call;
#[cfg(not(feature = "objects"))]
mod driver;
#[cfg(not(feature = "objects"))]
mod flight;
mod middleware;
mod operate;
#[cfg(feature = "objects")]
mod outbox;
#[cfg(not(feature = "objects"))]
mod recovery;
#[cfg(not(feature = "objects"))]
mod reply;
mod said;
#[cfg(not(feature = "objects"))]
mod script;

use std::collections::VecDeque;
use std::sync::Arc;

use slab::Slab;
use tidegate_gate::{
    AskError, Asked, Gateway, Id, InvalidKey, Limits, Micros, NamedLimit, OnError, Operation,
    Policy, Resolved, Timestamp, Verdict,
};
use tidegate_tier::authority::Options;
use tidegate_tier::cache::{self, Transmit};
use tidegate_tier::outage::Owed;
#[cfg(not(feature = "objects"))]
use tidegate_tier::{Authority as Tier, NodeCache};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

#[cfg(not(feature = "objects"))]
use self::flight::Flight;
use self::operate::Begun;
#[cfg(not(feature = "objects"))]
use self::recovery::Recovery;
#[cfg(not(feature = "objects"))]
use self::script::Script;
use crate::answer::{NO_NUMBERS, Numbers};
use crate::chance::Chance;
use crate::failure::Failure;
use crate::limiter::{parsed, quantity};
use crate::middleware::Asking;
use crate::number::{from_quantity, to_quantity};
#[cfg(feature = "objects")]
use crate::objects::Tier;

/// An operation that has waited for this many deadlines is not begun any more.
const MOST_DEADLINES: u64 = 16;

#[cfg(not(feature = "objects"))]
const NO_SHARE: &str = "`client`: expected a client of one Redis by `ioredis` or `redis`, because `on_error` is \"local\"; found one \
     of a Cluster or of `@upstash/redis`";

/// Decides by one policy on states in Redis, or in Durable Objects.
#[wasm_bindgen(js_name = NativeAuthority)]
#[derive(Debug)]
pub struct Authority {
    policy: Arc<Policy>,
    /// Where middleware finds keys.
    gateway: Gateway,
    /// The prefix of every name in Redis.
    #[cfg(not(feature = "objects"))]
    prefix: String,
    /// Whether the states are in a Cluster.
    #[cfg(not(feature = "objects"))]
    is_cluster: bool,
    #[cfg(not(feature = "objects"))]
    script: &'static Script,
    #[cfg(not(feature = "objects"))]
    tier: Tier<usize, String>,
    #[cfg(feature = "objects")]
    tier: Tier,
    /// What this process answers by itself as a node, and the answers.
    #[cfg(not(feature = "objects"))]
    node: NodeCache,
    #[cfg(not(feature = "objects"))]
    answered: VecDeque<(usize, Verdict)>,
    #[cfg(not(feature = "objects"))]
    recovery: Recovery,
    /// The operations without an answer, by their tokens.
    waiting: Slab<Waiting>,
    /// How many of them have a time that the caller gave.
    timed: usize,
    #[cfg(not(feature = "objects"))]
    calls: Slab<Flight>,
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
enum Waiting {
    /// A caller asked it.
    Caller(Caller),
    /// The node asked it at this time.
    Node(Transmit, Micros),
    /// Redis is told what the node has decided by itself.
    Owed(Owed),
}

/// An operation whose caller waits.
#[derive(Debug)]
struct Caller {
    resolved: Resolved,
    /// What the caller asked; `None` for an operation that a caller cannot write.
    asked: Option<Asked>,
    operation: Operation,
    is_timed: bool,
    /// When it was asked.
    at: Micros,
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

#[cfg(not(feature = "objects"))]
#[wasm_bindgen(js_class = NativeAuthority)]
impl Authority {
    /// An authority with the policy in `text`, or with the policy `name` of the file in `text`. `written` says whether the caller
    /// wrote this text, so that errors name its lines. `cluster` says whether the states are in a Cluster,
    /// `texts` whether the client carries no other bytes than those of texts.
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
        cluster: bool,
        texts: bool,
    ) -> Result<Self, JsValue> {
        let (policy, gateway) = parsed(text, written, name.as_deref())?;
        let deadline = Micros(quantity("options.deadline", "INVALID_OPTION", deadline_us)?);
        let mut chance = Chance::default();
        let seed = chance.number().ok_or(Failure::Ask(AskError::NoRandomness))?;
        let most_wait = Micros(deadline.0.saturating_mul(MOST_DEADLINES));
        let is_local = policy.on_error() == OnError::Local;
        if (cluster || texts) && is_local {
            return Err(Failure::Option(NO_SHARE.to_owned()).into());
        }
        let mut options = Options { patience: deadline, most_wait, seed, ..Options::default() };
        if cluster {
            options.most_records = 1; // a call is about one partition, because its names must have one slot
        }
        let mut random = || chance.number().ok_or(Failure::Ask(AskError::NoRandomness));
        let (node, id) = (Id([random()?, random()?]), random()?);
        let node = cache::Options { node, seed: random()?, ..cache::Options::default() };
        let recovery = Recovery::new(id, is_local);
        Ok(Self {
            policy,
            gateway,
            prefix,
            is_cluster: cluster,
            script: Script::of(texts),
            tier: Tier::new(options),
            node: NodeCache::new(node),
            answered: VecDeque::new(),
            recovery,
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
}

#[wasm_bindgen(js_class = NativeAuthority)]
impl Authority {
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

#[cfg(not(feature = "objects"))]
type Times = (Option<Timestamp>, Micros);

#[cfg(not(feature = "objects"))]
impl Authority {
    /// While an operation waits whose time the caller gave, no operation is decided at the time of the clock. A clock that says no
    /// time does not count.
    fn times(&self, now: f64, at: f64) -> Times {
        let now = to_quantity(now).filter(|_| self.timed == 0);
        (now.map(Timestamp), Micros(to_quantity(at).unwrap_or_default()))
    }
}
