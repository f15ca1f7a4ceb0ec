//! Settlements and refunds of a grant.
//!
//! JavaScript keeps the bytes of a [`Grant`] between two settlements, and does not read them: an object of WebAssembly would be lost
//! memory in a runtime that finalizes no objects. It copies them to [`grant_address`](Limiter::grant_address) and back.

use tidegate_gate::{Ask, Bounded, Grant, MAX_QUANTITY, Timestamp};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use super::Limiter;
use super::operate::whole;
use crate::failure::Failure;
use crate::number::{from_quantity, to_quantity};

/// The true cost of a request after a settlement at `units`, or after a refund of them. The request has cost `cost` so far.
///
/// # Errors
/// Throws if the units are no whole number, or if the request did not cost so many.
#[wasm_bindgen(js_name = settledCost)]
pub fn settled_cost(cost: f64, units: f64, is_refund: bool) -> Result<f64, JsValue> {
    let cost = to_quantity(cost).unwrap_or_default(); // never: it is an earlier answer of this, or of a decision
    let (field, most) = if is_refund { ("units", cost) } else { ("actual", MAX_QUANTITY) };
    let settled = to_quantity(units).and_then(|units| match is_refund {
        true => Grant::cost_after_refund(cost, units),
        false => Some(units),
    });
    let number = Failure::Number { field, code: "INVALID_REQUEST", found: units, least: 0, most };
    Ok(from_quantity(settled.ok_or(number)?))
}

#[wasm_bindgen(js_class = NativeLimiter)]
impl Limiter {
    /// The address of the grant to settle. Its bytes are as they are in this module.
    #[wasm_bindgen(js_name = grantAddress)]
    pub fn grant_address(&mut self) -> *mut Grant {
        &raw mut *self.grant
    }

    /// The number of bytes of a grant.
    #[wasm_bindgen(js_name = grantBytes)]
    #[must_use]
    pub fn grant_bytes(&self) -> usize {
        size_of::<Grant>()
    }

    /// Begins with a grant that nobody has settled yet.
    #[wasm_bindgen(js_name = newGrant)]
    pub fn new_grant(&mut self, granted_at_us: f64, cost: f64) {
        let granted_at = Timestamp(to_quantity(granted_at_us).unwrap_or_default());
        *self.grant = Grant::new(granted_at, to_quantity(cost).unwrap_or_default());
    }

    /// Settles the grant at its true cost, and returns how many units came back. Afterwards, also without an answer, the grant says
    /// what has changed.
    #[wasm_bindgen(js_name = settleGrant)]
    pub fn settle_grant(&mut self, key_bytes: usize, cost: f64, now: f64) -> Option<f64> {
        match self.settled(key_bytes, cost, now) {
            Ok(given_back) => Some(from_quantity(given_back)),
            Err(failure) => self.failed(failure),
        }
    }
}

impl Limiter {
    fn settled(&mut self, key_bytes: usize, cost: f64, now: f64) -> Result<u64, Failure> {
        let (nothing, actual) = (Bounded::clamped(0), whole("actual", cost)?);
        let ask = Ask::Settle { granted_at_us: nothing, reserved: nothing, actual };
        let (asked, now) = self.resolved(key_bytes, Ok(ask), now)?;
        self.forget_before_call(); // after a failure some of the settlements hold, so the table must stay
        let settled = self.table.settle_grant(asked.resolved(), now, &mut self.grant, actual.get());
        settled.map_err(Failure::Table)
    }
}
