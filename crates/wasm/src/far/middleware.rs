//! What middleware asks.

use tidegate_gate::Micros;
use tidegate_http::Keyed;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use super::caller::Caller;
use super::{Authority, Said};
use crate::input::{quantity, timestamp};
use crate::middleware::{
    Asking, NativeMetering, Next, Request, headers_of_keys, key_of, older, require_undo,
};

#[wasm_bindgen(js_class = NativeAuthority)]
impl Authority {
    /// # Errors
    /// Throws if there is no such [form](tidegate_http::OlderForm).
    #[wasm_bindgen(js_name = requireForm)]
    pub fn require_form(&self, form: &str) -> Result<(), JsValue> {
        Ok(older(form).map(drop)?)
    }

    /// The names of the headers in which keys are found, as those of a [`Limiter`](crate::Limiter).
    ///
    /// # Errors
    /// Throws if a source of the policy's keys is a verified token.
    #[wasm_bindgen(js_name = keyHeaders)]
    pub fn key_headers(&self) -> Result<Vec<String>, JsValue> {
        Ok(headers_of_keys(&self.gateway, &self.policy)?)
    }

    /// The key of a request; `undefined` if the request has none, so that [`served`](Self::served) refuses it.
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
        Ok(found.map_err(|refusal| self.said.served = refusal).ok())
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
    /// Throws if units of the policy could not come back.
    #[wasm_bindgen(js_name = requireUndo)]
    pub fn require_undo(&self, reserves: bool) -> Result<(), JsValue> {
        Ok(require_undo(&self.policy, reserves)?)
    }

    /// Begins to decide on a request of the key, as [`Limiter::admit`](crate::Limiter::admit) decides. Returns the token by which the
    /// answer is known; `undefined` if [`served`](Self::served) says already what becomes of the request.
    ///
    /// # Errors
    /// Throws if a number or the form is invalid.
    #[expect(clippy::too_many_arguments, reason = "an object would take longer to pass")]
    pub fn admit(
        &mut self,
        key: &str,
        cost: Option<f64>,
        form: &str,
        reserves: bool,
        is_one_of_several: bool,
        now: f64,
        at: f64,
    ) -> Result<Option<usize>, JsValue> {
        let cost = cost.map(|cost| quantity("cost", "INVALID_COST", cost)).transpose()?;
        let (form, now) = (older(form)?, timestamp(now)?);
        let at = Micros(quantity("at", "INVALID_NOW", at)?);
        let asked = Keyed { key, cost, form, reserves, is_one_of_several, ..Keyed::default() };
        let mut asking = Asking::new(&self.policy, asked, &mut || self.chance.number());
        Ok(match asking.next() {
            Next::Decide(resolved, operation) => {
                let asking = Some(Box::new(asking));
                let (asked, is_timed) = (None, false);
                let caller = Caller { resolved, asked, operation, is_timed, at, asking };
                self.take(caller, now)
            }
            Next::Done(fields) => {
                self.said = Said { served: fields, ..Said::default() };
                None
            }
        })
    }

    /// What becomes of the request of the last answer.
    #[must_use]
    pub fn served(&mut self) -> String {
        core::mem::take(&mut self.said.served)
    }
}
