//! What middleware asks of a limiter in memory.

use tidegate_http::{Keyed, Outcome};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use super::Limiter;
use crate::input::{quantity, timestamp};
use crate::middleware::{
    Asking, NativeMetering, Next, Request, headers_of_keys, key_of, older, require_undo,
};

#[wasm_bindgen(js_class = NativeLimiter)]
impl Limiter {
    /// # Errors
    /// Throws if there is no such [form](tidegate_http::OlderForm).
    #[wasm_bindgen(js_name = requireForm)]
    pub fn require_form(&self, form: &str) -> Result<(), JsValue> {
        Ok(older(form).map(drop)?)
    }

    /// The names of the headers that [`key_of`](Self::key_of) reads, in the order in which it takes their values.
    ///
    /// # Errors
    /// Throws if a source of the policy's keys is a verified token.
    #[wasm_bindgen(js_name = keyHeaders)]
    pub fn key_headers(&self) -> Result<Vec<String>, JsValue> {
        Ok(headers_of_keys(&self.gateway, &self.policy)?)
    }

    /// The key of a request; `undefined` if the request has none, so that [`served`](Self::served) refuses it. An empty header
    /// counts as absent.
    ///
    /// # Errors
    /// Throws if `now` is not a time.
    #[wasm_bindgen(js_name = keyOf)]
    pub fn key_of(
        &mut self,
        headers: Vec<String>,
        query: &str,
        ip: Option<String>,
        now: f64,
    ) -> Result<Option<String>, JsValue> {
        let request = Request { headers, query, ip, now: timestamp(now)? };
        let found = key_of(&self.gateway, &self.policy, request);
        Ok(found.map_err(|refusal| self.served = refusal).ok())
    }

    /// What middleware says of costs that only the answer tells, in JSON.
    ///
    /// # Errors
    /// Throws if the text is no such thing, or if the policy takes no reservations.
    pub fn metering(&self, text: &str) -> Result<NativeMetering, JsValue> {
        NativeMetering::of(text, &self.policy).map_err(JsValue::from)
    }

    /// Whether the policy takes reservations.
    #[wasm_bindgen(js_name = takesReservations)]
    #[must_use]
    pub fn takes_reservations(&self) -> bool {
        self.policy.reservations().is_some()
    }

    /// # Errors
    /// Throws if units of the policy could not come back, so that no other policy may refuse a request after this one has granted
    /// it.
    #[wasm_bindgen(js_name = requireUndo)]
    pub fn require_undo(&self, reserves: bool) -> Result<(), JsValue> {
        Ok(require_undo(&self.policy, reserves)?)
    }

    /// Decides on a request of the key. [`served`](Self::served) says what becomes of it. `form` is empty or an
    /// [older form](tidegate_http::OlderForm). Names of limits begin with that of the policy if it is one of several that have names.
    ///
    /// # Errors
    /// Throws if a number or the form is invalid; nothing has changed.
    pub fn admit(
        &mut self,
        key: &str,
        cost: Option<f64>,
        form: &str,
        reserves: bool,
        is_one_of_several: bool,
        now: f64,
    ) -> Result<(), JsValue> {
        let cost = cost.map(|cost| quantity("cost", "INVALID_COST", cost)).transpose()?;
        let (form, now) = (older(form)?, timestamp(now)?);
        self.last_call = None;
        let asked = Keyed { key, cost, form, reserves, is_one_of_several, ..Keyed::default() };
        let mut asking = Asking::new(&self.policy, asked, &mut || self.chance.number());
        self.served = loop {
            match asking.next() {
                Next::Decide(resolved, operation) => {
                    let decided = self.table.ask(&resolved, now, &operation);
                    asking.decided(decided.map_or_else(
                        |error| Outcome::Unavailable(error.to_string()),
                        Outcome::Decided,
                    ));
                }
                Next::Done(fields) => break fields,
            }
        };
        Ok(())
    }

    /// What becomes of the last request: the fields of [`Next::Done`].
    #[must_use]
    pub fn served(&mut self) -> String {
        core::mem::take(&mut self.served)
    }
}
