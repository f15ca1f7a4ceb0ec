//! A limiter whose states are elsewhere: in Redis, or in Durable Objects. What both share is here: the operations that JavaScript
//! calls, and how their answers are told. Its `Tier` decides, and is of the one store or of the other.

pub(crate) mod caller;
mod middleware;
mod operate;
mod said;

use std::sync::Arc;

use tidegate_gate::{Gateway, InvalidKey, Micros, Policy};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use self::operate::Begun;
use crate::answer::{NO_NUMBERS, Numbers};
use crate::chance::Chance;
use crate::failure::Failure;
use crate::number::{from_quantity, to_quantity};
#[cfg(feature = "objects")]
use crate::objects::Tier;
use crate::policy::limit_names;
#[cfg(feature = "redis")]
use crate::redis::Tier;

/// Decides by one policy on states in Redis, or in Durable Objects.
#[wasm_bindgen(js_name = NativeAuthority)]
#[derive(Debug)]
pub struct Authority {
    policy: Arc<Policy>,
    /// Where middleware finds keys.
    gateway: Gateway,
    pub(crate) tier: Tier,
    begun: Begun,
    deadline: Micros,
    chance: Chance,
    /// Boxed, because JavaScript keeps its address.
    numbers: Box<Numbers>,
    /// What the last answer says beside its numbers.
    said: Said,
}

#[derive(Debug, Default)]
struct Said {
    passes: bool,
    lease: Option<String>,
    /// How often to renew the lease.
    renew_every: Option<Micros>,
    /// Why the request passes or not.
    explained: Option<String>,
    /// Why the store has not decided.
    degraded: Option<String>,
    /// Whether the operation was not begun because too many wait.
    is_overloaded: bool,
    failure: Option<Failure>,
    /// What becomes of a request of middleware: the fields of [`Next::Done`](crate::middleware::Next::Done).
    served: String,
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
        limit_names(&self.policy, rule)
    }

    /// The token of the next answer, which then is the last answer.
    #[wasm_bindgen(js_name = pollAnswer)]
    pub fn poll_answer(&mut self, at: f64) -> Option<usize> {
        let at = Micros(to_quantity(at).unwrap_or_default());
        let (token, caller, answer) = self.tier.poll_answer(at)?;
        self.said = self.say(caller, answer);
        Some(token)
    }

    /// What the last answer says, in bits: whether the request passes, before shadow (1); whether the store has not decided (2); whether
    /// the operation failed (4). JavaScript asks once, because each call of WebAssembly takes its time.
    #[must_use]
    pub fn says(&self) -> u8 {
        let Said { passes, degraded, failure, .. } = &self.said;
        u8::from(*passes) | u8::from(degraded.is_some()) << 1 | u8::from(failure.is_some()) << 2
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

    /// Why the store has not decided on the last answer, so that the policy's `on_error` has.
    pub fn degraded(&mut self) -> Option<String> {
        self.said.degraded.take()
    }

    /// Whether the last operation was not begun because too many wait.
    #[wasm_bindgen(js_name = isOverloaded)]
    #[must_use]
    pub fn is_overloaded(&self) -> bool {
        self.said.is_overloaded
    }

    /// Why the last operation failed.
    pub fn failure(&mut self) -> JsValue {
        self.said.failure.take().map_or(JsValue::UNDEFINED, JsValue::from)
    }
}

impl Authority {
    /// A limiter with what was read of a policy.
    pub(crate) fn of(
        (policy, gateway): (Arc<Policy>, Gateway),
        deadline: Micros,
        chance: Chance,
        tier: Tier,
    ) -> Self {
        let numbers = Box::new(NO_NUMBERS);
        let (begun, said) = (Begun::default(), Said::default());
        Self { policy, gateway, tier, begun, deadline, chance, numbers, said }
    }
}

/// Why a key cannot be counted by whose UTF-8 has so many bytes.
#[wasm_bindgen(js_name = longKey)]
#[must_use]
pub fn long_key(bytes: usize) -> JsValue {
    Failure::Key(InvalidKey::Length(bytes)).into()
}
