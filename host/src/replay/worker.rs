//! A Worker, over HTTP, in batches.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tidegate_gate::http::{DecisionForm, MAX_BODY_BYTES};
use tidegate_gate::{Policies, Timestamp};
use ureq::Agent;

use super::trace::Event;
use crate::local::Workerd;

/// Checks in one request.
const BATCH: usize = 500;

/// A Worker with these policies, that honours the times given to it.
#[derive(Debug)]
pub struct Worker {
    agent: Agent,
    url: String,
    token: Option<String>,
    /// Stands before every key: a Worker may have seen them before.
    prefix: String,
    _server: Option<Workerd>,
}

#[derive(Serialize)]
struct Batch<'a> {
    checks: Vec<Check<'a>>,
}

#[derive(Serialize)]
struct Check<'a> {
    policy: &'a str,
    key: String,
    cost: u64,
    now_us: u64,
}

#[derive(Deserialize)]
struct Answers {
    decisions: Vec<Answer>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Decided {
        at_us: u64,
        /// In shadow, where all pass: what a replay is about.
        would_allow: Option<bool>,
        #[serde(flatten)]
        decision: DecisionForm,
    },
    Unavailable {
        degraded: String,
    },
}

impl Worker {
    pub(super) fn at(
        policies: &Policies,
        url: String,
        token: Option<String>,
        server: Option<Workerd>,
    ) -> Result<Self> {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .build()
            .into();
        let prefix = match server {
            Some(_) => String::new(), // it was started for this replay alone
            None => format!("replay-{}-{}:", std::process::id(), crate::clock::now().0),
        };
        let mut worker = Self { agent, url, token, prefix, _server: server };
        worker.check_that_time_is_honoured(policies)?;
        Ok(worker)
    }

    /// A Worker that goes by its own clock would answer a replay with something else altogether.
    fn check_that_time_is_honoured(&mut self, policies: &Policies) -> Result<()> {
        let key = "does this Worker go by the times given to it?".into();
        let look = Event { policy: 0, key, at: Timestamp(1), cost: 0 };
        let mut answers = Vec::new();
        self.send(policies, &[look], &mut answers)?;
        if answers.iter().any(|(at_us, _)| *at_us != 1) {
            bail!(
                "{}: the Worker does not go by the times given to it: a replay needs one with \
                 TIDEGATE_TRUST_CALLER_TIME=true and the same policies",
                self.url
            );
        }
        Ok(())
    }

    pub(super) fn decide(
        &mut self,
        policies: &Policies,
        events: &[Event],
    ) -> Result<Vec<DecisionForm>> {
        let mut decisions = Vec::with_capacity(events.len());
        for batch in events.chunks(BATCH) {
            self.send(policies, batch, &mut decisions)?;
        }
        Ok(decisions.into_iter().map(|(_, decision)| decision).collect())
    }

    /// In halves where one request would be too large.
    fn send(
        &self,
        policies: &Policies,
        events: &[Event],
        decisions: &mut Vec<(u64, DecisionForm)>,
    ) -> Result<()> {
        let mut checks = Vec::with_capacity(events.len());
        for event in events {
            let policy = policies.all().get(event.policy).context("no such policy")?.name();
            let key = self.prefix.clone() + &event.key;
            checks.push(Check { policy, key, cost: event.cost, now_us: event.at.0 });
        }
        let body = serde_json::to_string(&Batch { checks })?;
        if body.len() > MAX_BODY_BYTES && events.len() > 1 {
            let (first, second) = events.split_at(events.len() / 2);
            self.send(policies, first, decisions)?;
            return self.send(policies, second, decisions);
        }
        let mut request = self.agent.post(format!("{}/v1/check", self.url));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut response = request.send(body).with_context(|| self.url.clone())?;
        let status = response.status();
        let text = response.body_mut().read_to_string().with_context(|| self.url.clone())?;
        if status != 200 {
            bail!("{}: status {status}: {text}", self.url);
        }
        let answers: Answers = serde_json::from_str(&text).with_context(|| self.url.clone())?;
        if answers.decisions.len() != events.len() {
            bail!("{}: {} answers to {} checks", self.url, answers.decisions.len(), events.len());
        }
        for answer in answers.decisions {
            match answer {
                Answer::Decided { at_us, would_allow, decision } => {
                    let allowed = would_allow.unwrap_or(decision.allowed);
                    decisions.push((at_us, DecisionForm { allowed, ..decision }));
                }
                Answer::Unavailable { degraded } => bail!("{}: {degraded}", self.url),
            }
        }
        Ok(())
    }
}
