//! Decisions in a store of this process, by the state machine that answers HTTP.

use std::sync::Arc;

use tidegate_gate::Policies;
use tidegate_http::{
    Access, Check, Exchange, Head, NoKeys, Outcome, RevisionTag, Served, Server, Step,
    without_revisions,
};

use super::message::{Reply, Sent};
use crate::clock;
use crate::random::random;
use crate::store::Store;

#[derive(Debug)]
pub(super) struct Local {
    store: Arc<Store>,
    policies: Arc<Policies>,
}

impl Local {
    pub(super) const fn new(store: Arc<Store>, policies: Arc<Policies>) -> Self {
        Self { store, policies }
    }

    pub(super) async fn send(&self, sent: &Sent<'_>) -> Reply {
        let mut exchange = self.exchange(sent);
        loop {
            match exchange.step() {
                Step::Body | Step::Copy => {
                    exchange.body(Ok(sent.body.clone().into_bytes()), &mut random);
                }
                Step::Decide(checks) => {
                    let outcomes = self.outcomes(checks).await;
                    exchange.decided(outcomes);
                }
                Step::Verify(_) => exchange.verified(Err(NoKeys), &mut random),
                Step::Change(_) => exchange.changed(without_revisions()),
                Step::Probe => exchange.probed(Ok(Vec::new())), // the client asks for no probe
                Step::Watch { .. } => exchange.watched(Ok(String::new())), // nor about the server
                Step::Done(Served::Response(response)) => {
                    return Reply { status: response.status, body: response.body.into_bytes() };
                }
                Step::Done(Served::Pass(_)) => return Reply { status: 500, body: Vec::new() },
            }
        }
    }

    fn exchange(&self, sent: &Sent<'_>) -> Exchange {
        let revision = &RevisionTag::default();
        let (metrics, access) = (&String::new, &Access::OPEN);
        let server = Server { policies: &self.policies, access, revision, metrics };
        let (path, query) = sent.target.split_once('?').unwrap_or((&sent.target, ""));
        let idempotency_key = |name: &str| match name {
            "idempotency-key" => sent.idempotency_key.map(str::to_owned),
            _ => None,
        };
        let head = Head {
            method: sent.method,
            path,
            query,
            header: &idempotency_key,
            now: clock::now(),
            ..Head::default()
        };
        Exchange::of_api(&server, &head, &mut random)
    }

    async fn outcomes(&self, checks: &[Check]) -> Vec<Outcome> {
        let asked = checks.iter().map(|check| (check.resolved(), check.operation()));
        let answers = self.store.operate_all(clock::now(), asked).await.into_iter();
        let outcome = |answer| match answer {
            Ok(verdict) => Outcome::Decided(verdict),
            Err(error) => Outcome::Unavailable(crate::StoreError::summary(&error).to_owned()),
        };
        answers.map(outcome).collect()
    }
}
