//! What middleware asks of a limiter. The words are the gateway's.

use tidegate_gate::JoinedSources;
use tidegate_http::{
    Exchange, Head, Keyed, OlderForm, Outcome, Pass, Response, Served, Step, internal_error,
    key_headers, key_of,
};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use super::metering::NativeMetering;
use super::{Limiter, quantity, timestamp};
use crate::failure::Failure;
use crate::fields::Fields;

#[wasm_bindgen(js_class = NativeLimiter)]
impl Limiter {
    /// # Errors
    /// Throws if there is no such [`OlderForm`].
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
        if self.policy.key_sources().iter().any(JoinedSources::needs_verification) {
            let message = "`key`: expected sources that middleware can read, found a source `jwt:`; only the Worker \
                           verifies tokens";
            return Err(Failure::Option(message.into()).into());
        }
        Ok(key_headers(&self.gateway, &self.policy))
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
        let names = key_headers(&self.gateway, &self.policy);
        let present = |(_, value): &(String, String)| !value.is_empty(); // JavaScript gives an empty text for a missing one
        let all: Vec<_> = names.into_iter().zip(headers).filter(present).collect();
        let header =
            |name: &str| all.iter().find(|header| header.0 == name).map(|(_, value)| value.clone());
        // a link-local address has a zone, such as fe80::1%eth0, which is a name of this machine's own
        let address = ip.map(|ip| ip.split('%').next().unwrap_or_default().to_owned());
        let (header, client_ip, now) = (&header, &|| address.clone(), timestamp(now)?);
        let head = Head { query, header, client_ip, now, ..Head::default() };
        let found = key_of(&self.gateway, &self.policy, &head);
        Ok(found.map_err(|refusal| self.served = refused(&refusal)).ok())
    }

    /// What middleware says of costs that only the answer tells, in JSON.
    ///
    /// # Errors
    /// Throws if the text is no such thing, or if the policy takes no reservations.
    pub fn metering(&self, text: &str) -> Result<NativeMetering, JsValue> {
        NativeMetering::of(text, &self.policy).map_err(JsValue::from)
    }

    /// Decides on a request of the key, and returns whether it passes. [`served`](Self::served) has the rest. `form` is empty or an
    /// [`OlderForm`].
    ///
    /// # Errors
    /// Throws if a number or the form is invalid; nothing has changed.
    pub fn admit(
        &mut self,
        key: &str,
        cost: Option<f64>,
        form: &str,
        reserves: bool,
        now: f64,
    ) -> Result<bool, JsValue> {
        let cost = cost.map(|cost| quantity("cost", "INVALID_COST", cost)).transpose()?;
        let (form, now) = (older(form)?, timestamp(now)?);
        self.last_call = None;
        let random = &mut || self.chance.number();
        let asked = Keyed { key, cost, class: None, form, reserves };
        let mut exchange = Exchange::of_key(&self.policy, &asked, random);
        let served = loop {
            match exchange.step() {
                Step::Decide([check]) => {
                    let decided = self.table.ask(check.resolved(), now, &check.operation());
                    let outcome = decided.map_or_else(
                        |error| Outcome::Unavailable(error.to_string()),
                        Outcome::Decided,
                    );
                    exchange.decided([outcome].into());
                }
                Step::Done(served) => break served,
                _ => break Served::Response(internal_error("a key asks for one decision".into())),
            }
        };
        let (passes, fields) = match &served {
            Served::Pass(pass) => (true, passed(pass)),
            Served::Response(response) => (false, refused(response)),
        };
        self.served = fields;
        Ok(passes)
    }

    /// In fields: the status, which is 0 for a request that passes, the body, the name of the lease to hold, which is empty
    /// without a lease, the µs between two renewals, the id of the reservation and its units, and the headers.
    #[must_use]
    pub fn served(&mut self) -> String {
        core::mem::take(&mut self.served)
    }
}

fn older(form: &str) -> Result<Option<OlderForm>, Failure> {
    if form.is_empty() {
        return Ok(None);
    }
    form.parse().map(Some).map_err(|error| Failure::Option(format!("`options.headers`: {error}")))
}

fn refused(Response { status, headers, body }: &Response) -> String {
    let mut fields = Fields::with_capacity(body.len());
    fields
        .number(u64::from(*status))
        .text(body)
        .text("")
        .number(0)
        .text("")
        .number(0)
        .headers(headers);
    fields.into_text()
}

fn passed(Pass { headers, lease, reservation, .. }: &Pass) -> String {
    let lease = lease.as_ref().map(|lease| (lease.name.as_str(), lease.renew_every.0));
    let (name, every_us) = lease.unwrap_or_default();
    let reservation = reservation.as_ref().map(|one| (one.id.as_str(), one.meter.estimate()));
    let (id, units) = reservation.unwrap_or_default();
    let mut fields = Fields::default();
    fields.number(0).text("").text(name).number(every_us).text(id).number(units).headers(headers);
    fields.into_text()
}
