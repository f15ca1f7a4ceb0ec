//! The operations of a limiter on one key.

use tidegate_gate::{
    Ask, AskError, Asked, CheckForm, Decision, InvalidKey, Kind, Operation, OperationError, Policy,
    Request, Rule, TableError, Timestamp, Verdict, Whole, check_key,
};

use super::{Limiter, quantity, timestamp};
use crate::answer::{self, Beside};
use crate::failure::Failure;

impl Limiter {
    pub(super) fn failed(&mut self, failure: Failure) -> Option<bool> {
        self.failure = Some(failure);
        None
    }

    pub(super) fn answered(&mut self, verdict: &Verdict, beside: Beside) -> Option<bool> {
        answer::write(&mut self.numbers, verdict, beside);
        Some(verdict.decision.is_allowed())
    }

    /// Takes the policy of the call, if it has limits of its own.
    #[inline]
    pub(super) fn begin(&mut self) {
        if self.call.is_some() || self.last_call.is_some() {
            self.last_call = self.call.take();
        }
    }

    pub(super) fn checked(
        &mut self,
        key_bytes: usize,
        cost: f64,
        now: f64,
    ) -> Result<Decision, Failure> {
        self.begin();
        let (cost, now) = (quantity("cost", "INVALID_COST", cost)?, timestamp(now)?);
        let key = written(&*self.key, key_bytes)?;
        let policy = self.last_call.as_ref().unwrap_or(&self.policy);
        let mut request = Request::of(cost);
        if cost > 0 && !(self.cost_is_all && self.last_call.is_none()) {
            if has(policy, key, Kind::Lease) {
                return Err(Failure::NeedsLease);
            }
            if has(policy, key, Kind::Shed) {
                request.draw = self.chance.draw();
            }
        }
        let decided = self.table.decide(policy, key, now, request);
        if is_too_much(&decided) && policy.is_shadow() {
            return self.asked(key_bytes, of_cost(cost), now).map(|(verdict, _)| verdict.decision);
        }
        decided.map_err(Failure::Table)
    }

    pub(super) fn decided(
        &mut self,
        key_bytes: usize,
        cost: f64,
        now: f64,
        looks: bool,
    ) -> Result<(Verdict, Beside), Failure> {
        self.begin();
        let (cost, now) = (quantity("cost", "INVALID_COST", cost)?, timestamp(now)?);
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
        let beside = Beside { rule: policy.rule_number(key), has_lease: false };
        Ok((decided.map_err(Failure::Table)?, beside))
    }

    pub(super) fn operated(
        &mut self,
        key_bytes: usize,
        json: &str,
        acquires: bool,
        now: f64,
    ) -> Result<(Verdict, Beside), Failure> {
        self.begin();
        let now = timestamp(now)?;
        let asked = self.resolve(key_bytes, Ask::parse(json).map_err(Failure::Ask)?)?;
        if acquires && asked.lease().is_none() {
            let policy = self.policy.name().into();
            return Err(Failure::Ask(AskError::NoLeases { policy }));
        }
        self.done(&asked, now)
    }

    fn asked(
        &mut self,
        key_bytes: usize,
        ask: Ask,
        now: Timestamp,
    ) -> Result<(Verdict, Beside), Failure> {
        let asked = self.resolve(key_bytes, ask)?;
        self.done(&asked, now)
    }

    fn resolve(&mut self, key_bytes: usize, ask: Ask) -> Result<Asked, Failure> {
        let key = written(&*self.key, key_bytes)?;
        let policy = self.last_call.as_ref().unwrap_or(&self.policy);
        ask.resolve(policy, key, &mut || self.chance.number()).map_err(Failure::Ask)
    }

    fn done(&mut self, asked: &Asked, now: Timestamp) -> Result<(Verdict, Beside), Failure> {
        let verdict = self.table.ask(asked.resolved(), now, &asked.operation());
        let verdict = asked.said(verdict.map_err(Failure::Table)?);
        self.lease = asked.lease().map(String::from);
        let rule = asked.resolved().rule_number();
        Ok((verdict, Beside { rule, has_lease: self.lease.is_some() }))
    }

    pub(super) fn explained(
        &mut self,
        key_bytes: usize,
        json: &str,
        now: f64,
    ) -> Result<String, Failure> {
        self.begin();
        let now = timestamp(now)?;
        let asked = self.resolve(key_bytes, Ask::parse(json).map_err(Failure::Ask)?)?;
        let request = match asked.operation() {
            Operation::Decide(request) | Operation::Peek(request) => request,
            _ => Request::of(0), // never: only requests are explained
        };
        let resolved = asked.resolved();
        let why = self.table.explain(resolved.policy(), resolved.written_key(), now, &request);
        let why = why.map_err(Failure::Table)?;
        let beside = Beside { rule: resolved.rule_number(), has_lease: false };
        let passes = self.answered(&asked.said(why.verdict), beside) == Some(true);
        let (limit, sign) = (why.limit.unwrap_or_default(), if passes { "+" } else { " " });
        Ok([sign, &*limit, "\0", &why.bound, "\0", &why.text, "\0"].concat())
    }

    pub(super) fn set_used(
        &mut self,
        key_bytes: usize,
        used: f64,
        now: f64,
    ) -> Result<(Verdict, Beside), Failure> {
        self.begin();
        let (used, now) = (quantity("used", "INVALID_REQUEST", used)?, timestamp(now)?);
        let key = written(&*self.key, key_bytes)?;
        let policy = self.last_call.as_ref().unwrap_or(&self.policy);
        let verdict = self.table.set_used(policy, key, now, used).map_err(Failure::Table)?;
        Ok((verdict, Beside { rule: policy.rule_number(key), has_lease: false }))
    }
}

fn of_cost(cost: u64) -> Ask {
    Ask::Check(CheckForm { cost: Whole::new(cost), ..CheckForm::default() })
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

/// Whether the key has a limit of this kind.
fn has(policy: &Policy, key: &str, kind: Kind) -> bool {
    match policy.rule(key) {
        Rule::Limited(limits, _) => limits.iter().any(|each| each.limit.kind() == kind),
        Rule::Listed(_) => false,
    }
}
