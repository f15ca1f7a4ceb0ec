//! The revision of the policies in force, as an isolate knows it. One object keeps the revisions that callers have put over
//! the deployed one ([`keeper`](crate::keeper)), and isolates ask it for the one in force now and then.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use js_sys::Date;
use tidegate_http::RevisionTag;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};
use worker::{Delay, Env, Stub};

use crate::fields::{Fields, Reader};
use crate::isolate::Isolate;
use crate::node::{End, Node, with};
use crate::policies::{self, Revision};
use crate::tell::log_error;
use crate::watch::Refresh;

/// The name of the one object that keeps the revisions.
const KEEPER: &str = "policies";

/// How long a request waits for the revision in force. After that the known one stays in force for a while.
const DEADLINE: Duration = Duration::from_secs(2);

#[wasm_bindgen]
extern "C" {
    /// The object that keeps the revisions, for its callers: the class `Policies` of `worker.js`.
    type Keeper;

    #[wasm_bindgen(method, catch, js_name = inForce)]
    async fn in_force(this: &Keeper, deployed: &str, known: &str) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(method, catch)]
    async fn file(this: &Keeper, hash: &str) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(method, catch)]
    async fn handle(this: &Keeper, call: &str, deployed: &str) -> Result<JsValue, JsValue>;
}

fn keeper(env: &Env) -> worker::Result<Keeper> {
    env.durable_object("POLICIES")?.get_by_name(KEEPER).map(Stub::into_rpc)
}

#[wasm_bindgen]
impl Isolate {
    /// Whether some caller may change the policies, so that the revision in force must be asked for.
    #[must_use]
    pub fn policies_change(now_ms: f64) -> bool {
        with(now_ms, |node, _, _| node.in_force.access.lets_policies_change())
    }

    /// Whether the revision in force must be asked for now, by [`refresh`](Self::refresh).
    #[must_use]
    pub fn refresh_due(now_ms: f64) -> Refresh {
        with(now_ms, |node, _, at| node.watch.due(at))
    }

    /// Asks for the revision in force. A failure leaves the known one in force.
    pub async fn refresh(env: Env) {
        let asked = with(Date::now(), |_, _, at| at);
        match ask(&env).await {
            Ok(Some(told)) => put_in_force(&told),
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

    /// Lets the object of the revisions answer a call about them, and ends its exchange. Returns the response.
    ///
    /// # Errors
    /// Throws what the object throws.
    pub async fn change(exchange: u32, env: Env) -> Result<JsValue, JsValue> {
        let running = with(Date::now(), |node, _, _| node.exchanges.remove(&exchange));
        let Some(End::Asks(call)) = running.and_then(|running| running.end) else {
            return Err(JsError::new("the request asks for no change").into());
        };
        let response = keeper(&env)?.handle(&call.write(), &policies::text()?).await?;
        Self::refresh(env).await;
        Ok(response)
    }

    /// Whether an object in this isolate can answer questions by the revision with this hash.
    #[must_use]
    pub fn knows(hash: &str) -> bool {
        policies::revision(Some(hash)).is_ok_and(|revision| revision.is_some())
    }

    /// Makes sure that the objects of this isolate can answer by the revision with this hash.
    ///
    /// # Errors
    /// Throws an `Error` if the file of the revision is not kept, or wrong.
    pub async fn learn(hash: String, env: Env) -> Result<(), JsValue> {
        let file = keeper(&env)?.file(&hash).await?.as_string();
        let learned = file
            .ok_or_else(|| "no such file is kept".to_owned())
            .and_then(|file| policies::learn(RevisionTag { version: 0, hash }, &file));
        match learned {
            Ok(_) => Ok(()),
            Err(wrong) => Err(JsError::new(&format!("the policies of a question: {wrong}")).into()),
        }
    }
}

/// What the object tells, unless it is known.
async fn ask(env: &Env) -> Result<Option<String>, JsValue> {
    let (keeper, deployed) = (keeper(env)?, policies::deployed()?);
    let heard = with(Date::now(), |node, _, _| told(&node.watch.heard, None));
    let answer = pin!(keeper.in_force(&deployed.tag.hash, &heard));
    match select(answer, Delay::from(DEADLINE)).await {
        Either::Left((told, _)) => Ok(told?.as_string()),
        Either::Right(_) => {
            Err(JsError::new(&format!("no answer within {} ms", DEADLINE.as_millis())).into())
        }
    }
}

fn put_in_force(told: &str) {
    let wrong = with(Date::now(), |node, _, _| {
        let wrong = node.put_in_force(told).err();
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
    fn put_in_force(&mut self, told: &str) -> Result<(), String> {
        let mut told = Reader::new(told);
        let (Some(version), Some(hash)) = (told.number(), told.text()) else {
            return Err("expected a version and a hash".to_owned());
        };
        let tag = RevisionTag { version, hash: hash.to_owned() };
        self.watch.heard = tag.clone(); // it is asked for once, even if its file is wrong
        let revision = match told.text() {
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

/// What the object of the revisions tells of the one in force, in fields: its version, its hash, and its file unless that is
/// the deployed one.
pub(crate) fn told(RevisionTag { version, hash }: &RevisionTag, file: Option<&str>) -> String {
    let mut fields = Fields::default();
    fields.number(*version).text(hash);
    if let Some(file) = file {
        fields.text(file);
    }
    fields.into_text()
}
