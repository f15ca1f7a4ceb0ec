//! The limiter of the npm package: a table and its policy.

mod decided;
mod middleware;
mod operate;

use std::iter;
use std::sync::Arc;

use tidegate_gate::{
    CallLimits, Gateway, KeyHasher, Kind, Limits, MAX_KEY_BYTES, MAX_QUANTITY, Policy, Table,
};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::answer::{NO_NUMBERS, Numbers};
use crate::chance::Chance;
use crate::failure::Failure;
use crate::input::{parsed, timestamp};
use crate::memory::{BYTES_PER_CHARACTER, require_memory};
use crate::number::{from_quantity, to_quantity};
use crate::policy::limit_names;

/// The states of many keys under one policy.
#[wasm_bindgen(js_name = NativeLimiter)]
#[derive(Debug)]
pub struct Limiter {
    /// What decides. Each of its limits counts apart once a caller gave limits with a call.
    policy: Arc<Policy>,
    /// The policy as it was read.
    written: Arc<Policy>,
    /// Where middleware finds keys.
    gateway: Gateway,
    /// The policy of the next operation, if the caller gave limits with it.
    call: Option<Arc<Policy>>,
    /// The policy of the last operation, if the caller gave limits with it.
    last_call: Option<Arc<Policy>>,
    /// The table and the policy before the first call with limits, until it is known whether that call fails.
    before_call: Option<(Table, Arc<Policy>)>,
    /// Whether all limits of `policy` decide by the cost of a request alone.
    cost_is_all: bool,
    table: Table,
    call_limits: CallLimits,
    max_bytes: Option<f64>,
    chance: Chance,
    /// Boxed like `numbers`, because JavaScript keeps their addresses.
    key: Box<[u8; MAX_KEY_BYTES]>,
    numbers: Box<Numbers>,
    /// The name of the lease that the last operation concerned.
    lease: Option<String>,
    failure: Option<Failure>,
    /// What middleware does with the last request.
    served: String,
}

/// The SHA-256 of a text in hexadecimal digits. The drop-in classes tell long keys apart by it.
#[wasm_bindgen]
#[must_use]
pub fn sha256(text: &str) -> String {
    tidegate_gate::sha256(text)
}

#[wasm_bindgen(js_class = NativeLimiter)]
impl Limiter {
    /// A limiter with the policy in `text`, or with the policy `name` of the file in `text`. `written` says
    /// whether the caller wrote this text, so that errors name its lines. [`seed`](Self::seed) comes before there are many keys.
    ///
    /// # Errors
    /// Throws a text that `errors.js` reads, as all calls do.
    #[wasm_bindgen(constructor)]
    pub fn new(
        text: &str,
        written: bool,
        name: Option<String>,
        max_bytes: Option<f64>,
    ) -> Result<Self, JsValue> {
        let (policy, gateway) = parsed(text, written, name.as_deref())?;
        let bound = byte_bound(&policy, max_bytes)?;
        Ok(Self {
            cost_is_all: cost_is_all(&policy),
            written: Arc::clone(&policy),
            policy,
            gateway,
            call: None,
            last_call: None,
            before_call: None,
            table: Table::new(bound, KeyHasher::new(0)),
            call_limits: CallLimits::default(),
            max_bytes,
            chance: Chance::default(),
            key: Box::new([0; MAX_KEY_BYTES]),
            numbers: Box::new(NO_NUMBERS),
            lease: None,
            failure: None,
            served: String::new(),
        })
    }

    /// Seeds the hash table. The numbers should be random, so that callers cannot choose keys that collide.
    pub fn seed(&mut self, high: u32, low: u32) {
        self.forget_before_call(); // the operation before this one is over
        self.table.seed(KeyHasher::new(u64::from(high) << 32 | u64::from(low)));
    }

    /// The address to which JavaScript writes a key of up to [`max_key_bytes`](Self::max_key_bytes).
    #[wasm_bindgen(js_name = keyAddress)]
    pub fn key_address(&mut self) -> *mut u8 {
        self.key.as_mut_ptr()
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

    /// The length of the longest key in bytes.
    #[wasm_bindgen(js_name = maxKeyBytes)]
    #[must_use]
    pub fn max_key_bytes(&self) -> usize {
        self.key.len()
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

    /// Whether some limit counts several keys together, or callers give limits, which may do so.
    #[wasm_bindgen(js_name = sharesStates)]
    #[must_use]
    pub fn shares_states(&self) -> bool {
        self.policy.shares_states() || self.last_call.is_some()
    }

    /// The names of the limits of a rule under the limits of the last operation, and beside each the version of its time zone's data
    /// or nothing. Each text has a zero after it.
    #[wasm_bindgen(js_name = limitNames)]
    #[must_use]
    pub fn limit_names(&self, rule: usize) -> String {
        limit_names(self.last_call.as_ref().unwrap_or(&self.policy), rule)
    }

    /// The keys that are limited, out of some places of the table: for each the key, the name of the limit or
    /// `undefined` for a block, and the wait. The last value is the next place, or `undefined` at the end.
    ///
    /// # Errors
    /// Throws if `now` is not a time.
    pub fn limited(&self, now: f64, place: usize) -> Result<Vec<JsValue>, JsValue> {
        let (found, next) = self.table.limited(&self.policy, timestamp(now)?, place);
        let each = found.into_iter().flat_map(|limited| {
            let limit = limited.limit.map_or(JsValue::UNDEFINED, JsValue::from);
            [limited.key.into(), limit, from_quantity(limited.retry_after.0).into()]
        });
        Ok(each.chain([next.map_or(JsValue::UNDEFINED, JsValue::from)]).collect())
    }

    /// All states, in the stored form.
    ///
    /// # Errors
    /// Throws if no memory is left.
    pub fn dump(&self) -> Result<Vec<u8>, JsValue> {
        Ok(self.table.dump(&self.policy, &self.call_limits).ok_or(Failure::NoMemory)?)
    }

    /// Takes the states of a dump in place of all states.
    ///
    /// # Errors
    /// Throws if the bytes are no dump of this policy; nothing has changed.
    pub fn restore(&mut self, dump: &[u8]) -> Result<(), JsValue> {
        let restored = self.table.restored(&self.written, dump).map_err(Failure::Dump)?;
        self.go_on_with(restored);
        self.forget_before_call();
        Ok(())
    }

    /// Decides by another policy from `now` on. Its `on_change` says what becomes of the states.
    ///
    /// # Errors
    /// Throws as the constructor does; nothing has changed.
    pub fn update(
        &mut self,
        text: &str,
        written: bool,
        name: Option<String>,
        now: f64,
    ) -> Result<(), JsValue> {
        let now = timestamp(now)?;
        let (policy, gateway) = parsed(text, written, name.as_deref())?;
        let bound = byte_bound(&policy, self.max_bytes)?;
        require_memory(self.table.bytes().saturating_mul(2).div_ceil(BYTES_PER_CHARACTER))?;
        let mut table = self.table.emptied(bound);
        let written = Arc::clone(&policy);
        let (call_limits, policy) = self.call_limits.edited(policy);
        for carried in self.table.close().into_carried(&self.policy, &policy, now) {
            if !table.adopt(carried) {
                return Err(Failure::NoMemory.into()); // never: the memory is there
            }
        }
        self.cost_is_all = cost_is_all(&policy);
        (self.written, self.gateway) = (written, gateway);
        self.go_on_with((table, call_limits, policy));
        self.last_call = None;
        self.forget_before_call();
        Ok(())
    }

    /// Forgets all keys.
    pub fn clear(&mut self) {
        self.table.clear();
        self.call_limits.clear();
        self.policy = Arc::clone(&self.written);
        self.forget_before_call();
    }

    /// Forgets the keys whose state equals a fresh one at `now`.
    ///
    /// # Errors
    /// Throws if `now` is not a time.
    pub fn sweep(&mut self, now: f64) -> Result<(), JsValue> {
        self.table.sweep(timestamp(now)?);
        Ok(())
    }

    /// The most bytes that the keys in use take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.table.bytes()
    }

    /// The number of keys in use.
    #[must_use]
    pub fn size(&self) -> usize {
        self.table.len()
    }
}

fn cost_is_all(policy: &Policy) -> bool {
    let each = all_limits(policy).flat_map(Limits::iter);
    each.map(|each| each.limit.kind()).all(|kind| !matches!(kind, Kind::Lease | Kind::Shed))
}

fn all_limits(policy: &Policy) -> impl Iterator<Item = &Limits> {
    iter::once(policy.limits()).chain(policy.overrides().iter().map(|(_, own)| own))
}

/// A machine with 512 MiB has room for this.
const DEFAULT_MAX_BYTES: usize = 256 << 20;

/// Half of the memory that WebAssembly can address: fragments, answers and other limiters need the rest.
const MOST_BYTES: usize = 2 << 30;

fn byte_bound(policy: &Policy, given: Option<f64>) -> Result<usize, Failure> {
    let least = Table::least_bytes(policy);
    let Some(given) = given else { return Ok(DEFAULT_MAX_BYTES.max(least)) };
    let quantity = |bytes| u64::try_from(bytes).unwrap_or(MAX_QUANTITY);
    to_quantity(given)
        .and_then(|max_bytes| usize::try_from(max_bytes).ok())
        .filter(|max_bytes| (least..=MOST_BYTES).contains(max_bytes))
        .ok_or(Failure::Number {
            field: "options.maxBytes",
            code: "INVALID_OPTION",
            found: given,
            least: quantity(least),
            most: quantity(MOST_BYTES),
        })
}
