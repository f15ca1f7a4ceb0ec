//! The Durable Object: decides for the keys that belong to it.
//!
//! An [`Authority`] decides, of which the object is the only writer. What an answer depends on is stored before the
//! response leaves: the output gate holds the response until the write is durable. So an object that is
//! evicted or restarted never grants twice.

use std::sync::Arc;

use js_sys::Promise;
use tidegate_gate::{Micros, Policy, Timestamp};
use tidegate_tier::authority::{Authority, Options, Swap, SwapEntry, SwapOutcome};
use tidegate_tier::wire::{AuthorityOptions, Inbox, Place};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};
use worker::worker_sys::DurableObjectState;
use worker::{Env, State};

use crate::alarm::{Alarm, Expired};
use crate::call::{STORAGE_FAILED, questions};
use crate::clock::{Clock, number, timestamp};
use crate::fields::Fields;
use crate::log::log_error;
use crate::memory::Share;
use crate::policies::{self, Revision};
use crate::rows::Rows;
use crate::variables::{alarm_after_ms, trusts_caller_time};

/// How many bytes of states an object remembers at most. All objects of an isolate share one bound beside.
const REMEMBERED: usize = 8 << 20;

/// How many bytes of questions and replies an object remembers.
const REPLIES: usize = 1 << 20;

/// How much longer an object keeps states if callers give the times: a replay may take this long.
const TTL_MARGIN: Micros = Micros(86_400_000_000);

fn inbox() -> Inbox<()> {
    Inbox::new(AuthorityOptions {
        bytes: REPLIES,
        keeps_order: false, // each question is of another request
        ..AuthorityOptions::default()
    })
}

fn authority(trusts_caller_time: bool) -> Authority<Place, &'static str> {
    Authority::new(Options {
        remembered: REMEMBERED,
        // usually one clock decides and lets states expire
        ttl_margin: if trusts_caller_time { TTL_MARGIN } else { Micros::ZERO },
        // a given time may be ahead of the object's clock, so a refusal must be stored too
        is_only_writer: !trusts_caller_time,
        // without random numbers, keys that collide would only take time
        seed: getrandom::u64().unwrap_or_default(),
        ..Options::default()
    })
}

/// The name of the policy in the name of an object. A limiter of `tidegate/durable-objects` may put a prefix and a slash before it.
fn policy_of(object: &str) -> &str {
    let name = object.split([':', '#']).next().unwrap_or("");
    name.rsplit('/').next().unwrap_or("")
}

/// The functions that JavaScript calls in an object.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Owner {
    rows: Rows,
    authority: Authority<Place, &'static str>,
    inbox: Inbox<()>,
    clock: Clock,
    /// Whether operations are decided at the times that callers give. Only a test environment may do that.
    trusts_caller_time: bool,
    /// The name of the policy whose keys belong to the object.
    policy: String,
    /// The policy by which it decided last.
    decided_by: Option<Arc<Policy>>,
    share: Share,
    object: State,
    alarm: Alarm,
}

#[wasm_bindgen]
impl Owner {
    /// An object that has read nothing yet.
    ///
    /// # Errors
    /// Throws what the runtime throws if the object has no storage.
    #[wasm_bindgen(constructor)]
    pub fn new(object: DurableObjectState, env: &Env) -> Result<Self, JsValue> {
        let rows = Rows::new(&object)?;
        let object = State::from(object);
        let name = object.id().name().unwrap_or_default();
        let trusts_caller_time = trusts_caller_time(env);
        Ok(Self {
            rows,
            authority: authority(trusts_caller_time),
            inbox: inbox(),
            clock: Clock::default(),
            trusts_caller_time,
            policy: policy_of(&name).to_owned(),
            decided_by: None,
            share: Share::default(),
            object,
            alarm: Alarm::new(alarm_after_ms(env)),
        })
    }

    /// Answers the questions of a call. All that the replies depend on is written. Returns `undefined` if the revision of the
    /// policies is not known by which a question must be answered. Then JavaScript has it read.
    ///
    /// # Errors
    /// Throws an `Error` if the policy file is wrong.
    pub fn ask(&mut self, call: &str, now_ms: f64) -> Result<Option<String>, JsError> {
        let mut known = Vec::with_capacity(1);
        for (hash, question) in questions(call) {
            let hash = Some(hash).filter(|hash| !hash.is_empty());
            match policies::revision(hash).map_err(|reason| JsError::new(&reason))? {
                Some(revision) => known.push((revision, question)),
                None => return Ok(None),
            }
        }
        let mut replies = Fields::with_capacity(call.len());
        for (revision, question) in known {
            let reply = self.answer(&revision, &question, timestamp(now_ms));
            replies.bytes(&reply.unwrap_or_else(|reason| {
                log_error("a question failed", &reason.into());
                Arc::default() // the isolate then knows that the reply is lost
            }));
        }
        Ok(Some(replies.into_text()))
    }

    /// Deletes expired states. The promise ends when the next alarm is set, or when nothing is left.
    ///
    /// # Errors
    /// Throws what the storage throws.
    pub fn ring(&mut self, now_ms: f64) -> Result<Promise, JsValue> {
        let expired = match self.rows.exists()? {
            true => Expired::delete(&self.object, now_ms)?,
            false => Expired { any: false, next: None },
        };
        if expired.any || expired.next.is_none() {
            // it remembers rows that are gone
            self.authority = authority(self.trusts_caller_time);
            self.inbox = inbox();
        }
        if expired.next.is_none() {
            self.rows.forget();
        }
        Ok(self.alarm.set_next(&self.object, expired.next, timestamp(now_ms)))
    }

    /// Answers a question by a revision of the policies, or returns what is wrong with it.
    fn answer(
        &mut self,
        revision: &Revision,
        question: &[u8],
        now: Timestamp,
    ) -> Result<Arc<[u8]>, String> {
        self.decide_by(revision);
        let at = self.clock.at(now);
        let Self { authority, inbox, .. } = self;
        inbox
            .handle_question(((), question), &revision.policies, (now, at), authority)
            .map_err(|((), error)| error.to_string())?;
        let most = self.share.most().saturating_sub(self.inbox.bytes());
        self.authority.remember_at_most(most.min(REMEMBERED));
        self.decide((now, at));
        self.alarm.set_after_write(&self.object);
        self.share.set(self.authority.remembered().saturating_add(self.inbox.bytes()));
        let reply = self.inbox.poll_reply(at, &mut self.authority);
        reply.map(|((), reply)| reply).ok_or_else(|| "it has no reply".to_owned())
    }

    /// Another revision of the policy may use the rows of this one. So what was remembered under one revision is
    /// forgotten before a question of the other one is decided.
    fn decide_by(&mut self, revision: &Revision) {
        let policy = revision.policies.get(&self.policy);
        if self.decided_by.as_ref().map(Arc::as_ptr) == policy.map(Arc::as_ptr) {
            return;
        }
        if self.decided_by.is_some() {
            self.authority = authority(self.trusts_caller_time);
        }
        self.decided_by = policy.cloned();
    }

    fn decide(&mut self, (now, at): (Timestamp, Micros)) {
        let clock = (!self.trusts_caller_time).then_some(now);
        while let Some(swap) = self.authority.poll_swap((clock, at), |_| false) {
            let outcomes = match self.swap(&swap, now) {
                Ok(outcomes) => outcomes,
                Err(reason) => {
                    log_error("storage", &reason);
                    vec![SwapOutcome::Failed(STORAGE_FAILED); swap.len()]
                }
            };
            self.authority.handle(swap, outcomes, (clock, at));
        }
    }

    /// Reads what the authority does not know, and writes what it has decided.
    fn swap(
        &mut self,
        swap: &Swap,
        now: Timestamp,
    ) -> Result<Vec<SwapOutcome<&'static str>>, JsValue> {
        let mut outcomes = Vec::with_capacity(swap.len());
        let mut writes = false;
        for partition in 0..swap.len() {
            if self.authority.records(swap, partition).any(|record| !record.is_known) {
                let read = |record: SwapEntry<'_>| match record.is_known {
                    true => Ok(record.found.map(<[u8]>::to_vec)),
                    false => self.rows.read(record.name),
                };
                let found = self.authority.records(swap, partition).map(read);
                outcomes.push(SwapOutcome::Found(found.collect::<Result<_, _>>()?));
                continue;
            }
            for record in self.authority.records(swap, partition) {
                let Some(bytes) = record.becomes else { continue };
                let expires = record.ttl.map(|ttl| now.saturating_add(ttl));
                let expires = expires.map(|expires| number(expires.0.div_ceil(1_000)));
                self.rows.add(record.name, bytes, expires);
                writes = true;
            }
            outcomes.push(SwapOutcome::Swapped);
        }
        if writes {
            let is_new = self.rows.write()?;
            self.alarm.has_written(is_new);
        }
        Ok(outcomes)
    }
}
