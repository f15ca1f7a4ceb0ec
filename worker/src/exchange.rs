//! One HTTP request: the machine of `tidegate_http`, fed with what JavaScript brings.

use std::rc::Rc;

use tidegate_gate::Timestamp;
use tidegate_http::{Access, BodyError, Exchange, Head, Metrics, Server};
use tidegate_tier::cache::Counts;

use crate::isolate::Request;
use crate::policies::Revision;

/// How the URL of a call by RPC begins. The call is for the API, which routes may hide from requests over HTTP.
const RPC: &str = "rpc://";

/// The policies, rights and counters by which requests are answered.
pub(crate) struct InForce {
    pub(crate) revision: Rc<Revision>,
    pub(crate) access: Access,
    pub(crate) metrics: Metrics,
    pub(crate) answers: Rc<Counts>,
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
    pub(crate) fn new(revision: Rc<Revision>, access: Access, tells: Tells) -> Rc<Self> {
        let metrics = Metrics::new(&revision.policies, None);
        let shares_calls = shares_calls(&revision);
        Rc::new(Self { revision, access, metrics, answers: Rc::default(), tells, shares_calls })
    }

    /// The same with another revision. What was counted goes on.
    pub(crate) fn with(&self, revision: Rc<Revision>) -> Rc<Self> {
        let access = self.access.under(&revision.policies);
        let metrics = Metrics::new(&revision.policies, Some(&self.metrics));
        let (answers, tells) = (Rc::clone(&self.answers), self.tells);
        // requests of this revision may still be under way
        let shares_calls = self.shares_calls || shares_calls(&revision);
        Rc::new(Self { revision, access, metrics, answers, tells, shares_calls })
    }
}

fn shares_calls(revision: &Revision) -> bool {
    revision.policies.all().iter().any(|policy| policy.shares_calls())
}

/// A request to this Worker.
pub(crate) struct OwnRequest {
    pub(crate) request: Request,
    pub(crate) country: Option<String>,
    pub(crate) now: Timestamp,
    /// `None` if it was not read.
    pub(crate) body: Option<Result<Vec<u8>, BodyError>>,
}

impl InForce {
    /// Begins with a request.
    pub(crate) fn begin(&self, request: OwnRequest) -> Exchange {
        let OwnRequest { request, country, now, body } = request;
        let Revision { policies, tag } = &*self.revision;
        let metrics = &|| self.metrics.text(tag.version, &self.answers.all());
        let server = Server { policies, access: &self.access, revision: tag, metrics };
        let (method, url) = (request.method(), request.url());
        let (authority, path, query) = parts(&url);
        let head = Head {
            method: &method,
            authority,
            path,
            query,
            header: &|name| request.header(name),
            client_ip: &|| request.header("cf-connecting-ip"), // Cloudflare overwrites whatever the client sent
            country: country.as_deref(),
            now,
        };
        let mut exchange = match url.starts_with(RPC) {
            true => Exchange::of_api(&server, &head, &mut random),
            false => Exchange::new(&server, &head, &mut random),
        };
        if let Some(body) = body {
            exchange.body(body, &mut random);
        }
        exchange
    }
}

/// The number may become the name of a lease, so it must not be guessable.
pub(crate) fn random() -> Option<u64> {
    getrandom::u64().ok()
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
