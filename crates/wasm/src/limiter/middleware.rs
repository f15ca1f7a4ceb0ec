//! What middleware asks of a limiter. The words are the gateway's.

use tidegate_gate::{JoinedSources, Limits, Operation, Timestamp};
use tidegate_http::{
    Check, Exchange, Head, Keyed, OlderForm, Outcome, Pass, Response, Served, Step, internal_error,
    key_headers, key_of,
};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use super::metering::NativeMetering;
use super::{Limiter, quantity, timestamp};
use crate::failure::Failure;
use crate::fields::Fields;
use crate::policy::UNNAMED;

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
        let own = self.policy.overrides().iter().map(|(_, own)| own);
        let mut rules = std::iter::once(self.policy.limits()).chain(own);
        if reserves || !rules.any(Limits::have_payers) {
            return Ok(());
        }
        let message = format!(
            "`limiters`: expected {:?} last, or `reservations` of it beside `actual` or `countIf`, because units that come \
             back do not say which `payer` they belong to; found it before another limiter",
            self.policy.name()
        );
        Err(Failure::Option(message).into())
    }

    /// Decides on a request of the key, and returns whether it passes. [`served`](Self::served) has the rest. `form` is empty or an
    /// [`OlderForm`]. Names of limits begin with that of the policy if it is one of several that have names.
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
    ) -> Result<bool, JsValue> {
        let cost = cost.map(|cost| quantity("cost", "INVALID_COST", cost)).transpose()?;
        let (form, now) = (older(form)?, timestamp(now)?);
        self.last_call = None;
        let is_one_of_several = is_one_of_several && self.policy.name() != UNNAMED;
        let asked = Keyed { key, cost, form, reserves, is_one_of_several, ..Keyed::default() };
        let random = &mut || self.chance.number();
        let mut exchange = Exchange::of_key(&self.policy, &asked, random);
        let mut granted = Granted::default();
        let served = loop {
            match exchange.step() {
                Step::Decide([check]) => {
                    let decided = self.table.ask(check.resolved(), now, &check.operation());
                    let outcome = decided.map_or_else(
                        |error| Outcome::Unavailable(error.to_string()),
                        Outcome::Decided,
                    );
                    granted = Granted::of(check, &outcome);
                    exchange.decided([outcome].into());
                }
                Step::Done(served) => break served,
                _ => break Served::Response(internal_error("a key asks for one decision".into())),
            }
        };
        let (passes, fields) = match &served {
            Served::Pass(pass) => (true, passed(pass, granted)),
            Served::Response(response) => (false, refused(response)),
        };
        self.served = fields;
        Ok(passes)
    }

    /// In fields: the status, which is 0 for a request that passes, the body, the name of the lease to hold, which is empty
    /// without a lease, the µs between two renewals, the id of the reservation and its units, the time and the units of a grant whose
    /// units can come back, the units that are left, and the headers.
    #[must_use]
    pub fn served(&mut self) -> String {
        core::mem::take(&mut self.served)
    }
}

/// What a request was granted.
#[derive(Clone, Copy, Default)]
struct Granted {
    at: Timestamp,
    /// The units that can come back of a grant that reserves nothing.
    units: u64,
    remaining: u64,
}

impl Granted {
    fn of(check: &Check, outcome: &Outcome) -> Self {
        let Outcome::Decided(verdict) = outcome else { return Self::default() };
        let undone = check.undone(outcome);
        let units = undone.iter().find_map(|undo| match undo.operation() {
            Operation::RefundOf(grant, _) => Some(grant.units),
            _ => None,
        });
        let (at, remaining) = (verdict.at, verdict.decision.remaining());
        Self { at, units: units.unwrap_or_default(), remaining }
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
    fields.number(u64::from(*status)).text(body).text("").number(0).text("").number(0);
    fields.number(0).number(0).number(0).headers(headers);
    fields.into_text()
}

fn passed(Pass { headers, leases, reservations, .. }: &Pass, granted: Granted) -> String {
    let Granted { at, units, remaining } = granted;
    let lease = leases.first().map(|lease| (lease.name.as_str(), lease.renew_every.0));
    let (name, every_us) = lease.unwrap_or_default();
    let reservation = reservations.first().map(|one| (one.id.as_str(), one.meter.estimate()));
    let (id, reserved) = reservation.unwrap_or_default();
    let mut fields = Fields::default();
    fields.number(0).text("").text(name).number(every_us).text(id).number(reserved);
    fields.number(at.0).number(units).number(remaining).headers(headers);
    fields.into_text()
}
