//! The calls with a JSON body.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tidegate_core::Timestamp;

use super::problem::Problem;
use super::{Check, Form, MAX_CHECKS, Plan, Response, find, located};
use crate::ask::{Ask, AskError, Chance, CheckForm, Count, DrawForm, Ppm, draw_of, parse};
use crate::policy::{Policies, Whole};
use crate::tree::{Form as Readable, form};

/// A call with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Check,
    Acquire,
    Renew(String),
    Settle,
    Budget,
    Report,
    /// The block of this key of this policy.
    Block(String, String),
}

impl Call {
    /// Reads the checks of a body.
    pub(super) fn read(
        self,
        policies: &Policies,
        body: &str,
        chance: Chance<'_>,
    ) -> Result<Plan, Response> {
        let (target, ask) = match self {
            Self::Check => return batch(policies, body, chance),
            Self::Acquire => return acquire(policies, body, chance),
            Self::Renew(lease) => {
                let RenewBody { policy, key, now_us, count } = read(body)?;
                (Target { policy, key, now_us }, Ask::Renew { lease, count })
            }
            Self::Settle => {
                let body: SettleBody = read(body)?;
                let ask = body.ask().map_err(|error| error.response(""))?;
                let SettleBody { policy, key, now_us, .. } = body;
                (Target { policy, key, now_us }, ask)
            }
            Self::Budget => {
                let body: BudgetBody = read(body)?;
                let BudgetBody { policy, key, now_us, lease, wants, granted_at_us, left } = body;
                let ask = Ask::Budget { lease, wants, granted_at_us, left };
                (Target { policy, key, now_us }, ask)
            }
            Self::Report => {
                let body: ReportBody = read(body)?;
                let ReportBody { policy, key, now_us, offered_at_us, admitted, suppressed } = body;
                let ask = Ask::Report { offered_at_us, admitted, suppressed };
                (Target { policy, key, now_us }, ask)
            }
            Self::Block(policy, key) => {
                let BlockBody { for_us, now_us } = read(body)?;
                (Target { policy, key, now_us }, Ask::Block { for_us })
            }
        };
        // only a check needs random numbers
        target.plan(policies, ask, &mut || None)
    }
}

/// The policy, key and time of an operation.
pub(super) struct Target {
    pub(super) policy: String,
    pub(super) key: String,
    pub(super) now_us: Option<Whole<0>>,
}

impl Target {
    pub(super) fn plan(
        self,
        policies: &Policies,
        ask: Ask,
        chance: Chance<'_>,
    ) -> Result<Plan, Response> {
        let check = self.check(policies, ask, chance, "")?;
        Ok(Plan { checks: [check].into(), form: Form::Single })
    }

    /// `at` is the place in the body that an error names.
    fn check(
        self,
        policies: &Policies,
        ask: Ask,
        chance: Chance<'_>,
        at: &str,
    ) -> Result<Check, Response> {
        let policy = find(policies, &self.policy, at)?;
        let asked = ask.resolve(policy, &self.key, chance).map_err(|error| error.response(at))?;
        Ok(Check { asked, now: self.now_us.map(|now| Timestamp(now.0)), draw: None })
    }
}

fn read<T: Readable>(body: &str) -> Result<T, Response> {
    parse(body).map_err(|error| error.response(""))
}

form! {
    /// One check in a body.
    struct CheckBody {
        policy: String,
        key: String,
        cost: Option<Whole<0>> = None,
        class: Option<String> = None,
        lease: Option<String> = None,
        signal_ppm: Option<Ppm> = None,
        now_us: Option<Whole<0>> = None,
        draw: Option<DrawForm> = None,
    }
}

impl CheckBody {
    fn check(self, policies: &Policies, chance: Chance<'_>, at: &str) -> Result<Check, Response> {
        let Self { policy, key, cost, class, lease, signal_ppm, now_us, draw } = self;
        // only a test environment may use the caller's own draw
        let ask = Ask::Check(CheckForm { cost, class, lease, signal_ppm, draw: None });
        let check = Target { policy, key, now_us }.check(policies, ask, chance, at)?;
        Ok(Check { draw: draw.map(draw_of), ..check })
    }
}

fn acquire(policies: &Policies, body: &str, chance: Chance<'_>) -> Result<Plan, Response> {
    let check = read::<CheckBody>(body)?.check(policies, chance, "")?;
    crate::ask::needs_leases(check.asked.resolved()).map_err(|error| error.response(""))?;
    if check.asked.is_free() {
        return Err(AskError::FreeLease.response(""));
    }
    Ok(Plan { checks: [check].into(), form: Form::Single })
}

form! {
    /// A single check or a batch. An untagged enum would only say that neither fits.
    struct BatchBody {
        policy: Option<String> = None,
        key: Option<String> = None,
        cost: Option<Whole<0>> = None,
        class: Option<String> = None,
        lease: Option<String> = None,
        signal_ppm: Option<Ppm> = None,
        now_us: Option<Whole<0>> = None,
        draw: Option<DrawForm> = None,
        checks: Option<Vec<CheckBody>> = None,
    }
}

fn batch(policies: &Policies, body: &str, chance: Chance<'_>) -> Result<Plan, Response> {
    let invalid = |detail: &str| Err(Problem::InvalidRequest.response(detail.to_string()));
    let body: BatchBody = read(body)?;
    let BatchBody { cost, class, lease, signal_ppm, now_us, draw, .. } = body;
    let nothing_else = cost.is_none()
        && class.is_none()
        && lease.is_none()
        && signal_ppm.is_none()
        && now_us.is_none()
        && draw.is_none();
    match (body.policy, body.key, body.checks) {
        (None, None, Some(checks)) if nothing_else => {
            if !(1..=MAX_CHECKS).contains(&checks.len()) {
                let found = checks.len();
                return invalid(&alloc::format!(
                    "`checks`: expected 1 to {MAX_CHECKS} checks, found {found}"
                ));
            }
            let checks = checks.into_iter().enumerate().map(|(place, body)| {
                body.check(policies, chance, &alloc::format!("`checks[{place}]`: "))
            });
            Ok(Plan { checks: checks.collect::<Result<_, _>>()?, form: Form::Batch })
        }
        (Some(policy), Some(key), None) => {
            let body = CheckBody { policy, key, cost, class, lease, signal_ppm, now_us, draw };
            let check = body.check(policies, chance, "")?;
            Ok(Plan { checks: [check].into(), form: Form::Single })
        }
        (Some(_), None, None) => invalid("missing field `key`"),
        (None, Some(_), None) => invalid("missing field `policy`"),
        (None, None, None) => invalid("missing field `policy`"),
        (_, _, Some(_)) => invalid("`checks`: expected no other field beside it, found one"),
    }
}

form! {
    /// `PUT /v1/leases/{id}`
    struct RenewBody {
        policy: String,
        key: String,
        now_us: Option<Whole<0>> = None,
        count: Option<Count> = None,
    }
}

form! {
    /// `POST /v1/settle`: the real cost of a request granted on an estimate, or a refund.
    struct SettleBody {
        policy: String,
        key: String,
        now_us: Option<Whole<0>> = None,
        granted_at_us: Option<Whole<0>> = None,
        reserved: Option<Whole<0>> = None,
        actual: Option<Whole<0>> = None,
        refund: Option<Whole<1>> = None,
    }
}

impl SettleBody {
    fn ask(&self) -> Result<Ask, AskError> {
        let missing = |field: &str| AskError::Json {
            path: String::new(),
            message: alloc::format!("missing field `{field}`"),
        };
        let Self { granted_at_us, reserved, actual, refund, .. } = *self;
        match refund {
            None => Ok(Ask::Settle {
                granted_at_us: granted_at_us.ok_or_else(|| missing("granted_at_us"))?,
                reserved: reserved.ok_or_else(|| missing("reserved"))?,
                actual: actual.ok_or_else(|| missing("actual"))?,
            }),
            Some(units) if granted_at_us.is_none() && reserved.is_none() && actual.is_none() => {
                Ok(Ask::Refund { units })
            }
            Some(_) => Err(AskError::Json {
                path: "refund".to_string(),
                message: "expected no field of a settlement beside it, found one".to_string(),
            }),
        }
    }
}

form! {
    /// `POST /v1/budget`
    struct BudgetBody {
        policy: String,
        key: String,
        now_us: Option<Whole<0>> = None,
        lease: String,
        wants: Whole<0>,
        granted_at_us: Option<Whole<0>> = None,
        left: Option<Whole<0>> = None,
    }
}

form! {
    /// `POST /v1/keys/{policy}/{key}/block`
    struct BlockBody {
        for_us: Whole<0>,
        now_us: Option<Whole<0>> = None,
    }
}

form! {
    /// `POST /v1/report`
    struct ReportBody {
        policy: String,
        key: String,
        now_us: Option<Whole<0>> = None,
        offered_at_us: Option<Whole<0>> = None,
        admitted: Whole<0>,
        suppressed: Whole<0>,
    }
}

impl AskError {
    /// `at` is the place in the request that the error names.
    pub(super) fn response(&self, at: &str) -> Response {
        located(self.problem(), at, self)
    }

    pub(super) const fn problem(&self) -> Problem {
        match self {
            Self::Key(_) => Problem::InvalidKey,
            Self::Cost(_) => Problem::CostExceedsCapacity,
            Self::NoRandomness => Problem::Internal,
            _ => Problem::InvalidRequest,
        }
    }
}
