//! One request, from its head to its answer: a state machine that says what it lacks. The crate's page has the contract.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::convert::identity;
use core::ops::ControlFlow;

use tidegate_gate::{Chance, Policy};

use crate::answer::Outcome;
use crate::answer::page;
use crate::answer::problem::{Problem, internal_error};
use crate::api;
use crate::api::policies::PolicyCall;
use crate::gateway::{self, Begun};
use crate::head::{BodyError, Head, MAX_BODY_BYTES, NoKeys};
use crate::key::token::Verify;
use crate::plan::{Check, Keyed, Keyless, Plan, Planned};
use crate::response::{Headers, Response};
use crate::served::{Pass, Served};
use crate::state::{Server, State, Watched};

/// The next step of a request.
#[derive(Debug)]
pub enum Step<'e> {
    /// Read the body of the request, and call [`Exchange::body`].
    Body,
    /// Read a copy of the body, whose first [`MAX_BODY_BYTES`](crate::MAX_BODY_BYTES) are enough, and call [`Exchange::body`]. The
    /// upstream still gets the body.
    Copy,
    /// Verify the signature of a token, and call [`Exchange::verified`].
    Verify(&'e Verify),
    /// Decide these checks in a store, and call [`Exchange::decided`]. Checks on one key are decided in their order. Where several
    /// policies decide on a request, the step comes once for each, once before to look at all of them where that spares units, and once
    /// after to give back what was granted if one refuses.
    Decide(&'e [Check]),
    /// Let [`Revisions::handle`](crate::Revisions::handle) answer this call, where the revisions are kept, and call
    /// [`Exchange::changed`].
    Change(&'e PolicyCall),
    /// Ask the store whether it can decide now, and call [`Exchange::probed`].
    Probe,
    /// Find the answer to a question about the server, and call [`Exchange::watched`] with it.
    Watch {
        /// The call.
        what: Watched,
        /// Whether keys are named as they are: [`KeysAs`](crate::KeysAs).
        clear: bool,
    },
    /// Send the response, or pass the request on. The exchange has ended.
    Done(Served),
}

/// A request that is being answered.
#[derive(Debug)]
pub struct Exchange {
    state: State,
    /// The words of a response: JSON, or a page for a browser. A function, because a program whose requests never are for
    /// an upstream then has no page in it.
    words: fn(Response) -> Response,
    /// The fields that every response of this gateway to the request has.
    fields: Headers,
}

impl Exchange {
    /// Begins with a request: for the HTTP API if the policy file has no routes or if the path is the API's, and for an upstream
    /// otherwise.
    ///
    /// `random` returns a random number that nobody can guess, because it may become the name of a lease; `None` if no random
    /// numbers are available.
    #[must_use]
    pub fn new(server: &Server<'_>, head: &Head<'_>, random: Chance<'_>) -> Self {
        match server.policies.gateway().api(head.path) {
            Some(path) => Self::of_api(server, &Head { path, ..*head }, random),
            None => {
                let Begun { state, fields } = gateway::begin(server.policies, head, random);
                let words = if page::is_preferred_by(head) { page::of } else { identity };
                Self { state: state.into(), words, fields }
            }
        }
    }

    /// Begins with a request for the HTTP API, which routes may hide from other requests.
    #[must_use]
    pub fn of_api(server: &Server<'_>, head: &Head<'_>, random: Chance<'_>) -> Self {
        Self::begun(api::begin(server, head, random).and_then(|state| match state {
            State::Call(..) | State::Edit(_) if head.is_coded() => Err(BodyError::Coded.response()),
            state => Ok(state),
        }))
    }

    /// Begins with a request whose policy and key are known: for middleware, which runs in the process of the upstream.
    #[must_use]
    #[inline(never)]
    pub fn of_key(policy: &Arc<Policy>, asked: &Keyed<'_>, random: Chance<'_>) -> Self {
        Self::begun(
            Plan::of_middleware(policy, asked, random).map(Planned::Once).map(State::Decide),
        )
    }

    /// Answers such a request in one call, if its store never waits: does what the steps of [`of_key`](Self::of_key) lead to.
    ///
    /// # Errors
    /// Returns the response to a request that does not pass.
    pub fn at_once(
        policy: &Arc<Policy>,
        asked: &Keyed<'_>,
        random: Chance<'_>,
        decide: impl FnOnce(&Check) -> Outcome,
    ) -> Result<Pass, Response> {
        let check = Check::of_middleware(policy, asked, random)?;
        check.serve(asked, decide(&check))
    }

    /// Begins with a request on which several policies decide, all or nothing, whose keys are known: for middleware. Only the last
    /// one may have [payers](tidegate_gate::Limits::have_payers), because units that a payer has granted cannot come back.
    #[must_use]
    pub fn of_keys(asked: &[(&Arc<Policy>, Keyed<'_>)], random: Chance<'_>) -> Self {
        Self::begun(Keyless::plan_of_all(asked, random).map(State::Decide))
    }

    fn begun(state: Result<State, Response>) -> Self {
        Self { state: state.into(), words: identity, fields: Vec::new() }
    }

    /// What to do next. Until its result is handed in, the step stays the same.
    #[inline(never)]
    pub fn step(&mut self) -> Step<'_> {
        if matches!(self.state, State::Done(_))
            && let State::Done(served) = core::mem::replace(&mut self.state, State::Ended)
        {
            return Step::Done(self.shown(served));
        }
        match &self.state {
            State::Call(..) | State::Edit(_) => Step::Body,
            State::Copy(..) => Step::Copy,
            State::Verify(waiting) => Step::Verify(&waiting.0),
            State::Decide(Planned::Once(plan)) => Step::Decide(&plan.checks),
            State::Decide(Planned::Several(several)) => Step::Decide(several.checks()),
            State::Change(call) => Step::Change(call),
            State::Probe(_) => Step::Probe,
            State::Watch(what, clear) => Step::Watch { what: *what, clear: *clear },
            State::Done(_) | State::Ended => {
                let twice = internal_error("the request was answered before".to_string());
                Step::Done(Served::Response(twice))
            }
        }
    }

    /// Goes on with the body, or with the reason why it could not be read.
    pub fn body(&mut self, body: Result<Vec<u8>, BodyError>, random: Chance<'_>) {
        self.go_on(|state| match state {
            State::Call(call, key, policies) => text_of(body)
                .and_then(|body| call.read(&policies, &body, key.as_deref(), random))
                .map(State::Decide)
                .into(),
            State::Edit(change) => text_of(body)
                .and_then(|body| change.read(body))
                .map(Box::new)
                .map(State::Change)
                .into(),
            State::Copy(key, mut keyless) => keyless
                .read(body)
                .and_then(|()| keyless.plan(key.as_deref(), random))
                .map(State::Decide)
                .into(),
            other => other,
        });
    }

    /// Goes on with whether the signature of the token holds. With [`NoKeys`] the request is refused: a token that counted as
    /// absent would let its request pass as another caller's.
    pub fn verified(&mut self, is_verified: Result<bool, NoKeys>, random: Chance<'_>) {
        self.go_on(|state| match state {
            State::Verify(waiting) => {
                let (_, [key, otherwise], keyless) = *waiting;
                let key = is_verified.map(|is_verified| if is_verified { key } else { otherwise });
                let key = key.map_err(Response::from);
                key.and_then(|key| State::known(key, keyless, random)).into()
            }
            other => other,
        });
    }

    /// Goes on with one outcome for each check, in the order of the checks.
    #[inline(never)]
    pub fn decided(&mut self, outcomes: Vec<Outcome>) {
        self.go_on(|state| match state {
            State::Decide(Planned::Once(plan)) => State::Done(plan.serve(outcomes)),
            State::Decide(Planned::Several(several)) => match several.decided(outcomes) {
                ControlFlow::Continue(several) => State::Decide(Planned::Several(several)),
                ControlFlow::Break(served) => State::Done(served),
            },
            other => other,
        });
    }

    /// Goes on with the response to the call about the policies.
    pub fn changed(&mut self, response: Response) {
        self.go_on(|state| match state {
            State::Change(_) => State::Done(Served::Response(response)),
            other => other,
        });
    }

    /// Goes on with what an operator should know although the store can decide, or with the reason why it cannot. The words go to
    /// any caller, so they name no key and no address.
    pub fn probed(&mut self, probed: Result<Vec<String>, String>) {
        self.go_on(|state| match state {
            State::Probe(version) => State::Done(Served::Response(api::ready(version, &probed))),
            other => other,
        });
    }

    /// Goes on with the answer to a question about the server, or with the reason why there is none.
    pub fn watched(&mut self, told: Result<String, String>) {
        self.go_on(|state| match state {
            State::Watch(..) => State::Done(Served::Response(api::watched(told))),
            other => other,
        });
    }

    /// An input that the state does not wait for leaves it as it is.
    fn go_on(&mut self, next: impl FnOnce(State) -> State) {
        self.state = next(core::mem::replace(&mut self.state, State::Ended));
    }

    fn shown(&self, served: Served) -> Served {
        match served {
            Served::Response(mut response) => {
                response.headers.extend_from_slice(&self.fields);
                Served::Response((self.words)(response))
            }
            pass @ Served::Pass(_) => pass,
        }
    }
}

impl From<Result<Self, Response>> for State {
    fn from(begun: Result<Self, Response>) -> Self {
        begun.unwrap_or_else(|response| Self::Done(Served::Response(response)))
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
