//! One HTTP request, from its head to its response, without awaiting anything: JavaScript brings the body, the node
//! brings the verdicts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tidegate_gate::gateway::{self, Served};
use tidegate_gate::http::{
    self, Access, BodyError, Check, Counted, Head, LocalAnswers, Metrics, NoKeys, Outcome,
    PolicyCall, Response, Server, Stamp,
};
use tidegate_gate::{Micros, Timestamp, Verify};

use crate::isolate::Request;
use crate::policies::Edition;

/// How the URL of a call by RPC begins. The call is for the API, which routes may hide from requests over HTTP.
const RPC: &str = "rpc://";

/// The policies, rights and counters by which requests are answered.
pub(crate) struct InForce {
    pub(crate) edition: Rc<Edition>,
    pub(crate) access: Access,
    pub(crate) metrics: Metrics,
    pub(crate) answers: Rc<LocalAnswers>,
    pub(crate) tells: Tells,
    /// Whether some policy lets checks share calls.
    pub(crate) shares_calls: bool,
}

/// What the Worker tells about its decisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tells {
    /// Whether there is a binding for events.
    pub(crate) events: bool,
    /// Whether answers have `Server-Timing`.
    pub(crate) timing: bool,
}

impl InForce {
    pub(crate) fn new(edition: Rc<Edition>, access: Access, tells: Tells) -> Rc<Self> {
        let metrics = Metrics::new(&edition.policies, None);
        let shares_calls = shares_calls(&edition);
        Rc::new(Self { edition, access, metrics, answers: Rc::default(), tells, shares_calls })
    }

    /// The same with another edition. What was counted goes on.
    pub(crate) fn with(&self, edition: Rc<Edition>) -> Rc<Self> {
        let access = self.access.under(&edition.policies);
        let metrics = Metrics::new(&edition.policies, Some(&self.metrics));
        let (answers, tells) = (Rc::clone(&self.answers), self.tells);
        // requests of this edition may still be under way
        let shares_calls = self.shares_calls || shares_calls(&edition);
        Rc::new(Self { edition, access, metrics, answers, tells, shares_calls })
    }
}

fn shares_calls(edition: &Edition) -> bool {
    edition.policies.all().iter().any(|policy| policy.shares_calls())
}

/// A request that is being answered by [`gateway::serve`].
pub(crate) struct Exchange {
    responding: Pin<Box<dyn Future<Output = Served>>>,
    mail: Rc<RefCell<Mail>>,
}

/// The things that the request waits for, and those that have come.
#[derive(Default)]
struct Mail {
    wants_body: bool,
    body: Option<Result<Vec<u8>, BodyError>>,
    verify: Option<Verify>,
    is_verified: Option<Result<bool, NoKeys>>,
    checks: Vec<Check>,
    outcomes: Option<Vec<Outcome>>,
    call: Option<PolicyCall>,
    /// How the checks were decided, for `Server-Timing`.
    timing: Option<String>,
    /// The checks that were counted: policy, outcome, how many, their cost.
    events: BTreeMap<(String, &'static str), (u32, u64)>,
}

/// The next step of a request.
pub(crate) enum Step {
    /// Read the body.
    Body,
    /// Verify this token.
    Verify(Verify),
    /// Decide these checks.
    Decide(Vec<Check>),
    /// Let the object of the editions answer this call.
    Ask(PolicyCall),
    /// Do this with the request.
    Serve(Served),
}

/// A request to this Worker.
pub(crate) struct OwnRequest {
    pub(crate) request: Request,
    pub(crate) country: Option<String>,
    pub(crate) now: Timestamp,
    /// `None` if it was not read.
    pub(crate) body: Option<Result<Vec<u8>, BodyError>>,
}

impl Exchange {
    pub(crate) fn new(
        in_force: Rc<InForce>,
        OwnRequest { request, country, now, body }: OwnRequest,
    ) -> Self {
        let mail = Rc::new(RefCell::new(Mail { body, ..Mail::default() }));
        let mut server = Mailbox { mail: Rc::clone(&mail), in_force: Rc::clone(&in_force) };
        let responding = Box::pin(async move {
            let (method, url) = (request.method(), request.url());
            let header = |name: &str| request.header(name);
            let (authority, path, query) = parts(&url);
            let client_ip = || header("cf-connecting-ip"); // Cloudflare overwrites whatever the client sent
            let head = Head {
                method: &method,
                path,
                query,
                header: &header,
                client_ip: &client_ip,
                country: country.as_deref(),
                now,
            };
            let InForce { edition, access, .. } = &*in_force;
            if url.starts_with(RPC) {
                let response = http::respond(&edition.policies, access, &head, &mut server).await;
                return Served::Response(response);
            }
            gateway::serve(&edition.policies, access, authority, &head, &mut server).await
        });
        Self { responding, mail }
    }

    pub(crate) fn verified(&mut self, is_verified: Result<bool, NoKeys>) {
        self.mail.borrow_mut().is_verified = Some(is_verified);
    }

    pub(crate) fn decided(&mut self, outcomes: Vec<Outcome>) {
        self.mail.borrow_mut().outcomes = Some(outcomes);
    }

    /// Takes note of how the checks were decided. `asked` is the time that objects took.
    pub(crate) fn timed(&mut self, asked: Option<Micros>) {
        self.mail.borrow_mut().timing = Some(match asked {
            None => "tidegate;desc=\"isolate\"".to_owned(),
            Some(Micros(us)) => {
                format!("tidegate;dur={}.{:03};desc=\"object\"", us / 1_000, us % 1_000)
            }
        });
    }

    /// The checks that were counted, in lines: policy, outcome, how many, their cost.
    pub(crate) fn events(&self) -> String {
        let mail = self.mail.borrow();
        let events = mail.events.iter().map(|((policy, outcome), (checks, cost))| {
            format!("{policy}\n{outcome}\n{checks}\n{cost}\n")
        });
        events.collect()
    }

    pub(crate) fn step(&mut self) -> Step {
        let context = &mut Context::from_waker(Waker::noop());
        if let Poll::Ready(served) = self.responding.as_mut().poll(context) {
            return Step::Serve(served);
        }
        let mut mail = self.mail.borrow_mut();
        if let Some(call) = mail.call.take() {
            return Step::Ask(call);
        }
        match (mail.wants_body, mail.verify.take()) {
            (true, _) => Step::Body,
            (false, Some(verify)) => Step::Verify(verify),
            (false, None) => Step::Decide(std::mem::take(&mut mail.checks)),
        }
    }
}

struct Mailbox {
    mail: Rc<RefCell<Mail>>,
    in_force: Rc<InForce>,
}

impl Server for Mailbox {
    async fn body(&mut self) -> Result<Vec<u8>, BodyError> {
        self.mail.borrow_mut().wants_body = true;
        let arrived =
            poll_fn(|_| self.mail.borrow_mut().body.take().map_or(Poll::Pending, Poll::Ready));
        let body = arrived.await;
        self.mail.borrow_mut().wants_body = false;
        body
    }

    async fn decide(&mut self, checks: &[Check]) -> Vec<Outcome> {
        self.mail.borrow_mut().checks = checks.to_vec();
        poll_fn(|_| self.mail.borrow_mut().outcomes.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    async fn verify(&mut self, token: &Verify) -> Result<bool, NoKeys> {
        self.mail.borrow_mut().verify = Some(token.clone());
        poll_fn(|_| self.mail.borrow_mut().is_verified.take().map_or(Poll::Pending, Poll::Ready))
            .await
    }

    /// The number may become the name of a lease, so it must not be guessable.
    fn random(&mut self) -> Option<u64> {
        getrandom::u64().ok()
    }

    fn decided(&mut self, check: &Check, outcome: &Outcome) {
        self.in_force.metrics.count(check, outcome);
        if self.in_force.tells.events
            && let Some(Counted { policy, outcome, cost }) = Counted::of(check, outcome)
        {
            let mut mail = self.mail.borrow_mut();
            let (checks, sum) = mail.events.entry((policy.to_owned(), outcome)).or_default();
            *checks = checks.saturating_add(1);
            *sum = sum.saturating_add(cost);
        }
    }

    fn metrics(&self) -> String {
        let InForce { edition, metrics, answers, .. } = &*self.in_force;
        metrics.text(edition.stamp.version, answers)
    }

    fn timing(&self) -> Option<String> {
        self.mail.borrow_mut().timing.take()
    }

    fn stamp(&self) -> Stamp {
        self.in_force.edition.stamp.clone()
    }

    /// The answer comes from the object, and JavaScript sends it.
    async fn editions(&mut self, call: PolicyCall) -> Response {
        self.mail.borrow_mut().call = Some(call);
        std::future::pending().await
    }
}

/// The authority, path and query of a URL. The runtime has already parsed and normalized it, so no second parser is
/// needed; the Unicode tables of one would be a third of the bundle.
pub(crate) fn parts(url: &str) -> (&str, &str, &str) {
    let url = url.split_once('#').map_or(url, |(url, _fragment)| url);
    let (url, query) = url.split_once('?').unwrap_or((url, ""));
    let rest = url.split_once("://").map_or(url, |(_scheme, rest)| rest);
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    (authority, if path.is_empty() { "/" } else { path }, query)
}
