//! Where an exchange stands: what it waits for, and what it needs then.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_gate::{Chance, Policies};

use crate::access::Access;
use crate::answer::problem::Problem;
use crate::api::call::Call;
use crate::api::idempotency::IdempotencyKey;
use crate::api::policies::{PolicyCall, RevisionTag, UnreadChange};
use crate::head::{BodyError, MAX_BODY_BYTES};
use crate::key::FoundKey;
use crate::key::token::Verify;
use crate::plan::{Form, Keyless, Plan, Planned};
use crate::response::Response;
use crate::served::Served;
use crate::several::Several;

/// What a server is when a request comes. A request is answered by it to its end, whatever is put in force meanwhile.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "holds a closure")]
pub struct Server<'a> {
    /// The policies in force.
    pub policies: &'a Arc<Policies>,
    /// Who may use the API.
    pub access: &'a Access,
    /// The revision of the policies in force.
    pub revision: &'a RevisionTag,
    /// Returns the text of [`Metrics`](crate::Metrics), with the server's own counters.
    pub metrics: &'a dyn Fn() -> String,
}

/// A call about the server itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// `GET /v1/top`: [`Limited::top`](crate::Limited::top).
    Top,
    /// `GET /v1/status`: [`Limited::status`](crate::Limited::status).
    Status,
}

/// What the exchange waits for, and what it then needs.
#[derive(Debug)]
pub(crate) enum State {
    Body(Unread, Arc<Policies>),
    /// The key if the signature holds, and the key otherwise. Boxed, as below, so that the other states are moved at less cost.
    Verify(Verify, Box<([Option<String>; 2], Keyless)>),
    /// The key, and what its request costs once a copy of the body has come.
    Copy(Option<String>, Box<Keyless>),
    Decide(Plan),
    /// Checks that are decided one after another.
    Several(Box<Several>),
    Change(PolicyCall),
    /// The version of the policies in force.
    Probe(u64),
    /// Whether keys are named as they are.
    Watch(Watched, bool),
    Done(Served),
    Ended,
}

impl From<Result<Self, Response>> for State {
    fn from(begun: Result<Self, Response>) -> Self {
        begun.unwrap_or_else(|response| Self::Done(Served::Response(response)))
    }
}

impl From<Planned> for State {
    fn from(planned: Planned) -> Self {
        match planned {
            Planned::Once(plan) => Self::Decide(plan),
            Planned::Several(several) => Self::Several(several),
        }
    }
}

impl From<Plan> for State {
    fn from(plan: Plan) -> Self {
        match plan {
            Plan { checks, form: form @ Form::AllOrNothing, metering } => {
                Self::Several(Several::new(checks, form, metering))
            }
            plan => Self::Decide(plan),
        }
    }
}

/// A call whose body is not read yet.
#[derive(Debug)]
pub(crate) enum Unread {
    Call(Call, Option<IdempotencyKey>),
    Change(UnreadChange),
}

impl Unread {
    pub(crate) fn read(
        self,
        policies: &Policies,
        body: Result<Vec<u8>, BodyError>,
        random: Chance<'_>,
    ) -> Result<State, Response> {
        let body = text_of(body)?;
        match self {
            Self::Call(call, key) => {
                call.read(policies, &body, key.as_ref(), random).map(State::from)
            }
            Self::Change(change) => change.read(body).map(State::Change),
        }
    }
}

impl State {
    /// Goes on to the checks of a request whose key was found, or first to the signature on which its key depends.
    pub(crate) fn of_key(
        found: FoundKey,
        keyless: Keyless,
        random: Chance<'_>,
    ) -> Result<Self, Response> {
        match found {
            FoundKey::Known(key) => Self::known(key, keyless, random),
            FoundKey::IfVerified { token, key, otherwise } => {
                Ok(Self::Verify(token, Box::new(([Some(key), otherwise], keyless))))
            }
        }
    }
}

impl State {
    /// Goes on to the checks of a request with this key, or first to the key of the next policy or to the body on which its cost
    /// depends.
    pub(crate) fn known(
        key: Option<String>,
        mut keyless: Keyless,
        random: Chance<'_>,
    ) -> Result<Self, Response> {
        let key = match key.map(|key| keyless.next(key)) {
            Some(Ok(found)) => return Self::of_key(found, keyless, random),
            Some(Err(last)) => Some(last),
            None => None,
        };
        match key.is_some() && keyless.reads_body() {
            true => Ok(Self::Copy(key, Box::new(keyless))),
            false => keyless.plan(key.as_deref(), random).map(Self::from),
        }
    }
}

/// The body as text. A server may read U+FFFD in place of bytes that are not UTF-8, and may leave out a byte order mark, as
/// the runtimes of JavaScript do; so the first is refused in every server, and the second is left out.
fn text_of(body: Result<Vec<u8>, BodyError>) -> Result<String, Response> {
    let body = match body {
        Ok(body) if body.len() <= MAX_BODY_BYTES => body,
        Ok(body) => return Err(BodyError::TooLarge(body.len()).response()),
        Err(error) => return Err(error.response()),
    };
    match String::from_utf8(body) {
        Ok(text) if text.is_ascii() => Ok(text),
        Ok(mut text) if !text.contains(char::REPLACEMENT_CHARACTER) => {
            let marks = text.len().saturating_sub(text.trim_start_matches('\u{feff}').len());
            text.drain(..marks);
            Ok(text)
        }
        _ => Err(Problem::InvalidRequest.response(NOT_UTF_8.into())),
    }
}

const NOT_UTF_8: &str = "expected a body in UTF-8 without U+FFFD, which often stands for bytes that are not UTF-8; \
     JSON can write it as `\\ufffd`";
