//! The calls of the API: the policy and the key that each is about, and what those with a JSON body ask.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_form::{Error, Fields, Form as Readable, Node};
use tidegate_gate::{
    Ask, Bounded, Chance, CheckForm, Draw, DrawBits, Policies, Policy, Quoted, ReserveForm,
    Timestamp, read_json,
};

use super::idempotency::{self, IdempotencyKey};
use crate::admission;
use crate::answer::problem::{self, Problem};
use crate::plan::{Check, FieldForm, Form, Plan, Planned, ask_of};
use crate::response::Response;
use crate::several::{Several, keeps_units};

/// The most checks in one batch.
pub const MAX_CHECKS: usize = 1_000;

/// The most checks in one batch that are decided one after another.
const MAX_ALL_OR_NOTHING: usize = 8;

/// The fields of a batch, after those of a check.
const CHECK_OR_BATCH: &[&str] = &[
    "policy",
    "key",
    "cost",
    "class",
    "lease",
    "signal_ppm",
    "now_us",
    "draw",
    "checks",
    "all_or_nothing",
];

const CHECK: &[&str] = CHECK_OR_BATCH.split_at(8).0;

/// A call with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Check,
    Explain,
    Acquire,
    Renew(String),
    Refund,
    Reserve,
    /// The end of the reservation with this id: it is committed, or released.
    Commit(String),
    Release(String),
    Budget,
    Report,
    /// A request behind middleware.
    Admit,
    /// The block of this key of this policy.
    Block(String, String),
}

impl Call {
    /// Reads the checks of a body.
    pub(crate) fn read(
        self,
        policies: &Policies,
        body: &str,
        key: Option<&IdempotencyKey>,
        random: Chance<'_>,
    ) -> Result<Planned, Response> {
        let acquires = self == Self::Acquire;
        let read = read_json(body, |node| self.items(node));
        let (item, form) = match read.map_err(|error| problem::of(&error, ""))? {
            Items::One(item, form) => (item, form),
            Items::Several(_, _) if key.is_some() => return Err(idempotency::of_batch()),
            Items::Several(items, form) => return several(items, form, policies, random),
        };
        let names_itself = item.names_itself();
        let mut check = item.target.check(policies, item.ask, random, "")?;
        if let Some(key) = key {
            check = key.apply(body, check, names_itself)?;
        }
        if matches!(form, Form::Admission { may_come_back: true, .. }) && check.asked.keeps_units()
        {
            let policy = Quoted(check.resolved().policy().name());
            return Err(problem::invalid_request(alloc::format!(
                "`policy`: expected a policy without `payer` before others, because units that come back do not say which \
                 payer they belong to; found {policy}"
            )));
        }
        if acquires {
            check.asked.require_lease().map_err(|error| problem::of(&error, ""))?;
        }
        Ok(Planned::Once(Plan { checks: [check].into(), form, metering: None }))
    }

    fn items<'t>(self, node: &Node<'t>) -> Result<Items<'t>, Error> {
        let one = |target, ask| Ok(Items::One(Item { target, ask }, Form::Single));
        match self {
            Self::Check => check_or_batch(node),
            Self::Explain => {
                Ok(Items::One(Item::of(&node.fields(CHECK)?, Ask::Explain)?, Form::Single))
            }
            Self::Acquire => {
                Ok(Items::One(Item::of(&node.fields(CHECK)?, Ask::Check)?, Form::Lease))
            }
            Self::Renew(lease) => {
                let fields = node.fields(&["policy", "key", "now_us", "count"])?;
                one(Target::of(&fields)?, Ask::Renew { lease, count: fields.optional("count")? })
            }
            Self::Reserve => {
                let names = &[
                    "policy",
                    "key",
                    "now_us",
                    "cost",
                    "class",
                    "signal_ppm",
                    "id",
                    "time_to_live",
                    "draw",
                ];
                let fields = node.fields(names)?;
                let cost: Option<Bounded<1>> = fields.optional("cost")?; // nothing cannot be reserved
                let form = ReserveForm {
                    cost: cost.map(|cost| Bounded::clamped(cost.get())),
                    class: fields.optional("class")?,
                    id: fields.optional("id")?,
                    signal_ppm: fields.optional("signal_ppm")?,
                    draw: None,
                    time_to_live: fields.optional("time_to_live")?,
                };
                one(Target::of(&fields)?, Ask::Reserve(form))
            }
            Self::Commit(id) => {
                let fields = node.fields(&["policy", "key", "now_us", "actual"])?;
                one(Target::of(&fields)?, Ask::Commit { id, actual: fields.get("actual")? })
            }
            Self::Release(id) => {
                let fields = node.fields(&["policy", "key", "now_us"])?;
                one(Target::of(&fields)?, Ask::Commit { id, actual: Bounded::clamped(0) })
            }
            Self::Refund => {
                let names = &["policy", "key", "now_us", "units", "granted_at_us", "granted"];
                let fields = node.fields(names)?;
                let (target, units) = (Target::of(&fields)?, fields.get("units")?);
                let granted_at_us = fields.optional("granted_at_us")?;
                let granted = fields.optional("granted")?;
                one(target, Ask::Refund { units, granted_at_us, granted })
            }
            Self::Budget => {
                let names = &["policy", "key", "now_us", "lease", "wants", "granted_at_us", "left"];
                let fields = node.fields(names)?;
                let target = Target::of(&fields)?;
                let (lease, wants) = (fields.get("lease")?, fields.get("wants")?);
                let granted_at_us = fields.optional("granted_at_us")?;
                let left = fields.optional("left")?;
                one(target, Ask::Budget { lease, wants, granted_at_us, left })
            }
            Self::Report => {
                let names = &["policy", "key", "now_us", "offered_at_us", "admitted", "suppressed"];
                let fields = node.fields(names)?;
                let target = Target::of(&fields)?;
                let offered_at_us = fields.optional("offered_at_us")?;
                let (admitted, suppressed) = (fields.get("admitted")?, fields.get("suppressed")?);
                one(target, Ask::Report { offered_at_us, admitted, suppressed })
            }
            Self::Admit => admit(node),
            Self::Block(policy, key) => {
                let fields = node.fields(&["for", "now_us"])?;
                let ask = Ask::Block { r#for: fields.get("for")? };
                let (policy, key, now_us) = (policy.into(), key.into(), fields.optional("now_us")?);
                one(Target { policy, key, now_us, draw: None }, ask)
            }
        }
    }
}

/// The checks of a batch, and how they are decided.
fn several(
    items: Vec<Item<'_>>,
    form: Form,
    policies: &Policies,
    random: Chance<'_>,
) -> Result<Planned, Response> {
    let mut checks = Vec::with_capacity(items.len());
    for (place, item) in items.into_iter().enumerate() {
        let at = alloc::format!("`checks[{place}]`: ");
        checks.push(item.target.check(policies, item.ask, &mut *random, &at)?);
    }
    if !matches!(form, Form::AllOrNothing) {
        return Ok(Planned::Once(Plan { checks, form, metering: None }));
    }
    if let Some((place, asked)) = keeps_units(&checks) {
        let policy = Quoted(asked.resolved().policy().name());
        return Err(problem::invalid_request(alloc::format!(
            "`checks[{place}]`: expected a policy without `payer` in every check but the last, because units that \
             come back do not say which payer they belong to; found {policy}"
        )));
    }
    Ok(Planned::Several(Several::new(checks, form, None)))
}

/// A request behind middleware.
fn admit<'t>(node: &Node<'t>) -> Result<Items<'t>, Error> {
    let fields = node.fields(&[
        "policy",
        "key",
        "cost",
        "class",
        "signal_ppm",
        "now_us",
        "draw",
        "headers",
        "reserves",
        "one_of_several",
        "may_come_back",
    ])?;
    let (cost, class) = (fields.optional("cost")?, fields.optional("class")?);
    let signal_ppm = fields.optional("signal_ppm")?;
    let reserves = fields.optional("reserves")? == Some(true);
    let ask = ask_of(reserves, cost, class, signal_ppm);
    let form = FieldForm {
        older: fields.optional("headers")?,
        is_one_of_several: fields.optional("one_of_several")? == Some(true),
    };
    let may_come_back = fields.optional("may_come_back")? == Some(true);
    let item = Item { target: Target::of(&fields)?, ask };
    Ok(Items::One(item, Form::Admission { form, may_come_back, answer: admission::answer }))
}

/// A single check or a batch.
fn check_or_batch<'t>(node: &Node<'t>) -> Result<Items<'t>, Error> {
    let fields = node.fields(CHECK_OR_BATCH)?;
    let plain = |message: String| Err(Error::plain(message));
    let all_or_nothing: Option<bool> = fields.optional("all_or_nothing")?;
    let Some(checks) = fields.optional::<Vec<Item>>("checks")? else {
        if all_or_nothing.is_some() {
            return plain("`all_or_nothing`: expected `checks` beside it, found none".into());
        }
        let check = Item::of(&fields, Ask::Check).map_err(|error| {
            // null is no value of a required field either
            match ["policy", "key"].into_iter().find(|name| !fields.has(name)) {
                Some(missing) => Error::plain(alloc::format!("missing field `{missing}`")),
                None => error,
            }
        });
        return Ok(Items::One(check?, Form::Single));
    };
    if let Some(other) = CHECK.iter().find(|name| fields.has(name)) {
        return plain(alloc::format!(
            "`checks`: expected no other field beside it, found `{other}`"
        ));
    }
    let (most, form, beside) = match all_or_nothing == Some(true) {
        true => (MAX_ALL_OR_NOTHING, Form::AllOrNothing, " beside `all_or_nothing`"),
        false => (MAX_CHECKS, Form::Batch, ""),
    };
    if !(1..=most).contains(&checks.len()) {
        let found = checks.len();
        return plain(alloc::format!(
            "`checks`: expected 1 to {most} checks{beside}, found {found}"
        ));
    }
    Ok(Items::Several(checks, form))
}

/// What a body asks, and in which form the answer is.
enum Items<'t> {
    One(Item<'t>, Form),
    Several(Vec<Item<'t>>, Form),
}

/// What a body asks about one key.
struct Item<'t> {
    target: Target<'t>,
    ask: Ask,
}

/// One check.
impl Readable for Item<'static> {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let Item { target, ask } = Item::of(&node.fields(CHECK)?, Ask::Check)?;
        let (policy, key) = (target.policy.into_owned().into(), target.key.into_owned().into());
        Ok(Self { target: Target { policy, key, ..target }, ask })
    }
}

impl<'t> Item<'t> {
    /// What is asked about a request.
    fn of(fields: &Fields<'_, 't>, ask: fn(CheckForm) -> Ask) -> Result<Self, Error> {
        let target = Target::of(fields)?;
        let form = CheckForm {
            cost: fields.optional("cost")?,
            class: fields.optional("class")?,
            lease: fields.optional("lease")?,
            signal_ppm: fields.optional("signal_ppm")?,
            draw: None,
        };
        Ok(Self { target, ask: ask(form) })
    }

    /// Whether the server names the lease or the reservation.
    const fn names_itself(&self) -> bool {
        matches!(
            self.ask,
            Ask::Check(CheckForm { lease: None, .. }) | Ask::Reserve(ReserveForm { id: None, .. })
        )
    }
}

/// The policy and key of an operation, with the caller's own time and draw, which only a test environment may use.
pub(super) struct Target<'t> {
    pub(super) policy: Cow<'t, str>,
    pub(super) key: Cow<'t, str>,
    pub(super) now_us: Option<Bounded<0>>,
    pub(super) draw: Option<DrawBits>,
}

impl<'t> Target<'t> {
    fn of(fields: &Fields<'_, 't>) -> Result<Self, Error> {
        let (policy, key) = (fields.text("policy")?, fields.text("key")?);
        let (now_us, draw) = (fields.optional("now_us")?, fields.optional("draw")?);
        Ok(Self { policy, key, now_us, draw })
    }

    pub(super) fn plan(
        self,
        policies: &Policies,
        ask: Ask,
        random: Chance<'_>,
    ) -> Result<Plan, Response> {
        let check = self.check(policies, ask, random, "")?;
        Ok(Plan { checks: [check].into(), form: Form::Single, metering: None })
    }

    /// `at` is the place in the body that an error names.
    fn check(
        self,
        policies: &Policies,
        ask: Ask,
        random: Chance<'_>,
        at: &str,
    ) -> Result<Check, Response> {
        let Self { policy, key, now_us, draw } = self;
        let policy = find(policies, &policy, at)?;
        let asked = ask.resolve(policy, &key, random).map_err(|error| problem::of(&error, at))?;
        let now = now_us.map(|now| Timestamp(now.get()));
        Ok(Check { asked, now, draw: draw.map(|bits| Draw(bits.into())) })
    }
}

/// The policy of this name.
pub(super) fn find<'a>(
    policies: &'a Policies,
    name: &str,
    at: &str,
) -> Result<&'a Arc<Policy>, Response> {
    policies.get(name).ok_or_else(|| {
        let names = policies.all().iter().map(|policy| policy.name()).take(20);
        let names = names.collect::<Vec<_>>().join(", ");
        let found = Quoted(name);
        let detail = alloc::format!("{at}`policy`: expected one of {names}; found {found}");
        Problem::UnknownPolicy.response(detail)
    })
}
