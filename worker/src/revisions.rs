//! The revision of the policies in force, as an isolate knows it. One object keeps the revisions that callers have put over
//! the deployed one ([`revision_store`](crate::revision_store)), and isolates ask it for the one in force now and then.

use std::collections::BTreeSet;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use js_sys::futures::future_to_promise;
use js_sys::{Date, Promise};
use tidegate_gate::Timestamp;
use tidegate_http::RevisionTag;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};
use worker::worker_sys::Context as JsContext;
use worker::{Context, Delay, Env, Stub};

use crate::call::questions;
use crate::clock::timestamp;
use crate::exchanges::End;
use crate::fields::{Fields, Reader};
use crate::isolate::Isolate;
use crate::log::log_error;
use crate::node::{Node, with};
use crate::policies::{self, Revision};
use crate::watch::Refresh;

/// The name of the one object that keeps the revisions.
const STORE: &str = "policies";

/// How long a request waits for the revision in force. After that the known one stays in force for a while.
const DEADLINE: Duration = Duration::from_secs(2);

#[wasm_bindgen]
extern "C" {
    /// The object that keeps the revisions, for its callers: the class `Policies` of `worker.js`.
    type Store;

    #[wasm_bindgen(method, catch, js_name = inForce)]
    async fn in_force(
        this: &Store,
        deployed: &str,
        known: &str,
        counted: Option<String>,
        all: bool,
    ) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(method, catch)]
    async fn file(this: &Store, hash: &str) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(method, catch)]
    async fn handle(this: &Store, call: &str, deployed: &str) -> Result<JsValue, JsValue>;
}

fn store(env: &Env) -> worker::Result<Store> {
    env.durable_object("POLICIES")?.get_by_name(STORE).map(Stub::into_rpc)
}

#[wasm_bindgen]
impl Isolate {
    /// Asks for the revision in force, if it is time. Returns a promise if the request must wait for the answer.
    #[must_use]
    pub fn refresh(env: Env, context: JsContext, now_ms: f64) -> Option<Promise> {
        match with(now_ms, |node, _, at| node.watch.due(at)) {
            Refresh::No => None,
            Refresh::Meanwhile => {
                Context::new(context).wait_until(async move { refresh(&env).await });
                None
            }
            Refresh::First => Some(future_to_promise(async move {
                refresh(&env).await;
                Ok(JsValue::UNDEFINED)
            })),
        }
    }

    /// Makes sure that the objects of this isolate can answer the questions of a call by the revisions that these name.
    ///
    /// # Errors
    /// Throws an `Error` if the file of a revision is not kept, or wrong.
    pub async fn learn(call: String, env: Env) -> Result<(), JsValue> {
        let mut hashes: BTreeSet<&str> = BTreeSet::new();
        hashes.extend(questions(&call).map(|(hash, _)| hash)); // `collect` would sort, which takes more code
        for hash in hashes.into_iter().filter(|hash| !hash.is_empty()) {
            let (hash, since) = hash.split_once('@').unwrap_or((hash, "0"));
            let file = store(&env)?.file(hash).await?.as_string();
            let tag = RevisionTag { hash: hash.to_owned(), ..RevisionTag::default() };
            let since = Timestamp(since.parse().unwrap_or_default());
            file.ok_or_else(|| "no such file is kept".to_owned())
                .and_then(|file| policies::learn(tag, &file, since))
                .map_err(|wrong| JsError::new(&format!("the policies of a question: {wrong}")))?;
        }
        Ok(())
    }
}

/// Asks for the revision in force. A failure leaves the known one in force.
async fn refresh(env: &Env) {
    let asked = with(Date::now(), |_, _, at| at);
    match ask(env, false).await {
        Ok(Some(revision)) => put_in_force(&revision),
        Ok(None) => {}
        Err(error) => {
            log_error(
                "the policies in force are not known, so the earlier ones stay in force",
                &error,
            );
        }
    }
    with(Date::now(), |node, _, _| {
        node.watch.asked = node.watch.asked.max(Some(asked)); // a later question may have been answered before
    });
}

/// Lets the object of the revisions answer the call of an exchange, which then has its response.
///
/// # Errors
/// Returns what the object throws.
pub(crate) async fn change(exchange: u32, env: &Env) -> Result<(), JsValue> {
    let call = with(Date::now(), |node, _, _| match node.exchanges.get(exchange)?.end {
        Some(End::Asks(ref call)) => Some(call.write()),
        _ => None,
    });
    let call = call.ok_or_else(|| JsError::new("the request asks for no change"))?;
    let response = store(env)?.handle(&call, &policies::text()?).await?.as_string();
    refresh(env).await;
    with(Date::now(), |node, _, _| {
        let said = node.exchanges.get(exchange).and_then(|running| match running.end {
            Some(End::Asks(ref call)) => {
                call.audited(&node.log_secret).map(|said| said.to_string())
            }
            _ => None,
        });
        if let (Some(said), Some(answer)) = (said, &response)
            && Reader::new(answer).number() == Some(200)
        {
            worker::console_log!("audit: {said}, at {} µs", timestamp(Date::now()).0);
        }
        if let Some(running) = node.exchanges.get(exchange) {
            running.end = response.map(End::Answered);
        }
    });
    Ok(())
}

/// The revision in force, in fields, unless it is known; or who is limited in `all` isolates. Hands over what was counted meanwhile.
pub(crate) async fn ask(env: &Env, all: bool) -> Result<Option<String>, JsValue> {
    let (store, deployed) = (store(env)?, policies::deployed()?);
    let (heard, counted) =
        with(Date::now(), |node, _, _| (in_fields(&node.watch.heard, None), node.hand_over()));
    let (number, counted) = counted.unzip();
    let answer = pin!(store.in_force(&deployed.tag.hash, &heard, counted, all));
    match select(answer, Delay::from(DEADLINE)).await {
        Either::Left((answer, _)) => {
            let answer = answer?.as_string();
            with(Date::now(), |node, _, _| node.handover.arrived(number));
            Ok(answer)
        }
        Either::Right(_) => {
            Err(JsError::new(&format!("no answer within {} ms", DEADLINE.as_millis())).into())
        }
    }
}

fn put_in_force(revision: &str) {
    let wrong = with(Date::now(), |node, _, _| {
        let wrong = node.put_in_force(revision).err();
        if wrong.is_some() {
            node.in_force.metrics.count_ignored();
        }
        wrong
    });
    if let Some(wrong) = wrong {
        log_error("the policies that were put in force are ignored", &wrong.into());
    }
}

impl Node {
    /// Puts a revision in force, or returns what is wrong with it; the earlier one then stays in force.
    fn put_in_force(&mut self, revision: &str) -> Result<(), String> {
        let mut fields = Reader::new(revision);
        let (Some(version), Some(hash)) = (fields.number(), fields.text()) else {
            return Err("expected a version and a hash".to_owned());
        };
        let tag = RevisionTag { version, hash: hash.to_owned(), origin: None };
        self.watch.heard = tag.clone(); // it is asked for once, even if its file is wrong
        let revision = match fields.text() {
            Some(file) => policies::learn(tag, file, timestamp(Date::now()))?,
            None => {
                let policies = policies::deployed()?.policies.clone();
                Rc::new(Revision { policies, name: tag.hash.clone(), tag, ends: None })
            }
        };
        self.in_force = self.in_force.with(revision);
        self.in_force.say(&self.needs);
        Ok(())
    }
}

impl Node {
    /// Takes the overrides that have ended out of the revision in force.
    pub(crate) fn end_overrides(&mut self, now: Timestamp) {
        let Revision { tag, ends, .. } = &*self.in_force.revision;
        let Some((_, file)) = ends.as_ref().filter(|(ends, _)| *ends <= now) else { return };
        match policies::learn(tag.clone(), file, now) {
            Ok(revision) => self.in_force = self.in_force.with(revision),
            Err(wrong) => log_error("an override that has ended stays in force", &wrong.into()),
        }
    }
}

/// A revision in force, in fields: its version, its hash, and its file unless that is the deployed one.
pub(crate) fn in_fields(
    RevisionTag { version, hash, .. }: &RevisionTag,
    file: Option<&str>,
) -> String {
    let mut fields = Fields::default();
    fields.number(*version).text(hash);
    if let Some(file) = file {
        fields.text(file);
    }
    fields.into_text()
}
