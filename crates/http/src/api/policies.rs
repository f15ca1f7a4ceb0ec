//! The calls on the policy file itself, which show the file in force, replace it, or restore an earlier one.

mod revisions;
mod tag;
#[cfg(test)]
mod tests;

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use core::fmt::{Display, Formatter};

use tidegate_gate::{
    BudgetConfig, MAX_QUANTITY, NamedLimit, OnError, Placement, Policies, Policy, Quoted, Request,
    TimedOverride, Timestamp,
};

use super::query;
use crate::answer::json::{Object, object};
use crate::answer::problem::{Problem, answer_json, answer_text};
use crate::head::Head;
use crate::log::LogSecret;
use crate::response::Response;
pub use revisions::{Changed, InvalidRevisions, Revisions};
pub use tag::{Origin, RevisionTag, Source};

/// The longest name of an actor.
pub(crate) const MAX_ACTOR_BYTES: usize = 128;

/// The actor of a change whose caller names none: the scope of its token.
const ADMINISTRATION: &str = "administration";

/// A call about the revisions of the policy file. [`Revisions::handle`] answers it, where the revisions are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyCall {
    /// List the revisions.
    History,
    /// Return the file of this version, or the file in force.
    File(Option<u64>),
    /// List the overrides of one key that have not ended.
    Overrides,
    /// Put another file in force, or change an override of one key.
    Change(Change),
}

/// A change of the policy file in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    by: String,
    /// The header `If-Match`.
    if_match: Option<String>,
    to: ChangeTo,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ChangeTo {
    /// This file.
    File(String),
    /// The file of this version, or of the one before.
    Version(Option<u64>),
    /// The same file with this override of one key, or without it.
    Override { policy: String, key: String, fields: Option<String> },
}

/// A change whose body is not read yet.
#[derive(Debug)]
pub(crate) struct UnreadChange {
    by: String,
    if_match: Option<String>,
    to: UnreadTo,
}

/// What a change is to, without the body.
#[derive(Debug)]
enum UnreadTo {
    /// The body is the file.
    Body,
    /// The body has the fields of an override of this key of this policy.
    Override(String, String),
    /// There is no body.
    Known(ChangeTo),
}

/// A change of the policies, for a log: without the file, and with a hash in place of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audited<'c> {
    /// What was done.
    pub what: &'static str,
    /// Of an override, the policy and the hash of the key.
    pub key: Option<(&'c str, u64)>,
    /// When an override that was put ends.
    pub until: Option<Timestamp>,
    /// Who did it.
    pub by: &'c str,
}

impl Display for Audited<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> core::fmt::Result {
        let Self { what, key, until, by } = self;
        write!(f, "policies: {what}")?;
        if let Some((policy, key)) = key {
            write!(f, ", policy {policy:?}, key {key:016x}")?;
        }
        if let Some(until) = until {
            write!(f, ", until {} µs", until.0)?;
        }
        write!(f, ", by {by:?}")
    }
}

impl PolicyCall {
    /// Who changes what, for a log. `None` if the call changes nothing.
    #[must_use]
    pub fn audited(&self, secret: &LogSecret) -> Option<Audited<'_>> {
        let Self::Change(Change { by, to, .. }) = self else { return None };
        let (what, key, until) = match to {
            ChangeTo::File(_) => ("another file was put in force", None, None),
            ChangeTo::Version(_) => ("an earlier file was put in force", None, None),
            ChangeTo::Override { policy, key, fields } => {
                let hash = secret.hash(policy, key);
                let (what, until) = match fields {
                    Some(own) => {
                        let own = TimedOverride::new(policy, "-", "", own).ok();
                        ("the override of a key was put", own.map(|own| own.until))
                    }
                    None => ("the override of a key was deleted", None),
                };
                (what, Some((policy.as_str(), hash)), until)
            }
        };
        Some(Audited { what, key, until, by })
    }

    /// Writes the call for another process of the same server: the kind of the call, the version, the actor and the
    /// header `If-Match`, each on a line, and then the file.
    #[must_use]
    pub fn write(&self) -> String {
        let version = |version: &Option<u64>| version.map_or(String::new(), |it| it.to_string());
        let (what, version, change) = match self {
            Self::History => ("history", String::new(), None),
            Self::Overrides => ("overrides", String::new(), None),
            Self::File(wanted) => ("file", version(wanted), None),
            Self::Change(change) => match &change.to {
                ChangeTo::Version(wanted) => {
                    ("restore", version(wanted), Some((change, Cow::Borrowed(""))))
                }
                ChangeTo::File(file) => {
                    ("put", String::new(), Some((change, file.as_str().into())))
                }
                ChangeTo::Override { policy, key, fields } => {
                    let what = if fields.is_some() { "override" } else { "no-override" };
                    let (bytes, fields) = (key.len(), fields.as_deref().unwrap_or_default());
                    let rest = alloc::format!("{policy}\n{bytes}\n{key}{fields}");
                    (what, String::new(), Some((change, Cow::Owned(rest))))
                }
            },
        };
        let (by, if_match, file) = match change {
            Some((Change { by, if_match, .. }, file)) => (by.as_str(), if_match.as_deref(), file),
            None => ("", None, Cow::Borrowed("")),
        };
        [what, &version, by, if_match.unwrap_or(""), &*file].join("\n")
    }

    /// Reads a text of [`write`](Self::write); `None` for any other text.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut lines = text.splitn(5, '\n');
        let mut line = || lines.next();
        let (what, version, by, if_match, file) = (line()?, line()?, line()?, line()?, line()?);
        let version = if version.is_empty() { None } else { Some(version.parse().ok()?) };
        let to = match what {
            "history" => return Some(Self::History),
            "overrides" => return Some(Self::Overrides),
            "file" => return Some(Self::File(version)),
            "restore" => ChangeTo::Version(version),
            "put" => ChangeTo::File(file.to_string()),
            "override" | "no-override" => {
                let (policy, rest) = file.split_once('\n')?;
                let (bytes, rest) = rest.split_once('\n')?;
                let (key, fields) = rest.split_at_checked(bytes.parse().ok()?)?;
                let fields = (what == "override").then(|| fields.to_string());
                ChangeTo::Override { policy: policy.to_string(), key: key.to_string(), fields }
            }
            _ => return None,
        };
        let if_match = Some(if_match.to_string()).filter(|if_match| !if_match.is_empty());
        Some(Self::Change(Change { by: by.to_string(), if_match, to }))
    }
}

impl UnreadChange {
    /// `PUT /v1/policies`
    pub(super) fn put(head: &Head<'_>) -> Result<Self, Response> {
        Self::of(head, UnreadTo::Body)
    }

    /// `POST /v1/policies/restore`
    pub(super) fn restore(head: &Head<'_>) -> Result<Self, Response> {
        Self::of(head, UnreadTo::Known(ChangeTo::Version(version(head)?)))
    }

    /// `PUT` and `DELETE /v1/overrides/{policy}/{key}`
    pub(super) fn of_override(
        head: &Head<'_>,
        (policy, key): (String, String),
    ) -> Result<Self, Response> {
        let to = match head.method {
            "PUT" => UnreadTo::Override(policy, key),
            _ => UnreadTo::Known(ChangeTo::Override { policy, key, fields: None }),
        };
        Self::of(head, to)
    }

    fn of(head: &Head<'_>, to: UnreadTo) -> Result<Self, Response> {
        Ok(Self { by: actor(head.header)?, if_match: (head.header)("if-match"), to })
    }

    /// The change, with its body.
    pub(crate) fn read(self, body: String) -> Result<PolicyCall, Response> {
        let Self { by, if_match, to } = self;
        let to = match to {
            UnreadTo::Body => ChangeTo::File(body),
            UnreadTo::Override(policy, key) => {
                ChangeTo::Override { policy, key, fields: Some(body) }
            }
            UnreadTo::Known(to) if body.is_empty() => to,
            UnreadTo::Known(_) => {
                let detail = "the body: expected none, found one";
                return Err(Problem::InvalidRequest.response(detail.to_string()));
            }
        };
        Ok(PolicyCall::Change(Change { by, if_match, to }))
    }
}

/// Who makes a change, by the header `X-Tidegate-Actor`, for a log. A caller that names nobody is the scope of its token.
///
/// # Errors
/// Returns a response if the header cannot stand in a log.
pub fn actor(header: &dyn Fn(&str) -> Option<String>) -> Result<String, Response> {
    let by = header("x-tidegate-actor").unwrap_or_else(|| ADMINISTRATION.to_string());
    // no other text is the same in every runtime
    let is_printable = by.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if by.is_empty() || by.len() > MAX_ACTOR_BYTES || !is_printable {
        let detail = alloc::format!(
            "the header `x-tidegate-actor`: expected 1 to {MAX_ACTOR_BYTES} printable characters of ASCII, found {}",
            Quoted(&by)
        );
        return Err(Problem::InvalidRequest.response(detail));
    }
    Ok(by)
}

/// `GET /v1/policies/file`
pub(super) fn file(head: &Head<'_>) -> Result<PolicyCall, Response> {
    version(head).map(PolicyCall::File)
}

fn version(head: &Head<'_>) -> Result<Option<u64>, Response> {
    let [version] = query::fields(head, ["version"])?;
    version.map(|version| query::whole("the query field `version`", &version, 1)).transpose()
}

/// `GET /v1/policies`
pub(super) fn show(policies: &Policies, tag: &RevisionTag) -> Response {
    let shown = object(|it| {
        tag.write(it);
        it.field("needs_token", policies.needs_token());
        it.objects("policies", policies.all(), |policy, it| show_policy(policy, it));
    });
    tag.on(answer_json(200, shown))
}

fn show_policy(policy: &Policy, it: &mut Object<'_>) {
    it.field("name", policy.name());
    it.field("description", policy.description());
    it.objects("limits", policy.limits().iter(), show_limit);
    it.field("overrides", policy.overrides().len());
    it.field("shadow", policy.is_shadow());
    it.field(
        "on_error",
        match policy.on_error() {
            OnError::Open => "open",
            OnError::Closed => "closed",
            OnError::Local => "local",
        },
    );
    // among how many nodes at least the limits are divided in an outage, if the policy says so
    it.some("nodes", policy.least_nodes());
    match policy.placement() {
        Placement::Key => it.field("placement", "key"),
        Placement::Shard(shards) => {
            it.field("placement", alloc::format!("shard:{shards}").as_str());
        }
    }
    // how long a node may remember a refusal; `null` if it must ask for every request
    it.field("remember_us", policy.remember().map(|time| time.0));
    // how many units of a key a node may take in advance; `null` for none
    it.field("local_most", policy.local().map(BudgetConfig::most));
    it.field("reports", policy.reports());
    it.field("persist_ahead", policy.persist_ahead().is_some());
    it.field("idempotency_us", policy.idempotency().map(|time| time.0));
    it.field("share_calls", policy.shares_calls());
    // how many reservations a key may have; `null` for a policy that takes none
    it.field(
        "reservations_most",
        policy.reservations().map(|reservations| reservations.terms().most),
    );
}

/// The most units that a limit grants at once or in a period; `None` for a limiter without such a number.
#[must_use]
pub fn most_units(named: &NamedLimit) -> Option<u64> {
    let mut fresh = alloc::vec![0; named.limit.words()];
    let shown = named.limit.decide(&mut fresh, Timestamp(0), &Request::from(0));
    // a limiter without a greatest number says a number that is above all others
    shown.ok().map(|decision| decision.limit()).filter(|most| *most <= MAX_QUANTITY)
}

fn show_limit(named: &NamedLimit, it: &mut Object<'_>) {
    let NamedLimit { name, limit, shadow, warn_at, payer, .. } = named;
    it.field("name", name.as_str());
    it.field("limit", most_units(named));
    it.field("period_us", limit.period().0);
    it.some("shadow", shadow.then_some(true));
    it.some("payer", payer.is_some().then_some(true)); // it is charged only if it is the first one with room
    it.some("warn_at_ppm", warn_at.map(|share| u64::from(share.ppm())));
    if let Some(calendar) = limit.calendar() {
        let zone = calendar.timezone();
        it.field("timezone", zone.name);
        // the version of the time zone database; empty for UTC
        it.field("zone_data", zone.version);
        it.field("last_boundary_us", calendar.reach().1.0);
    }
}

/// A policy file as it was written.
fn text(file: &str, tag: &RevisionTag) -> Response {
    tag.on(answer_text("text/plain; charset=utf-8", file.to_string()))
}
