//! The functions that JavaScript calls in an isolate about the policies in force, and about metrics and events.

use std::rc::Rc;

use tidegate_http::{self as http, BodyError, Outcome, RevisionTag, Served, Step};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::exchange::{InForce, OwnRequest};
use crate::isolate::{Isolate, Request, served_text};
use crate::node::{End, Node, with};
use crate::policies::{self, Revision};

#[wasm_bindgen]
impl Isolate {
    /// The call that the object of the revisions answers. The exchange then ends.
    #[must_use]
    pub fn policy_call(exchange: u32, now_ms: f64) -> Option<String> {
        let running = with(now_ms, |node, _, _| node.exchanges.remove(&exchange));
        match running.and_then(|running| running.end) {
            Some(End::Asks(call)) => Some(call.write()),
            _ => None,
        }
    }

    /// Whether some caller may change the policies.
    #[must_use]
    pub fn policies_change(now_ms: f64) -> bool {
        with(now_ms, |node, _, _| node.in_force.access.lets_policies_change())
    }

    /// The version and the hash of the policies in force, each on a line.
    #[must_use]
    pub fn tag(now_ms: f64) -> String {
        with(now_ms, |node, _, _| {
            let RevisionTag { version, hash } = &node.in_force.revision.tag;
            format!("{version}\n{hash}")
        })
    }

    /// Puts the revision in force that `Keeper.in_force` has told. Returns what is wrong with it; the earlier one then
    /// stays in force.
    #[must_use]
    pub fn put_in_force(told: &str, now_ms: f64) -> Option<String> {
        with(now_ms, |node, _, _| {
            let wrong = node.put_in_force(told).err();
            if wrong.is_some() {
                node.in_force.metrics.count_ignored();
            }
            wrong
        })
    }

    /// Whether an object in this isolate can answer questions by the revision with this hash.
    #[must_use]
    pub fn knows(hash: &str) -> bool {
        policies::revision(Some(hash)).is_ok_and(|revision| revision.is_some())
    }

    /// Reads the revision with this hash, for the objects in this isolate. Returns what is wrong with it.
    #[must_use]
    pub fn learn(hash: String, file: &str) -> Option<String> {
        policies::learn(RevisionTag { version: 0, hash }, file).err()
    }

    /// The response to a request that was under way when WebAssembly ended.
    #[must_use]
    pub fn unavailable(
        request: Request,
        country: Option<String>,
        body: Option<String>,
        now_ms: f64,
    ) -> String {
        let (in_force, now) = with(now_ms, |node, now, _| (Rc::clone(&node.in_force), now));
        let body = Some(body.map(String::into_bytes).ok_or(BodyError::Incomplete));
        let request = OwnRequest { request, country, now, body };
        served_text(unavailable(&in_force, request))
    }

    /// The checks of an exchange, for events: in lines the policy, the outcome, how many, and their cost.
    #[must_use]
    pub fn events(exchange: u32, now_ms: f64) -> String {
        with(now_ms, |node, _, _| {
            node.exchanges.get(&exchange).map_or_else(String::new, |own| own.events())
        })
    }
}

impl Node {
    fn put_in_force(&mut self, told: &str) -> Result<(), String> {
        let mut lines = told.splitn(3, '\n');
        let version = lines.next().and_then(|version| version.parse().ok());
        let (Some(version), Some(hash)) = (version, lines.next()) else {
            return Err("expected a version and a hash".to_owned());
        };
        let tag = RevisionTag { version, hash: hash.to_owned() };
        let revision = match lines.next() {
            Some(file) => policies::learn(tag, file)?,
            None => {
                let policies = policies::deployed()?.policies.clone();
                Rc::new(Revision { policies, tag })
            }
        };
        self.in_force = self.in_force.with(revision);
        Ok(())
    }
}

/// The whole response to a request that was under way when WebAssembly ended: what its checks asked is not known.
fn unavailable(in_force: &InForce, request: OwnRequest) -> Served {
    let mut exchange = in_force.begin(request);
    loop {
        match exchange.step() {
            Step::Decide(checks) => {
                let reason = "the Worker began anew, so the outcome is unknown";
                let outcome = |check| {
                    let outcome = Outcome::Unavailable(reason.to_owned());
                    in_force.metrics.count(check, &outcome);
                    outcome
                };
                let outcomes = checks.iter().map(outcome).collect();
                exchange.decided(outcomes);
            }
            Step::Change(_) | Step::Body | Step::Verify(_) => {
                let response = http::internal_error("the Worker began anew".to_owned());
                return Served::Response(response);
            }
            Step::Done(served) => return served,
        }
    }
}
