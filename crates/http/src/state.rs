//! Where an exchange stands: what it waits for, and what it needs then.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;

use tidegate_gate::{Chance, Policies};

use crate::access::Access;
use crate::api::call::Call;
use crate::api::idempotency::IdempotencyKey;
use crate::api::policies::{PolicyCall, RevisionTag, UnreadChange};
use crate::key::FoundKey;
use crate::key::token::Verify;
use crate::plan::{Keyless, Planned};
use crate::response::Response;
use crate::served::Served;

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
    /// A call whose body is not read yet.
    Call(Call, Option<Box<IdempotencyKey>>, Arc<Policies>),
    /// A change of the policies whose body is not read yet.
    Edit(Box<UnreadChange>),
    /// The key if the signature holds, and the key otherwise. What is large is boxed, so that the other states are moved at less
    /// cost.
    Verify(Box<(Verify, [Option<String>; 2], Keyless)>),
    /// The key, and what its request costs once a copy of the body has come.
    Copy(Option<String>, Box<Keyless>),
    Decide(Planned),
    Change(Box<PolicyCall>),
    /// The version of the policies in force.
    Probe(u64),
    /// Whether keys are named as they are.
    Watch(Watched, bool),
    Done(Served),
    Ended,
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
                Ok(Self::Verify(Box::new((token, [Some(key), otherwise], keyless))))
            }
        }
    }

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
        match key.is_some() && keyless.reads_body()? {
            true => Ok(Self::Copy(key, Box::new(keyless))),
            false => keyless.plan(key.as_deref(), random).map(Self::Decide),
        }
    }
}
