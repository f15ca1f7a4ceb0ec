//! One HTTP request, from its head to its response, without awaiting anything: JavaScript brings the body, the node
//! brings the verdicts.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tidegate_gate::gateway::{self, Served};
use tidegate_gate::http::{Access, BodyError, Check, Head, Outcome, Server};
use tidegate_gate::{Policies, Timestamp, Verify};

/// A request that is being answered by [`gateway::serve`].
pub(crate) struct Exchange {
    responding: Pin<Box<dyn Future<Output = Served>>>,
    mail: Rc<RefCell<Mail>>,
}

/// What the request waits for, and what has come.
#[derive(Default)]
struct Mail {
    wants_body: bool,
    body: Option<Result<Vec<u8>, BodyError>>,
    verify: Option<Verify>,
    is_verified: Option<bool>,
    checks: Vec<Check>,
    outcomes: Option<Vec<Outcome>>,
}

/// What must happen next.
pub(crate) enum Step {
    /// Read the body.
    Body,
    /// Verify this token.
    Verify(Verify),
    /// Decide these checks.
    Decide(Vec<Check>),
    /// Do this with the request.
    Serve(Served),
}

/// The head of a request. `header` returns the value of a header by its name.
pub(crate) struct OwnHead<H> {
    pub(crate) method: String,
    pub(crate) url: String,
    pub(crate) country: Option<String>,
    pub(crate) now: Timestamp,
    pub(crate) header: H,
}

impl Exchange {
    pub(crate) fn new(
        policies: &'static Policies,
        access: &'static Access,
        OwnHead { method, url, country, now, header }: OwnHead<
            impl Fn(&str) -> Option<String> + 'static,
        >,
    ) -> Self {
        let mail = Rc::<RefCell<Mail>>::default();
        let mut server = Mailbox(Rc::clone(&mail));
        let responding = Box::pin(async move {
            let (authority, path, query) = parts(&url);
            let client_ip = header("cf-connecting-ip"); // Cloudflare overwrites whatever the client sent
            let (client_ip, country) = (client_ip.as_deref(), country.as_deref());
            let head =
                Head { method: &method, path, query, header: &header, client_ip, country, now };
            gateway::serve(policies, access, authority, &head, &mut server).await
        });
        Self { responding, mail }
    }

    pub(crate) fn body(&mut self, body: Result<Vec<u8>, BodyError>) {
        self.mail.borrow_mut().body = Some(body);
    }

    pub(crate) fn verified(&mut self, is_verified: bool) {
        self.mail.borrow_mut().is_verified = Some(is_verified);
    }

    pub(crate) fn decided(&mut self, outcomes: Vec<Outcome>) {
        self.mail.borrow_mut().outcomes = Some(outcomes);
    }

    pub(crate) fn step(&mut self) -> Step {
        let context = &mut Context::from_waker(Waker::noop());
        if let Poll::Ready(served) = self.responding.as_mut().poll(context) {
            return Step::Serve(served);
        }
        let mut mail = self.mail.borrow_mut();
        match (mail.wants_body, mail.verify.take()) {
            (true, _) => Step::Body,
            (false, Some(verify)) => Step::Verify(verify),
            (false, None) => Step::Decide(std::mem::take(&mut mail.checks)),
        }
    }
}

struct Mailbox(Rc<RefCell<Mail>>);

impl Server for Mailbox {
    async fn body(&mut self) -> Result<Vec<u8>, BodyError> {
        self.0.borrow_mut().wants_body = true;
        let arrived =
            poll_fn(|_| self.0.borrow_mut().body.take().map_or(Poll::Pending, Poll::Ready));
        let body = arrived.await;
        self.0.borrow_mut().wants_body = false;
        body
    }

    async fn decide(&mut self, checks: &[Check]) -> Vec<Outcome> {
        self.0.borrow_mut().checks = checks.to_vec();
        poll_fn(|_| self.0.borrow_mut().outcomes.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    async fn verify(&mut self, token: &Verify) -> bool {
        self.0.borrow_mut().verify = Some(token.clone());
        poll_fn(|_| self.0.borrow_mut().is_verified.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    /// The number may become the name of a lease, so it must not be guessable.
    fn random(&mut self) -> Option<u64> {
        getrandom::u64().ok()
    }
}

/// The authority, path and query of a URL. The runtime has already parsed and normalized it, so no second parser is
/// needed; the Unicode tables of one would be a third of the bundle.
fn parts(url: &str) -> (&str, &str, &str) {
    let url = url.split_once('#').map_or(url, |(url, _fragment)| url);
    let (url, query) = url.split_once('?').unwrap_or((url, ""));
    let rest = url.split_once("://").map_or(url, |(_scheme, rest)| rest);
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    (authority, if path.is_empty() { "/" } else { path }, query)
}
