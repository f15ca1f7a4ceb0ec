//! A Worker, asked over HTTP: checks in batches, other operations one by one, several partitions at a time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_gate::{Decision, Policies, Quoted, Resolved, Timestamp, Verdict};
use tidegate_http::MAX_BODY_BYTES;
use ureq::Agent;

use super::decision::DecisionForm;
use super::trace::Event;
use crate::local::Workerd;

/// The largest number of checks in one request.
const BATCH: usize = 500;

/// How many requests are under way at a time.
const LANES: usize = 16;

/// A Worker that has the policies of the replay and decides at the times given to it.
#[derive(Debug)]
pub struct Worker {
    agent: Agent,
    url: String,
    token: Option<String>,
    /// The prefix of every key that is counted, because the Worker may have seen the keys of the trace before.
    prefix: String,
    _server: Option<Workerd>,
}

#[derive(Deserialize)]
struct Answers {
    decisions: Vec<AnswerForm>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum AnswerForm {
    Decided {
        at_us: u64,
        would_allow: Option<bool>,
        #[serde(flatten)]
        decision: DecisionForm,
    },
    Unavailable {
        degraded: String,
    },
}

/// What the Worker answered.
struct Answer {
    at: Timestamp,
    /// The decision that counts for a replay if the policy is in shadow, where every request passes.
    would_allow: Option<bool>,
    decision: DecisionForm,
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
            Some(_) => String::new(), // the Worker was started for this replay
            None => format!("replay-{}-{}:", std::process::id(), crate::clock::now().0),
        };
        let worker = Self { agent, url, token, prefix, _server: server };
        worker.check_that_time_is_honoured(policies)?;
        Ok(worker)
    }

    /// Checks that the Worker decides at the times given to it. At its own time it would answer a replay
    /// differently.
    fn check_that_time_is_honoured(&self, policies: &Policies) -> Result<()> {
        let policy = policies.all().first().context("no policy")?.name();
        let look = json!({ "policy": policy, "key": "whose clock?", "cost": 0, "now_us": 1 });
        let Answer { at, .. } = self.call("POST", "/v1/check", &look)?;
        if at != Timestamp(1) {
            bail!(
                "{}: the Worker ignores the times given to it: a replay needs a Worker with \
                 TIDEGATE_TRUST_CALLER_TIME=true and the same policies",
                self.url
            );
        }
        Ok(())
    }

    /// Operations on one partition are done in their order. No partition knows of another.
    pub(super) fn decide(&self, events: &[Event]) -> Result<Vec<DecisionForm>> {
        let mut lanes = vec![Vec::new(); LANES];
        for (place, event) in events.iter().enumerate() {
            lanes[lane(event)].push((place, event));
        }
        let decide = |lane: &[(usize, &Event)]| {
            let events: Vec<&Event> = lane.iter().map(|(_, event)| *event).collect();
            self.decide_in_order(&events)
        };
        let decided: Vec<Result<Vec<DecisionForm>>> = thread::scope(|scope| {
            let threads: Vec<_> =
                lanes.iter().map(|lane| scope.spawn(move || decide(lane))).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|_| Err(anyhow!("a thread of the replay panicked")))
            };
            threads.into_iter().map(join).collect()
        });
        let mut all = Vec::with_capacity(events.len());
        for (lane, decided) in lanes.iter().zip(decided) {
            all.extend(lane.iter().map(|(place, _)| *place).zip(decided?));
        }
        all.sort_unstable_by_key(|(place, _)| *place);
        Ok(all.into_iter().map(|(_, decision)| decision).collect())
    }

    fn decide_in_order(&self, events: &[&Event]) -> Result<Vec<DecisionForm>> {
        let mut decisions = Vec::with_capacity(events.len());
        let is_check = |event: &Event| event.ask.get("check").is_some();
        for run in events.chunk_by(|one, next| is_check(one) && is_check(next)) {
            match run {
                [event] if !is_check(event) => decisions.push(self.ask(event)?),
                checks => {
                    for batch in checks.chunks(BATCH) {
                        self.check(batch, &mut decisions)?;
                    }
                }
            }
        }
        Ok(decisions)
    }

    /// Sends checks in one request, or in two halves if the request would be too large.
    fn check(&self, events: &[&Event], decisions: &mut Vec<DecisionForm>) -> Result<()> {
        let checks = events.iter().map(|event| self.body(event, event.ask.get("check")));
        let checks: Vec<Value> = checks.collect::<Result<_>>()?;
        let body = json!({ "checks": checks }).to_string();
        if body.len() > MAX_BODY_BYTES && events.len() > 1 {
            let (first, second) = events.split_at(events.len() / 2);
            self.check(first, decisions)?;
            return self.check(second, decisions);
        }
        let answers: Answers = serde_json::from_str(&self.send("POST", "/v1/check", &body)?)
            .with_context(|| self.url.clone())?;
        if answers.decisions.len() != events.len() {
            bail!("{}: {} answers to {} checks", self.url, answers.decisions.len(), events.len());
        }
        for (event, answer) in events.iter().zip(answers.decisions) {
            decisions.push(said(event, self.told(answer)?));
        }
        Ok(())
    }

    /// Sends one operation other than a check.
    fn ask(&self, event: &Event) -> Result<DecisionForm> {
        let operation = event.ask.as_object().and_then(|fields| fields.iter().next());
        let (name, fields) = operation.context("no operation")?;
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let policy = encoded(event.asked.resolved().policy().name());
        let key = encoded(&self.key(event)?);
        let at = event.at.0;
        let mut body = self.body(event, Some(fields))?;
        let lease = encoded(fields["lease"].as_str().unwrap_or_default());
        if let Some(fields) = body.as_object_mut()
            && let Some(in_path) = match name.as_str() {
                "renew" | "release" => Some("lease"),
                "commit" => Some("id"),
                _ => None,
            }
        {
            fields.remove(in_path);
        }
        let told = match name.as_str() {
            "renew" => self.call("PUT", &format!("/v1/leases/{lease}"), &body)?,
            "release" => {
                let target = format!("/v1/leases/{lease}?policy={policy}&key={key}&now_us={at}");
                self.call("DELETE", &target, &Value::Null)?
            }
            "reserve" => self.call("POST", "/v1/reservations", &body)?,
            "commit" => {
                let id = encoded(fields["id"].as_str().unwrap_or_default());
                self.call("POST", &format!("/v1/reservations/{id}/commit"), &body)?
            }
            "reset" => {
                self.call("DELETE", &format!("/v1/keys/{policy}/{key}?now_us={at}"), &Value::Null)?
            }
            "block" => {
                let body = json!({ "for": fields["for"], "now_us": at });
                self.call("POST", &format!("/v1/keys/{policy}/{key}/block"), &body)?
            }
            "peek" => {
                let cost = fields["cost"].as_u64().unwrap_or(0);
                let target = format!("/v1/keys/{policy}/{key}?now_us={at}&cost={cost}");
                self.call("GET", &target, &Value::Null)?
            }
            call => self.call("POST", &format!("/v1/{call}"), &body)?,
        };
        Ok(said(event, told))
    }

    /// The key to send. The prefix must not hide it from an override, and an address would no longer be one.
    fn key(&self, event: &Event) -> Result<String> {
        let resolved = event.asked.resolved();
        if self.prefix.is_empty() || resolved.limits().is_none() {
            return Ok(event.key.clone());
        }
        let key = self.prefix.clone() + resolved.key();
        let sent = Resolved::new(resolved.policy(), &key)?;
        anyhow::ensure!(
            sent.rule_number() == resolved.rule_number(),
            "--worker: expected keys without an override, found {}; a replay gives each key a prefix in a Worker \
             that it did not start: leave --worker out",
            Quoted(&event.key)
        );
        Ok(key)
    }

    /// The fields of an operation, with its policy, key and time.
    fn body(&self, event: &Event, fields: Option<&Value>) -> Result<Value> {
        let mut body = fields.cloned().unwrap_or_else(|| json!({}));
        body["policy"] = event.asked.resolved().policy().name().into();
        body["key"] = self.key(event)?.into();
        body["now_us"] = event.at.0.into();
        if let Some(draw) = event.asked.draw() {
            body["draw"] = draw.0.into(); // otherwise the Worker would draw its own number
        }
        if event.asked.costs_too_much() {
            body["cost"] = 0.into(); // the Worker rejects a cost that can never be granted
            body["signal_ppm"] = Value::Null; // such a request counts nothing, and neither does its signal
        }
        Ok(body)
    }

    fn call(&self, method: &str, target: &str, body: &Value) -> Result<Answer> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let text = self.send(method, target, &body)?;
        self.told(serde_json::from_str(&text).with_context(|| format!("{}: {text}", self.url))?)
    }

    fn told(&self, answer: AnswerForm) -> Result<Answer> {
        match answer {
            AnswerForm::Decided { at_us, would_allow, decision } => {
                Ok(Answer { at: Timestamp(at_us), would_allow, decision })
            }
            AnswerForm::Unavailable { degraded } => bail!("{}: {degraded}", self.url),
        }
    }

    fn send(&self, method: &str, target: &str, body: &str) -> Result<String> {
        let mut request =
            ureq::http::Request::builder().method(method).uri(format!("{}{target}", self.url));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request =
            request.body(body.replace('\u{fffd}', "\\ufffd")).with_context(|| self.url.clone())?;
        let mut response = self.agent.run(request).with_context(|| self.url.clone())?;
        let status = response.status();
        let text = response.body_mut().read_to_string().with_context(|| self.url.clone())?;
        if status != 200 {
            bail!("{}: status {status}: {text}", self.url);
        }
        Ok(text)
    }
}

/// The decision on an event, given the Worker's answer.
fn said(event: &Event, Answer { at, would_allow, decision }: Answer) -> DecisionForm {
    let is_shadow = event.asked.resolved().policy().is_shadow();
    let allowed = would_allow.filter(|_| is_shadow).unwrap_or(decision.allowed);
    let decision = DecisionForm { allowed, ..decision };
    event.asked.said(Verdict::listed(at, Decision::from(decision))).decision.into()
}

/// The lane of an event's partition.
fn lane(event: &Event) -> usize {
    let resolved = event.asked.resolved();
    let mut hasher = DefaultHasher::new();
    (resolved.policy().name(), resolved.partition()).hash(&mut hasher);
    usize::try_from(hasher.finish()).unwrap_or_default() % LANES
}
