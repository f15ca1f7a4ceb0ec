//! The operations of a limiter on one key.
//!
//! JavaScript writes the key to [`key_address`](Limiter::key_address), and passes the number of its bytes. An operation
//! returns whether the request may pass, and writes the [`Numbers`](answer::Numbers) of its answer. Without an answer,
//! [`failure`](Limiter::failure) says why, and nothing has changed.

use std::mem;
use std::sync::Arc;

use tidegate_gate::{
    Ask, AskError, Asked, Bounded, CallLimits, CheckForm, Grant, InvalidKey, Kind, Operation,
    OperationError, Policy, Request, Rule, Softness, Table, TableError, Timestamp, Verdict,
    check_key,
};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use super::Limiter;
use super::decided::{Decided, write_decision};
use crate::answer::{self, DENIED, Extras};
use crate::failure::Failure;
use crate::input::{form, optional, quantity, reserve_form, timestamp, whole};
use crate::number::from_quantity;
use crate::policy::has;

#[wasm_bindgen(js_class = NativeLimiter)]
impl Limiter {
    /// Lets the next operation decide by these limits, in JSON, in place of the policy's own.
    ///
    /// # Errors
    /// Throws if the limits cannot be read, or if there are too many different ones.
    #[wasm_bindgen(js_name = underLimits)]
    pub fn under_limits(&mut self, text: &str, now: f64) -> Result<(), JsValue> {
        self.forget_before_call(); // the operation before this one is over
        let now = timestamp(now)?;
        if let Some((table, policy)) =
            self.table.counting_apart(&self.policy).map_err(Failure::Limits)?
        {
            let table = mem::replace(&mut self.table, table);
            self.before_call = Some((table, mem::replace(&mut self.policy, policy)));
        }
        match self.call_limits.policy(&mut self.table, &self.policy, text, now) {
            Ok(own) => self.call = Some(own),
            Err(error) => {
                self.restore_before_call();
                return Err(Failure::Limits(error).into());
            }
        }
        Ok(())
    }

    /// Decides on a request. The answer has only the first four numbers, and the flags.
    pub fn check(&mut self, key_bytes: usize, cost: f64, now: f64) -> Option<bool> {
        match self.checked(key_bytes, cost, now) {
            Ok(decided) => {
                write_decision(&mut self.numbers, &decided);
                Some(decided.decision.is_allowed())
            }
            Err(failure) => self.failed(failure),
        }
    }

    /// Does the same as [`check`](Self::check), or only looks.
    pub fn decide(&mut self, key_bytes: usize, cost: f64, now: f64, looks: bool) -> Option<bool> {
        let done = self.decided(key_bytes, cost, now, looks);
        self.answered(done)
    }

    /// Does the same as [`decide`](Self::decide) for a request with more fields than a cost. If `acquires` is true, the
    /// request must acquire a lease.
    #[expect(clippy::too_many_arguments, reason = "an object would take longer to pass")]
    pub fn request(
        &mut self,
        key_bytes: usize,
        cost: f64,
        now: f64,
        looks: bool,
        acquires: bool,
        class: Option<String>,
        lease: Option<String>,
        signal_ppm: Option<f64>,
        draw: Option<f64>,
    ) -> Option<bool> {
        let form = form(cost, class, lease, signal_ppm, draw);
        let ask = form.map(if looks { Ask::Peek } else { Ask::Check });
        let done = self.resolved(key_bytes, ask, now).and_then(|(asked, now)| {
            if acquires && asked.lease().is_none() {
                let policy = self.policy.name().into();
                return Err(Failure::Ask(AskError::NoLeases { policy }));
            }
            self.done(&asked, now)
        });
        self.answered(done)
    }

    /// Answers as a peek, and says why in the [words](answer::in_words) of an answer.
    #[expect(clippy::too_many_arguments, reason = "an object would take longer to pass")]
    pub fn explain(
        &mut self,
        key_bytes: usize,
        cost: f64,
        now: f64,
        class: Option<String>,
        lease: Option<String>,
        signal_ppm: Option<f64>,
        draw: Option<f64>,
    ) -> Option<String> {
        let ask = form(cost, class, lease, signal_ppm, draw).map(Ask::Explain);
        let explained = self.resolved(key_bytes, ask, now).and_then(|(asked, now)| {
            let (verdict, extras) = self.done(&asked, now)?;
            self.write(&verdict, extras);
            Ok(answer::in_words(&asked, &verdict))
        });
        match explained {
            Ok(text) => text,
            Err(failure) => self.failed(failure),
        }
    }

    /// Makes `used` units count as used.
    pub fn set(&mut self, key_bytes: usize, used: f64, now: f64) -> Option<bool> {
        let done = self.set_used(key_bytes, used, now);
        self.answered(done)
    }

    /// Reserves units for a request whose true cost is known later.
    #[expect(clippy::too_many_arguments, reason = "an object would take longer to pass")]
    pub fn reserve(
        &mut self,
        key_bytes: usize,
        cost: f64,
        now: f64,
        class: Option<String>,
        id: Option<String>,
        signal_ppm: Option<f64>,
        draw: Option<f64>,
        time_to_live: Option<f64>,
    ) -> Option<bool> {
        let check = form(cost, class, None, signal_ppm, draw);
        self.operate(key_bytes, reserve_form(check, id, time_to_live), now)
    }

    /// Says what a reservation has really cost.
    pub fn commit(&mut self, key_bytes: usize, id: String, actual: f64, now: f64) -> Option<bool> {
        let actual = whole("actual", actual);
        self.operate(key_bytes, actual.map(|actual| Ask::Commit { id, actual }), now)
    }

    /// Returns units.
    pub fn refund(&mut self, key_bytes: usize, units: f64, now: f64) -> Option<bool> {
        let refund = |units| Ask::Refund { units, granted_at_us: None, granted: None };
        self.operate(key_bytes, whole("units", units).map(refund), now)
    }

    /// Returns units of a grant that took `granted` units and has not returned them.
    #[wasm_bindgen(js_name = refundGrant)]
    pub fn refund_grant(
        &mut self,
        key_bytes: usize,
        granted_at_us: f64,
        granted: f64,
        units: f64,
        now: f64,
    ) -> Option<bool> {
        let read = || {
            let at = Timestamp(quantity("grantedAtUs", "INVALID_REQUEST", granted_at_us)?);
            let grant = Grant { at, units: quantity("granted", "INVALID_REQUEST", granted)? };
            Ok(Operation::RefundOf(grant, quantity("units", "INVALID_REQUEST", units)?))
        };
        let done = self.done_at(key_bytes, read(), now);
        self.answered(done)
    }

    /// Charges units that were spent without asking. Only `npm/dropin/rolling-rate-limiter.js` does so.
    pub fn charge(&mut self, key_bytes: usize, units: f64, now: f64) -> Option<bool> {
        let units = quantity("units", "INVALID_REQUEST", units);
        let done = self.done_at(key_bytes, units.map(Operation::Charge), now);
        self.answered(done)
    }

    /// Renews a lease. `count` is the owner's number of connections.
    pub fn renew(
        &mut self,
        key_bytes: usize,
        lease: String,
        count: Option<f64>,
        now: f64,
    ) -> Option<bool> {
        let count = optional("count", count);
        self.operate(key_bytes, count.map(|count| Ask::Renew { lease, count }), now)
    }

    /// Releases a lease.
    pub fn release(&mut self, key_bytes: usize, lease: String, now: f64) -> Option<bool> {
        self.operate(key_bytes, Ok(Ask::Release { lease }), now)
    }

    /// Asks for units that a holder may spend without asking, and returns unspent ones.
    pub fn budget(
        &mut self,
        key_bytes: usize,
        lease: String,
        wants: f64,
        granted_at_us: Option<f64>,
        left: Option<f64>,
        now: f64,
    ) -> Option<bool> {
        let read = || {
            let (wants, left) = (whole("wants", wants)?, optional("left", left)?);
            let granted_at_us = optional("grantedAtUs", granted_at_us)?;
            Ok(Ask::Budget { lease, wants, granted_at_us, left })
        };
        self.operate(key_bytes, read(), now)
    }

    /// Reports the load that a reporter was offered.
    pub fn report(
        &mut self,
        key_bytes: usize,
        admitted: f64,
        suppressed: f64,
        offered_at_us: Option<f64>,
        now: f64,
    ) -> Option<bool> {
        let read = || {
            Ok(Ask::Report {
                offered_at_us: optional("offeredAtUs", offered_at_us)?,
                admitted: whole("admitted", admitted)?,
                suppressed: whole("suppressed", suppressed)?,
            })
        };
        self.operate(key_bytes, read(), now)
    }

    /// Clears the state of the key.
    pub fn reset(&mut self, key_bytes: usize, now: f64) -> Option<bool> {
        self.operate(key_bytes, Ok(Ask::Reset {}), now)
    }

    /// Blocks the key for a time; 0 ends the block.
    pub fn block(&mut self, key_bytes: usize, for_us: f64, now: f64) -> Option<bool> {
        self.operate(
            key_bytes,
            whole("span", for_us).map(|span: Bounded<0>| Ask::Block { r#for: span.into() }),
            now,
        )
    }

    /// Why the last operation had no answer.
    pub fn failure(&mut self) -> JsValue {
        self.failure.take().map_or(JsValue::UNDEFINED, JsValue::from)
    }

    /// The µs after which to renew a lease of the key under the limits of the last operation; 0 if they hold no leases.
    #[wasm_bindgen(js_name = renewEveryUs)]
    #[must_use]
    pub fn renew_every_us(&self, key_bytes: usize) -> f64 {
        let policy = self.last_call.as_ref().unwrap_or(&self.policy);
        let rule = written(&*self.key, key_bytes).map(|key| policy.rule(key));
        match rule {
            Ok(Rule::Limited(limits, _)) => {
                limits.renew_every().map_or(0.0, |every| from_quantity(every.0))
            }
            _ => 0.0,
        }
    }

    /// The name of the lease that the last operation concerned.
    pub fn lease(&mut self) -> Option<String> {
        self.lease.take()
    }
}

type Done = Result<(Verdict, Extras), Failure>;

impl Limiter {
    pub(super) fn failed<T>(&mut self, failure: Failure) -> Option<T> {
        self.restore_before_call();
        self.failure = Some(failure);
        None
    }

    /// Undoes what the first call with limits did to the table, because it failed.
    fn restore_before_call(&mut self) {
        if let Some((table, policy)) = self.before_call.take() {
            self.go_on_with((table, CallLimits::default(), policy));
        }
    }

    /// Not inlined: the code that drops a table is long.
    #[inline(never)]
    pub(super) fn go_on_with(&mut self, to: (Table, CallLimits, Arc<Policy>)) {
        (self.table, self.call_limits, self.policy) = to;
    }

    fn answered(&mut self, done: Done) -> Option<bool> {
        match done {
            Ok((verdict, extras)) => Some(self.write(&verdict, extras)),
            Err(failure) => self.failed(failure),
        }
    }

    /// Writes the numbers of an answer, and returns whether the request may pass.
    fn write(&mut self, verdict: &Verdict, extras: Extras) -> bool {
        let soft = self.softness(verdict, extras.rule);
        answer::write(&mut self.numbers, verdict, extras, soft);
        verdict.decision.is_allowed()
    }

    fn softness(&self, verdict: &Verdict, rule: Option<usize>) -> Softness {
        let policy = self.last_call.as_ref().unwrap_or(&self.policy);
        let limits = rule.filter(|_| policy.is_soft()).and_then(|rule| policy.limits_of_rule(rule));
        limits.map_or_else(Softness::default, |limits| limits.softness(verdict))
    }

    /// Takes the policy of the call, if it has limits of its own.
    #[inline]
    fn begin(&mut self) {
        if self.call.is_some() || self.last_call.is_some() {
            self.last_call = self.call.take();
            if self.last_call.is_none() {
                self.forget_before_call(); // as in `under_limits`
            }
        }
    }

    /// Forgets the table that was there before the limits of a call. Not inlined: the code that drops a table is long.
    #[inline(never)]
    pub(super) fn forget_before_call(&mut self) {
        self.before_call = None;
    }

    fn checked(&mut self, key_bytes: usize, cost: f64, now: f64) -> Result<Decided, Failure> {
        self.begin();
        let (cost, now) = (quantity("cost", "INVALID_COST", cost)?, timestamp(now)?);
        let key = written(&*self.key, key_bytes)?;
        let policy = self.last_call.as_ref().unwrap_or(&self.policy);
        let mut request = Request::of(cost);
        if cost > 0 && !(self.cost_is_all && self.last_call.is_none()) {
            if has(policy, key, Kind::Lease) {
                return Err(Failure::NeedsLease);
            }
            if has(policy, key, Kind::Shed) && !policy.is_soft() {
                request.draw = self.chance.draw();
            }
        }
        if policy.is_soft() {
            let (verdict, extras) = self.decided_now(key_bytes, cost, now, false)?;
            return Ok(self.said(&verdict, extras));
        }
        let decided = self.table.decide(policy, key, now, request);
        if is_too_much(&decided) && policy.is_shadow() {
            let (verdict, extras) = self.asked(key_bytes, of_cost(cost), now)?;
            return Ok(self.said(&verdict, extras));
        }
        let decision = decided.map_err(Failure::Table)?;
        Ok(Decided { decision, flags: if decision.is_listed() { DENIED } else { 0 } })
    }

    fn said(&self, verdict: &Verdict, extras: Extras) -> Decided {
        let flags = answer::flags(self.softness(verdict, extras.rule), &verdict.decision, extras);
        Decided { decision: verdict.decision, flags }
    }

    fn decided(&mut self, key_bytes: usize, cost: f64, now: f64, looks: bool) -> Done {
        self.begin();
        let (cost, now) = (quantity("cost", "INVALID_COST", cost)?, timestamp(now)?);
        self.decided_now(key_bytes, cost, now, looks)
    }

    #[inline(never)] // once, because it is long
    fn decided_now(&mut self, key_bytes: usize, cost: u64, now: Timestamp, looks: bool) -> Done {
        let key = written(&*self.key, key_bytes)?;
        let policy = self.last_call.as_ref().unwrap_or(&self.policy);
        let mut request = Request::of(cost);
        if !looks && cost > 0 && !(self.cost_is_all && self.last_call.is_none()) {
            if has(policy, key, Kind::Lease) {
                return self.asked(key_bytes, of_cost(cost), now); // it acquires a lease
            }
            if has(policy, key, Kind::Shed) {
                request.draw = self.chance.draw();
            }
        }
        let operation = if looks { Operation::Peek(request) } else { Operation::Decide(request) };
        let decided = self.table.operate(policy, key, now, operation);
        if is_too_much(&decided) && policy.is_shadow() {
            return self.asked(key_bytes, of_cost(cost), now);
        }
        let extras = Extras { rule: policy.rule_number(key), has_lease: false };
        Ok((decided.map_err(Failure::Table)?, extras))
    }

    fn operate(&mut self, key_bytes: usize, ask: Result<Ask, Failure>, now: f64) -> Option<bool> {
        let asked = self.resolved(key_bytes, ask, now);
        let done = asked.and_then(|(asked, now)| self.done(&asked, now));
        self.answered(done)
    }

    /// Begins an operation, and checks it against the policy.
    #[inline(never)]
    pub(super) fn resolved(
        &mut self,
        key_bytes: usize,
        ask: Result<Ask, Failure>,
        now: f64,
    ) -> Result<(Asked, Timestamp), Failure> {
        self.begin();
        let now = timestamp(now)?;
        Ok((self.resolve(key_bytes, ask?)?, now))
    }

    fn asked(&mut self, key_bytes: usize, ask: Ask, now: Timestamp) -> Done {
        let asked = self.resolve(key_bytes, ask)?;
        self.done(&asked, now)
    }

    fn resolve(&mut self, key_bytes: usize, ask: Ask) -> Result<Asked, Failure> {
        let key = written(&*self.key, key_bytes)?;
        let policy = self.last_call.as_ref().unwrap_or(&self.policy);
        ask.resolve(policy, key, &mut || self.chance.number()).map_err(Failure::Ask)
    }

    fn done(&mut self, asked: &Asked, now: Timestamp) -> Done {
        let verdict = self.table.ask(asked.resolved(), now, &asked.operation());
        let mut verdict = asked.said(verdict.map_err(Failure::Table)?);
        verdict.effect = asked.effect(&verdict);
        self.lease = asked.lease().map(String::from);
        let rule = asked.resolved().rule_number();
        Ok((verdict, Extras { rule, has_lease: self.lease.is_some() }))
    }

    /// Does an operation that no [`Ask`] can name.
    fn done_at(
        &mut self,
        key_bytes: usize,
        operation: Result<Operation, Failure>,
        now: f64,
    ) -> Done {
        self.begin();
        let now = timestamp(now)?;
        let key = written(&*self.key, key_bytes)?;
        let policy = self.last_call.as_ref().unwrap_or(&self.policy);
        let verdict = self.table.operate(policy, key, now, operation?).map_err(Failure::Table)?;
        Ok((verdict, Extras { rule: policy.rule_number(key), has_lease: false }))
    }

    fn set_used(&mut self, key_bytes: usize, used: f64, now: f64) -> Done {
        self.begin();
        let (used, now) = (quantity("used", "INVALID_REQUEST", used)?, timestamp(now)?);
        let key = written(&*self.key, key_bytes)?;
        let policy = self.last_call.as_ref().unwrap_or(&self.policy);
        let verdict = self.table.set_used(policy, key, now, used).map_err(Failure::Table)?;
        Ok((verdict, Extras { rule: policy.rule_number(key), has_lease: false }))
    }
}

fn of_cost(cost: u64) -> Ask {
    Ask::Check(CheckForm { cost: Bounded::new(cost), ..CheckForm::default() })
}

/// Whether the limits can never grant the cost.
const fn is_too_much<T>(decided: &Result<T, TableError>) -> bool {
    matches!(decided, Err(TableError::Operation(OperationError::Cost(_))))
}

/// The key in the first `key_bytes` bytes.
fn written(bytes: &[u8], key_bytes: usize) -> Result<&str, Failure> {
    // for a key that is too long, JavaScript only passes the length
    let key = bytes.get(..key_bytes).ok_or(Failure::Key(InvalidKey::Length(key_bytes)))?;
    let key = str::from_utf8(key).map_err(|_| Failure::KeyEncoding)?;
    check_key(key).map_err(Failure::Key)?;
    Ok(key)
}
