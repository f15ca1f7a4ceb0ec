//! The object that keeps the revisions of the policy file: the class `Policies` of `worker.js`.

use std::cell::RefCell;

use js_sys::Date;
use tidegate_gate::Timestamp;
use tidegate_http::{Changed, PolicyCall, Revisions, Tally};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};
use worker::worker_sys::DurableObjectState;
use worker::{State, Storage};

use crate::clock::timestamp;
use crate::isolate::text;
use crate::lists::{self, Handed};
use crate::log::log_error;
use crate::revisions::in_fields;

/// The name under which the object stores the revisions.
const STORED: &str = "revisions";

thread_local! {
    /// In memory alone: to store it would cost a row for each call.
    static TALLY: RefCell<Tally> = RefCell::default();
}

/// The functions that JavaScript calls in the object of the revisions.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RevisionStore;

#[wasm_bindgen]
impl RevisionStore {
    /// The revision in force over the deployed file with this hash, as of [`in_fields`]. `undefined` if it is the `known` one,
    /// of which the caller has heard last. Takes what the isolate has `counted`. With `all` it returns who is limited in all isolates,
    /// by what they have handed over.
    ///
    /// # Errors
    /// Throws what the storage throws, and with `all` an `Error` if the text holds no lists. Nothing is counted then.
    pub async fn in_force(
        object: DurableObjectState,
        deployed: String,
        known: String,
        counted: Option<String>,
        all: bool,
    ) -> Result<Option<String>, JsValue> {
        let now = timestamp(Date::now());
        let is_read = counted.is_none_or(|counted| take(&counted, now).is_some());
        if all && is_read {
            return Ok(Some(TALLY.with_borrow_mut(|tally| lists::write(tally.lists(now)))));
        }
        if !is_read {
            let wrong = JsError::new("expected lists of this version, found another text").into();
            if all {
                return Err(wrong);
            }
            log_error("what an isolate has counted is ignored", &wrong); // the isolate still needs the policies
        }
        let revisions = read(&State::from(object).storage()).await?;
        let tag = revisions.tag(&deployed);
        Ok((in_fields(&tag, None) != known).then(|| in_fields(&tag, revisions.file(&deployed))))
    }

    /// The file with this hash, if it is kept.
    ///
    /// # Errors
    /// Throws what the storage throws.
    pub async fn file(object: DurableObjectState, hash: String) -> Result<Option<String>, JsValue> {
        let revisions = read(&State::from(object).storage()).await?;
        Ok(revisions.file_of(&hash).map(str::to_owned))
    }

    /// Answers a call about the revisions. Returns the response, as of `Isolate.finish`. What has changed is stored: the
    /// output gate holds the response until the write is durable.
    ///
    /// # Errors
    /// Throws an `Error` if the text is no such call, and what the storage throws.
    pub async fn handle(
        object: DurableObjectState,
        call: String,
        deployed: String,
    ) -> Result<String, JsValue> {
        let call =
            PolicyCall::read(&call).ok_or_else(|| JsError::new("a call of another version"))?;
        let storage = State::from(object).storage();
        let mut revisions = read(&storage).await?;
        let now = timestamp(Date::now());
        let Changed { response, policies } = revisions.handle(call, &deployed, now);
        if policies.is_some() {
            storage.put_raw(STORED, revisions.write()).await?;
        }
        Ok(text(&response))
    }
}

/// Counts what an isolate hands over, once; `None` if the text holds no lists.
fn take(counted: &str, now: Timestamp) -> Option<()> {
    let Handed { of, lists } = lists::read_handed(counted)?;
    TALLY.with_borrow_mut(|tally| tally.take(of, lists, now));
    Some(())
}

/// Revisions that cannot be read must not stop the Worker, so they count as none.
async fn read(storage: &Storage) -> worker::Result<Revisions> {
    // `get` would read it by serde, with 10 KB of code that prints numbers in errors
    let found = storage.get_multiple(vec![STORED]).await?.get(&STORED.into());
    if found.is_undefined() {
        return Ok(Revisions::default());
    }
    let revisions = match found.as_string() {
        Some(stored) => Revisions::read(&stored).map_err(|error| error.to_string()),
        None => Err("expected a text, found another value".to_owned()),
    };
    Ok(revisions.unwrap_or_else(|error| {
        log_error("the stored policies are ignored", &error.into());
        Revisions::default()
    }))
}
