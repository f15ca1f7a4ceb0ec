//! The calls with a JSON body.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tidegate_form::{Form as Readable, form};
use tidegate_gate::{
    Ask, AskError, Bounded, Chance, CheckForm, Count, Draw, DrawBits, Policies, Ppm, parse_json,
};

use super::target::Target;
use crate::answer::problem::{self, Problem};
use crate::check::Check;
use crate::plan::{Form, Plan};
use crate::response::Response;

/// The most checks in one batch.
pub const MAX_CHECKS: usize = 1_000;

/// A call with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
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
    pub(crate) fn read(
        self,
        policies: &Policies,
        body: &str,
        random: Chance<'_>,
    ) -> Result<Plan, Response> {
        let (target, ask) = match self {
            Self::Check => return batch(policies, body, random),
            Self::Acquire => return acquire(policies, body, random),
            Self::Renew(lease) => {
                let RenewBody { policy, key, now_us, count } = read(body)?;
                (Target { policy, key, now_us }, Ask::Renew { lease, count })
            }
            Self::Settle => {
                let body: SettleBody = read(body)?;
                let ask = body.ask().map_err(|error| problem::of(&error, ""))?;
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

fn read<T: Readable>(body: &str) -> Result<T, Response> {
    parse_json(body).map_err(|error| problem::of(&error, ""))
}

form! {
    /// One check in a body.
    struct CheckBody {
        policy: String,
        key: String,
        cost: Option<Bounded<0>> = None,
        class: Option<String> = None,
        lease: Option<String> = None,
        signal_ppm: Option<Ppm> = None,
        now_us: Option<Bounded<0>> = None,
        draw: Option<DrawBits> = None,
    }
}

impl CheckBody {
    fn check(self, policies: &Policies, random: Chance<'_>, at: &str) -> Result<Check, Response> {
        let Self { policy, key, cost, class, lease, signal_ppm, now_us, draw } = self;
        // only a test environment may use the caller's own draw
        let ask = Ask::Check(CheckForm { cost, class, lease, signal_ppm, draw: None });
        let check = Target { policy, key, now_us }.check(policies, ask, random, at)?;
        Ok(Check { draw: draw.map(|bits| Draw(bits.into())), ..check })
    }
}

fn acquire(policies: &Policies, body: &str, random: Chance<'_>) -> Result<Plan, Response> {
    let check = read::<CheckBody>(body)?.check(policies, random, "")?;
    check.asked.require_lease().map_err(|error| problem::of(&error, ""))?;
    Ok(Plan::of_one(check))
}

form! {
    /// A single check or a batch. An untagged enum would only say that neither fits.
    struct BatchBody {
        policy: Option<String> = None,
        key: Option<String> = None,
        cost: Option<Bounded<0>> = None,
        class: Option<String> = None,
        lease: Option<String> = None,
        signal_ppm: Option<Ppm> = None,
        now_us: Option<Bounded<0>> = None,
        draw: Option<DrawBits> = None,
        checks: Option<Vec<CheckBody>> = None,
    }
}

fn batch(policies: &Policies, body: &str, random: Chance<'_>) -> Result<Plan, Response> {
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
                body.check(policies, random, &alloc::format!("`checks[{place}]`: "))
            });
            Ok(Plan { checks: checks.collect::<Result<_, _>>()?, form: Form::Batch })
        }
        (Some(policy), Some(key), None) => {
            let body = CheckBody { policy, key, cost, class, lease, signal_ppm, now_us, draw };
            let check = body.check(policies, random, "")?;
            Ok(Plan::of_one(check))
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
        now_us: Option<Bounded<0>> = None,
        count: Option<Count> = None,
    }
}

form! {
    /// `POST /v1/settle`: the real cost of a request granted on an estimate, or a refund.
    struct SettleBody {
        policy: String,
        key: String,
        now_us: Option<Bounded<0>> = None,
        granted_at_us: Option<Bounded<0>> = None,
        reserved: Option<Bounded<0>> = None,
        actual: Option<Bounded<0>> = None,
        refund: Option<Bounded<1>> = None,
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
        now_us: Option<Bounded<0>> = None,
        lease: String,
        wants: Bounded<0>,
        granted_at_us: Option<Bounded<0>> = None,
        left: Option<Bounded<0>> = None,
    }
}

form! {
    /// `POST /v1/keys/{policy}/{key}/block`
    struct BlockBody {
        for_us: Bounded<0>,
        now_us: Option<Bounded<0>> = None,
    }
}

form! {
    /// `POST /v1/report`
    struct ReportBody {
        policy: String,
        key: String,
        now_us: Option<Bounded<0>> = None,
        offered_at_us: Option<Bounded<0>> = None,
        admitted: Bounded<0>,
        suppressed: Bounded<0>,
    }
}
