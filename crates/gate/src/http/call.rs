//! Calls that say in a body of JSON what they are about.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tidegate_core::Timestamp;

use super::operation::{
    Count, DrawForm, OperationForm, Ppm, Wanted, draw_of, needs_leases, request,
};
use super::problem::Problem;
use super::{Call, Chance, Check, Form, MAX_CHECKS, Response, find, validated};
use crate::object::{Object, known_path};
use crate::policy::{Policies, Whole};
use crate::request::{Operation, Request};

/// The checks of a body.
pub(super) fn checks(
    policies: &Policies,
    call: &Call,
    body: &[u8],
    chance: Chance<'_>,
) -> Result<(Form, Vec<Check>), Response> {
    let at = String::new;
    let check = match call {
        Call::Check => return batch(policies, body, chance),
        Call::Acquire => {
            let form: CheckForm = parse(body)?;
            let check = form.check(policies, chance, &at)?;
            let policy = policies.all().get(check.policy);
            policy.map_or(Ok(()), |policy| needs_leases(policy, &check.key, &at))?;
            if matches!(check.operation, Operation::Decide(Request { cost: 0, .. })) {
                let detail =
                    "cost: found 0, allowed is what is above: who only looks gets no lease";
                return Err(Problem::InvalidRequest.response(detail.to_string()));
            }
            check
        }
        Call::Renew(id) => parse::<RenewForm>(body)?.check(policies, id)?,
        Call::Settle => parse::<SettleForm>(body)?.check(policies)?,
        Call::Budget => parse::<BudgetForm>(body)?.check(policies)?,
        Call::Report => parse::<ReportForm>(body)?.check(policies)?,
    };
    Ok((Form::Single, [check].into()))
}

pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Response> {
    let invalid = |detail: String| Problem::InvalidRequest.response(detail);
    let mut json = serde_json::Deserializer::from_slice(body);
    let Object(form) = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let (path, error) = (known_path(error.path()), error.into_inner());
        invalid(if path.is_empty() { error.to_string() } else { alloc::format!("{path}: {error}") })
    })?;
    json.end().map_err(|error| invalid(error.to_string()))?;
    Ok(form)
}

/// One check as a request writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckForm {
    policy: String,
    key: String,
    cost: Option<Whole<0>>,
    class: Option<String>,
    lease: Option<String>,
    signal_ppm: Option<Ppm>,
    now_us: Option<Whole<0>>,
    draw: Option<DrawForm>,
}

impl CheckForm {
    fn check(
        self,
        policies: &Policies,
        chance: Chance<'_>,
        at: &dyn Fn() -> String,
    ) -> Result<Check, Response> {
        let Self { policy, key, cost, class, lease, signal_ppm, now_us, draw } = self;
        let (index, policy) = find(policies, &policy, at)?;
        let cost = cost.map(|cost| cost.0);
        let wanted = Wanted { cost, class, lease, signal_ppm };
        let (request, lease) = request(policy, &key, wanted, chance, at)?;
        let (operation, draw) = (Operation::Decide(request), draw.map(draw_of));
        let now = now_us.map(|now| Timestamp(now.0));
        validated(policy, Check { policy: index, key, operation, lease, now, draw }, at)
    }
}

/// A single check or a batch. Not an untagged enum: its error would say only that neither fits.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BodyForm {
    policy: Option<String>,
    key: Option<String>,
    cost: Option<Whole<0>>,
    class: Option<String>,
    lease: Option<String>,
    signal_ppm: Option<Ppm>,
    now_us: Option<Whole<0>>,
    draw: Option<DrawForm>,
    checks: Option<Vec<Object<CheckForm>>>,
}

fn batch(
    policies: &Policies,
    body: &[u8],
    chance: Chance<'_>,
) -> Result<(Form, Vec<Check>), Response> {
    let invalid = |detail: String| Problem::InvalidRequest.response(detail);
    let form: BodyForm = parse(body)?;
    let BodyForm { cost, class, lease, signal_ppm, now_us, draw, .. } = form;
    let nothing_else = cost.is_none()
        && class.is_none()
        && lease.is_none()
        && signal_ppm.is_none()
        && now_us.is_none()
        && draw.is_none();
    match (form.policy, form.key, form.checks) {
        (None, None, Some(checks)) if nothing_else => {
            if checks.is_empty() || checks.len() > MAX_CHECKS {
                let found = checks.len();
                return Err(invalid(alloc::format!(
                    "checks: found {found}, allowed are 1 to {MAX_CHECKS}"
                )));
            }
            let checks = checks.into_iter().enumerate().map(|(place, Object(form))| {
                form.check(policies, chance, &|| alloc::format!("checks[{place}]: "))
            });
            Ok((Form::Batch, checks.collect::<Result<_, _>>()?))
        }
        (Some(policy), Some(key), None) => {
            let form = CheckForm { policy, key, cost, class, lease, signal_ppm, now_us, draw };
            Ok((Form::Single, [form.check(policies, chance, &String::new)?].into()))
        }
        (Some(_), None, None) => Err(invalid("missing field `key`".to_string())),
        (None, Some(_), None) => Err(invalid("missing field `policy`".to_string())),
        _ => Err(invalid(
            "allowed are `policy`, `key`, `cost`, `class`, `lease` and `signal_ppm`, or `checks` \
             alone"
                .to_string(),
        )),
    }
}

/// `PUT /v1/leases/{id}`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RenewForm {
    policy: String,
    key: String,
    /// Of an owner of connections: how many it has.
    count: Option<Count>,
    now_us: Option<Whole<0>>,
}

impl RenewForm {
    fn check(self, policies: &Policies, id: &str) -> Result<Check, Response> {
        let Self { policy, key, count, now_us } = self;
        let asked = OperationForm::Renew { lease: id.into(), count };
        asked.check(policies, &policy, key, now_us)
    }
}

/// `POST /v1/settle`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettleForm {
    policy: String,
    key: String,
    granted_at_us: Whole<0>,
    reserved: Whole<0>,
    actual: Whole<0>,
    now_us: Option<Whole<0>>,
}

impl SettleForm {
    fn check(self, policies: &Policies) -> Result<Check, Response> {
        let Self { policy, key, granted_at_us, reserved, actual, now_us } = self;
        let asked = OperationForm::Settle { granted_at_us, reserved, actual };
        asked.check(policies, &policy, key, now_us)
    }
}

/// `POST /v1/budget`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetForm {
    policy: String,
    key: String,
    lease: String,
    wants: Whole<0>,
    granted_at_us: Option<Whole<0>>,
    left: Option<Whole<0>>,
    now_us: Option<Whole<0>>,
}

impl BudgetForm {
    fn check(self, policies: &Policies) -> Result<Check, Response> {
        let Self { policy, key, lease, wants, granted_at_us, left, now_us } = self;
        let asked = OperationForm::Budget { lease, wants, granted_at_us, left };
        asked.check(policies, &policy, key, now_us)
    }
}

/// `POST /v1/report`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportForm {
    policy: String,
    key: String,
    offered_at_us: Option<Whole<0>>,
    admitted: Whole<0>,
    suppressed: Whole<0>,
    now_us: Option<Whole<0>>,
}

impl ReportForm {
    fn check(self, policies: &Policies) -> Result<Check, Response> {
        let Self { policy, key, offered_at_us, admitted, suppressed, now_us } = self;
        let asked = OperationForm::Report { offered_at_us, admitted, suppressed };
        asked.check(policies, &policy, key, now_us)
    }
}
