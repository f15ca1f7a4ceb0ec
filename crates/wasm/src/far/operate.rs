//! The operations that wait for the store.
//!
//! JavaScript first says by [`begin`](Authority::begin) which key an operation is on, and when it is asked. Each operation returns the token
//! by which its answer is known; nothing if its answer is the last answer already, because it needs no store.

use tidegate_gate::{
    Ask, AskError, Asked, Bounded, Grant, Kind, Micros, Operation, Resolved, Rule, Timestamp,
    check_key,
};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use super::Authority;
use super::caller::{Caller, Taken};
use crate::failure::Failure;
use crate::input::{form, optional, quantity, reserve_form, timestamp, whole};
use crate::policy::has;

/// The key of an operation, and when it is asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Begun {
    key: String,
    now: Timestamp,
    /// Whether the caller gave the time.
    is_timed: bool,
    /// The time by a clock that never goes back.
    at: Micros,
}

#[wasm_bindgen(js_class = NativeAuthority)]
impl Authority {
    /// Begins an operation on a key.
    ///
    /// # Errors
    /// Throws if the key or a time is invalid.
    pub fn begin(&mut self, key: String, now: f64, timed: bool, at: f64) -> Result<(), JsValue> {
        check_key(&key).map_err(Failure::Key)?;
        let (now, at) = (timestamp(now)?, Micros(quantity("at", "INVALID_NOW", at)?));
        self.begun = Begun { key, now, is_timed: timed, at };
        Ok(())
    }

    /// Decides on a request that acquires no lease.
    ///
    /// # Errors
    /// Throws if the request does not fit the policy, as all operations do.
    pub fn check(&mut self, cost: f64) -> Result<Option<usize>, JsValue> {
        let form = form(cost, None, None, None, None)?;
        if cost > 0.0 && has(&self.policy, &self.begun.key, Kind::Lease) {
            return Err(Failure::NeedsLease.into());
        }
        self.ask(Ask::Check(form), false)
    }

    /// Decides on a request, or only looks. If `acquires` is true, the request must acquire a lease.
    ///
    /// # Errors
    /// Throws as [`check`](Self::check).
    #[expect(clippy::too_many_arguments, reason = "an object would take longer to pass")]
    pub fn request(
        &mut self,
        cost: f64,
        looks: bool,
        acquires: bool,
        class: Option<String>,
        lease: Option<String>,
        signal_ppm: Option<f64>,
        draw: Option<f64>,
    ) -> Result<Option<usize>, JsValue> {
        let form = form(cost, class, lease, signal_ppm, draw)?;
        self.ask(if looks { Ask::Peek(form) } else { Ask::Check(form) }, acquires)
    }

    /// Whether a request can ever pass, without asking the store: `false` if the key is on the list `deny`.
    ///
    /// # Errors
    /// Throws as [`check`](Self::check).
    #[wasm_bindgen(js_name = canPass)]
    pub fn can_pass(
        &mut self,
        cost: f64,
        class: Option<String>,
        lease: Option<String>,
        signal_ppm: Option<f64>,
        draw: Option<f64>,
    ) -> Result<bool, JsValue> {
        let asked = self.resolve(Ask::Check(form(cost, class, lease, signal_ppm, draw)?))?;
        Ok(match asked.resolved().rule() {
            Rule::Listed(decision) => decision.is_allowed() || self.policy.is_shadow(),
            Rule::Limited(..) => true,
        })
    }

    /// Looks, and explains the answer.
    ///
    /// # Errors
    /// Throws as [`check`](Self::check).
    pub fn explain(
        &mut self,
        cost: f64,
        class: Option<String>,
        lease: Option<String>,
        signal_ppm: Option<f64>,
        draw: Option<f64>,
    ) -> Result<Option<usize>, JsValue> {
        self.ask(Ask::Explain(form(cost, class, lease, signal_ppm, draw)?), false)
    }

    /// Reserves units for a request whose true cost is known later.
    ///
    /// # Errors
    /// Throws as [`check`](Self::check).
    pub fn reserve(
        &mut self,
        cost: f64,
        class: Option<String>,
        id: Option<String>,
        signal_ppm: Option<f64>,
        draw: Option<f64>,
        time_to_live: Option<f64>,
    ) -> Result<Option<usize>, JsValue> {
        let check = form(cost, class, None, signal_ppm, draw);
        self.ask(reserve_form(check, id, time_to_live)?, false)
    }

    /// Says what a reservation has really cost.
    ///
    /// # Errors
    /// Throws as [`check`](Self::check).
    pub fn commit(&mut self, id: String, actual: f64) -> Result<Option<usize>, JsValue> {
        self.ask(Ask::Commit { id, actual: whole("actual", actual)? }, false)
    }

    /// Returns units.
    ///
    /// # Errors
    /// Throws as [`check`](Self::check).
    pub fn refund(&mut self, units: f64) -> Result<Option<usize>, JsValue> {
        let units = whole("units", units)?;
        self.ask(Ask::Refund { units, granted_at_us: None, granted: None }, false)
    }

    /// Returns units of a grant that took `granted` units and has not returned them.
    ///
    /// # Errors
    /// Throws as [`check`](Self::check).
    #[wasm_bindgen(js_name = refundGrant)]
    pub fn refund_grant(
        &mut self,
        granted_at_us: f64,
        granted: f64,
        units: f64,
    ) -> Result<Option<usize>, JsValue> {
        let at = Timestamp(quantity("grantedAtUs", "INVALID_REQUEST", granted_at_us)?);
        let grant = Grant { at, units: quantity("granted", "INVALID_REQUEST", granted)? };
        let operation = Operation::RefundOf(grant, quantity("units", "INVALID_REQUEST", units)?);
        let resolved = Resolved::new(&self.policy, &self.begun.key).map_err(Failure::Key)?;
        Ok(self.queue_begun(resolved, None, operation))
    }

    /// Renews a lease. `count` is the owner's number of connections.
    ///
    /// # Errors
    /// Throws as [`check`](Self::check).
    pub fn renew(&mut self, lease: String, count: Option<f64>) -> Result<Option<usize>, JsValue> {
        self.ask(Ask::Renew { lease, count: optional("count", count)? }, false)
    }

    /// Releases a lease.
    ///
    /// # Errors
    /// Throws as [`check`](Self::check).
    pub fn release(&mut self, lease: String) -> Result<Option<usize>, JsValue> {
        self.ask(Ask::Release { lease }, false)
    }

    /// Asks for units that a holder may spend without asking, and returns unspent ones.
    ///
    /// # Errors
    /// Throws as [`check`](Self::check).
    pub fn budget(
        &mut self,
        lease: String,
        wants: f64,
        granted_at_us: Option<f64>,
        left: Option<f64>,
    ) -> Result<Option<usize>, JsValue> {
        let (wants, left) = (whole("wants", wants)?, optional("left", left)?);
        let granted_at_us = optional("grantedAtUs", granted_at_us)?;
        self.ask(Ask::Budget { lease, wants, granted_at_us, left }, false)
    }

    /// Reports the load that a reporter was offered.
    ///
    /// # Errors
    /// Throws as [`check`](Self::check).
    pub fn report(
        &mut self,
        admitted: f64,
        suppressed: f64,
        offered_at_us: Option<f64>,
    ) -> Result<Option<usize>, JsValue> {
        let offered_at_us = optional("offeredAtUs", offered_at_us)?;
        let (admitted, suppressed) =
            (whole("admitted", admitted)?, whole("suppressed", suppressed)?);
        self.ask(Ask::Report { offered_at_us, admitted, suppressed }, false)
    }

    /// Clears the state of the key.
    ///
    /// # Errors
    /// Throws as [`check`](Self::check).
    pub fn reset(&mut self) -> Result<Option<usize>, JsValue> {
        self.ask(Ask::Reset {}, false)
    }

    /// Blocks the key for a time; 0 ends the block.
    ///
    /// # Errors
    /// Throws as [`check`](Self::check).
    pub fn block(&mut self, for_us: f64) -> Result<Option<usize>, JsValue> {
        let span: Bounded<0> = whole("span", for_us)?;
        self.ask(Ask::Block { r#for: span.into() }, false)
    }
}

impl Authority {
    fn ask(&mut self, ask: Ask, acquires: bool) -> Result<Option<usize>, JsValue> {
        let asked = self.resolve(ask)?;
        if acquires && asked.lease().is_none() {
            let policy = self.policy.name().into();
            return Err(Failure::Ask(AskError::NoLeases { policy }).into());
        }
        let (resolved, operation) = (asked.resolved().clone(), asked.operation());
        Ok(self.queue_begun(resolved, Some(asked), operation))
    }

    fn resolve(&mut self, ask: Ask) -> Result<Asked, Failure> {
        let asked = ask.resolve(&self.policy, &self.begun.key, &mut || self.chance.number());
        asked.map_err(Failure::Ask)
    }

    fn queue_begun(
        &mut self,
        resolved: Resolved,
        asked: Option<Asked>,
        operation: Operation,
    ) -> Option<usize> {
        let Begun { now, is_timed, at, .. } = self.begun;
        let asking = None;
        self.take(Caller { resolved, asked, operation, is_timed, at, asking }, now)
    }

    /// Takes an operation. Returns its token, or nothing if its answer is the last answer already.
    pub(super) fn take(&mut self, caller: Caller, now: Timestamp) -> Option<usize> {
        match self.tier.ask(caller, now) {
            Taken::Waits(token) => Some(token),
            Taken::Answered(caller, answer) => {
                self.said = self.say(caller, answer);
                None
            }
        }
    }
}
