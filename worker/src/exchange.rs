//! One HTTP request: the machine of `tidegate_http`, fed with what JavaScript brings, and what JavaScript must do next.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_gate::Timestamp;
use tidegate_http::{Access, BodyError, Exchange, Head, Limited, Metrics, Server};
use tidegate_tier::cache::Counts;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::policies::Revision;

/// How the URL of a call by RPC begins. The call is for the API, which routes may hide from requests over HTTP.
pub(crate) const RPC: &str = "rpc://";

/// The policies, rights and counters by which requests are answered.
pub(crate) struct InForce {
    pub(crate) revision: Rc<Revision>,
    pub(crate) access: Access,
    pub(crate) metrics: Metrics,
    pub(crate) answers: Rc<Counts>,
    /// What this isolate has refused, and has not handed over.
    pub(crate) limited: Rc<RefCell<Limited>>,
    pub(crate) telemetry: Telemetry,
}

/// What the Worker emits about its decisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Telemetry {
    /// Whether there is a binding for events.
    pub(crate) events: bool,
    /// Whether answers have `Server-Timing`.
    pub(crate) timing: bool,
}

impl InForce {
    pub(crate) fn new(revision: Rc<Revision>, access: Access, telemetry: Telemetry) -> Rc<Self> {
        let metrics = Metrics::new(&revision.policies, None);
        let (answers, limited) = (Rc::default(), Rc::default());
        Rc::new(Self { revision, access, metrics, answers, limited, telemetry })
    }

    /// The same with another revision. What was counted goes on.
    pub(crate) fn with(&self, revision: Rc<Revision>) -> Rc<Self> {
        let access = self.access.under(&revision.policies);
        let metrics = Metrics::new(&revision.policies, Some(&self.metrics));
        self.limited.borrow_mut().keep(&revision.policies);
        let (answers, limited) = (Rc::clone(&self.answers), Rc::clone(&self.limited));
        Rc::new(Self { revision, access, metrics, answers, limited, telemetry: self.telemetry })
    }

    /// Says what each request needs.
    pub(crate) fn say(&self, needs: &Needs) {
        let policies = &self.revision.policies;
        needs.set_refresh(self.access.lets_policies_change());
        needs.set_country(policies.reads_country());
        needs.set_body(policies.gateway().routes().is_empty());
    }
}

#[wasm_bindgen]
extern "C" {
    /// What each request needs, in an object of JavaScript, because each call of WebAssembly takes time.
    pub type Needs;

    /// Whether some caller may change the policies, so that the revision in force must be asked for.
    #[wasm_bindgen(method, setter)]
    fn set_refresh(this: &Needs, needs: bool);

    /// Whether the client's country is needed, which is dear to find out.
    #[wasm_bindgen(method, setter)]
    fn set_country(this: &Needs, needs: bool);

    /// Whether each body that comes is for a call, so that a request needs to begin only once.
    #[wasm_bindgen(method, setter)]
    fn set_body(this: &Needs, needs: bool);
}

/// What JavaScript must do next with an exchange.
#[wasm_bindgen]
#[derive(Clone, Copy, Debug)]
pub enum NextStep {
    /// Finish it.
    Finish = 0,
    /// Send the questions that are due, and finish it meanwhile: the node itself asks them.
    Send = 1,
    /// Send the questions that are due, and finish it when the replies have come.
    Wait = 2,
    /// Read the body, and begin again with it.
    Body = 3,
    /// Let WebAssembly await what it waits for, by `proceed`.
    Await = 4,
}

impl NextStep {
    /// How many bits a step takes.
    pub(crate) const BITS: u32 = 3;

    /// The number of the exchange, and this behind it, in 32 bits.
    pub(crate) const fn of(self, exchange: u32) -> u32 {
        let next = match self {
            Self::Finish => 0,
            Self::Send => 1,
            Self::Wait => 2,
            Self::Body => 3,
            Self::Await => 4,
        };
        exchange << Self::BITS | next
    }
}

#[wasm_bindgen]
extern "C" {
    /// A request. What is read of it costs time, so only what is needed is read.
    pub type Request;

    #[wasm_bindgen(method, getter)]
    pub(crate) fn method(this: &Request) -> String;

    #[wasm_bindgen(method, getter)]
    pub(crate) fn url(this: &Request) -> String;

    #[wasm_bindgen(method, getter)]
    fn headers(this: &Request) -> Headers;

    type Headers;

    #[wasm_bindgen(method, catch)]
    fn get(this: &Headers, name: &str) -> Result<Option<String>, JsValue>;
}

impl Request {
    /// A header; `None` if it is missing or unreadable, so that a request which depends on it is refused.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.headers().get(name).ok().flatten()
    }
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
        let Revision { policies, tag, .. } = &*self.revision;
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
            // Cloudflare overwrites whatever the client sent
            client_ip: &|| request.header("cf-connecting-ip")?.parse().ok(),
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
