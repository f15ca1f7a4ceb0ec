//! The limiter of the npm package: a table and its policy.

use std::hint::black_box;
use std::iter;
use std::sync::Arc;

use tidegate_gate::{
    Ask, AskError, CheckForm, Cost, Decision, InvalidKey, KeyHasher, Kind, Limits, MAX_KEY_BYTES,
    MAX_QUANTITY, OperationError, Policy, Request, Rule, Table, TableError, Timestamp, Whole,
    check_key, http,
};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::chance::Chance;
use crate::failure::Failure;
use crate::number::{from_quantity, to_quantity};
use crate::policy;

/// The states of many keys under one policy.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Limiter {
    policy: Arc<Policy>,
    /// Whether all limits decide by the cost of a request alone.
    cost_is_all: bool,
    table: Table,
    chance: Chance,
    /// Boxed like `decision`, because JavaScript keeps their addresses.
    key: Box<[u8; MAX_KEY_BYTES]>,
    /// `limit`, `remaining`, `retryAfterUs`, `resetAfterUs`.
    decision: Box<[f64; 4]>,
    failure: Option<Failure>,
}

#[wasm_bindgen]
impl Limiter {
    /// A limiter with the policy in `text`, or with the policy `name` of the file in `text`. `written` says
    /// whether the caller wrote this text, so that errors name its lines. The seeds should be random.
    ///
    /// # Errors
    /// Throws an `Error` with a `code`. The error about a policy also has a `line`, a `column` and a `path`.
    #[wasm_bindgen(constructor)]
    pub fn new(
        text: &str,
        written: bool,
        name: Option<String>,
        max_bytes: Option<f64>,
        seed_high: u32,
        seed_low: u32,
    ) -> Result<Self, JsValue> {
        let policy = policy::read(text, name.as_deref())
            .map_err(|failure| if written { failure } else { failure.without_line() })?;
        let max_bytes = byte_bound(&policy, max_bytes)?;
        let seed = u64::from(seed_high) << 32 | u64::from(seed_low);
        let cost_is_all = all_limits(&policy)
            .flat_map(Limits::iter)
            .all(|each| !matches!(each.limit.kind(), Kind::Lease | Kind::Shed));
        Ok(Self {
            policy,
            cost_is_all,
            table: Table::new(max_bytes, KeyHasher::new(seed)),
            chance: Chance::default(),
            key: Box::new([0; MAX_KEY_BYTES]),
            decision: Box::new([0.0; 4]),
            failure: None,
        })
    }

    /// The address to which JavaScript writes a key of up to [`max_key_bytes`](Self::max_key_bytes).
    #[wasm_bindgen(js_name = keyAddress)]
    pub fn key_address(&mut self) -> *mut u8 {
        self.key.as_mut_ptr()
    }

    /// The address from which JavaScript reads the four numbers of the last decision.
    #[wasm_bindgen(js_name = decisionAddress)]
    pub fn decision_address(&mut self) -> *mut f64 {
        self.decision.as_mut_ptr()
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
        from_quantity(match self.policy.cost() {
            Cost::Fixed(cost) | Cost::Header { default: cost, .. } => *cost,
            _ => 1,
        })
    }

    /// Whether the policy reports its refusals but lets every request pass.
    #[wasm_bindgen(js_name = isShadow)]
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.policy.is_shadow()
    }

    /// Decides on a request of the key with `key_bytes` bytes at [`key_address`](Self::key_address). Without
    /// an answer, [`failure`](Self::failure) says why, and nothing has changed.
    pub fn check(&mut self, key_bytes: usize, cost: f64, now: f64) -> Option<bool> {
        match self.decide(key_bytes, cost, now) {
            Ok(decision) => {
                *self.decision = [
                    decision.limit(),
                    decision.remaining(),
                    decision.retry_after().0,
                    decision.reset_after().0,
                ]
                .map(from_quantity);
                Some(decision.is_allowed())
            }
            Err(failure) => {
                self.failure = Some(failure);
                None
            }
        }
    }

    /// Does an operation on the key with `key_bytes` bytes at [`key_address`](Self::key_address).
    /// [`Ask::parse`] reads the operation and [`http::answer`] writes the answer. If `acquires` is true, the
    /// operation must acquire a lease. Without an answer, [`failure`](Self::failure) says why, and nothing has
    /// changed.
    pub fn operate(
        &mut self,
        key_bytes: usize,
        json: &str,
        acquires: bool,
        now: f64,
    ) -> Option<String> {
        match self.answer(key_bytes, json, acquires, now) {
            Ok(answer) => Some(answer),
            Err(failure) => {
                self.failure = Some(failure);
                None
            }
        }
    }

    /// An `Error` with a `code`, which says why the last [`check`](Self::check) or
    /// [`operate`](Self::operate) had no answer.
    pub fn failure(&mut self) -> JsValue {
        self.failure.take().map_or(JsValue::UNDEFINED, JsValue::from)
    }

    /// Forgets the keys whose state equals a fresh one at `now`.
    ///
    /// # Errors
    /// Throws a `RangeError` if `now` is not a time.
    pub fn sweep(&mut self, now: f64) -> Result<(), JsValue> {
        self.table.sweep(&self.policy, timestamp(now)?);
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

    fn decide(&mut self, key_bytes: usize, cost: f64, now: f64) -> Result<Decision, Failure> {
        let cost = to_quantity(cost).ok_or(Failure::Number {
            field: "cost",
            code: "INVALID_COST",
            found: cost,
            least: 0,
            most: MAX_QUANTITY,
        })?;
        let now = timestamp(now)?;
        let key = written(&*self.key, key_bytes)?;
        let mut request = Request::of(cost);
        if !self.cost_is_all && cost > 0 {
            if has(&self.policy, key, Kind::Lease) {
                return Err(Failure::NeedsLease);
            }
            if has(&self.policy, key, Kind::Shed) {
                request.draw = self.chance.draw();
            }
        }
        let decided = self.table.decide(&self.policy, key, now, request);
        if matches!(decided, Err(TableError::Operation(OperationError::Cost(_))))
            && self.policy.is_shadow()
        {
            let check = CheckForm { cost: Whole::new(cost), ..CheckForm::default() };
            let asked =
                Ask::Check(check).resolve(&self.policy, key, &mut || None).map_err(Failure::Ask)?;
            let verdict = self.table.ask(asked.resolved(), now, &asked.operation());
            return Ok(asked.said(verdict.map_err(Failure::Table)?).decision);
        }
        decided.map_err(Failure::Table)
    }

    fn answer(
        &mut self,
        key_bytes: usize,
        json: &str,
        acquires: bool,
        now: f64,
    ) -> Result<String, Failure> {
        let now = timestamp(now)?;
        let key = written(&*self.key, key_bytes)?;
        let ask = Ask::parse(json).map_err(Failure::Ask)?;
        let asked = ask.resolve(&self.policy, key, &mut || self.chance.number());
        let asked = asked.map_err(Failure::Ask)?;
        if acquires && asked.lease().is_none() {
            return Err(Failure::Ask(AskError::NoLeases { policy: self.policy.name().into() }));
        }
        let verdict = self.table.ask(asked.resolved(), now, &asked.operation());
        Ok(http::answer(&asked, verdict.map_err(Failure::Table)?))
    }
}

/// The key in the first `key_bytes` bytes.
fn written(bytes: &[u8], key_bytes: usize) -> Result<&str, Failure> {
    // for a key that is too long, JavaScript only passes the length
    let key = bytes.get(..key_bytes).ok_or(Failure::Key(InvalidKey::Length(key_bytes)))?;
    let key = str::from_utf8(key).map_err(|_| Failure::KeyEncoding)?;
    check_key(key).map_err(Failure::Key)?;
    Ok(key)
}

/// Whether the key has a limit of this kind.
fn has(policy: &Policy, key: &str, kind: Kind) -> bool {
    match policy.rule(key) {
        Rule::Limited(limits, _) => limits.iter().any(|each| each.limit.kind() == kind),
        Rule::Listed(_) => false,
    }
}

fn all_limits(policy: &Policy) -> impl Iterator<Item = &Limits> {
    iter::once(policy.limits()).chain(policy.overrides().iter().map(|(_, own)| own))
}

/// Checks that there is memory to read a policy of this many characters, because a failed allocation would
/// end the whole module. Reading takes less memory than is checked for.
///
/// # Errors
/// Throws an `Error` with the code `TABLE_FULL` if there is too little memory.
#[wasm_bindgen(js_name = requireMemory)]
pub fn require_memory(characters: usize) -> Result<(), JsValue> {
    let mut needed: Vec<u8> = Vec::new();
    let reserved = needed.try_reserve_exact(characters.saturating_mul(256).saturating_add(4 << 20));
    black_box(needed); // otherwise the compiler removes the allocation
    Ok(reserved.map_err(|_| Failure::NoMemory)?)
}

/// The memory into which the addresses of a [`Limiter`] point.
#[wasm_bindgen(js_name = moduleMemory)]
#[must_use]
pub fn module_memory() -> JsValue {
    wasm_bindgen::memory()
}

pub(crate) fn timestamp(now: f64) -> Result<Timestamp, Failure> {
    to_quantity(now).map(Timestamp).ok_or(Failure::Number {
        field: "now",
        code: "INVALID_NOW",
        found: now,
        least: 0,
        most: MAX_QUANTITY,
    })
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
