//! What an isolate sends to objects, and takes of their replies.

use std::sync::Arc;

use js_sys::Reflect;
use tidegate_gate::{Micros, Policy};
use tidegate_tier::wire::{Failure, Outbox, Question};
use wasm_bindgen::JsValue;

use crate::call::{Calls, numbers, replies};
use crate::keys::STORAGE_FAILED;

/// The calls that are due, in fields. The names of the objects begin with `prefix`; `revision_of` says by which revision an object must
/// answer about a policy.
pub(crate) fn transmit<T>(
    outbox: &mut Outbox<T>,
    prefix: &str,
    revision_of: impl Fn(&Arc<Policy>) -> String,
    at: Micros,
) -> String {
    let mut calls = Calls::default();
    while let Some(Question { number, to, bytes }) = outbox.poll_transmit(at) {
        let object = [prefix, &to.object_name()].concat();
        calls.add(&object, &revision_of(to.policy()), number, &bytes);
    }
    calls.into_text()
}

/// Takes the reply to the questions with these numbers. No reply, or one that cannot be read, leaves their outcomes unknown. `cause`
/// is the error of a call that failed.
pub(crate) fn reply<T>(
    outbox: &mut Outbox<T>,
    asked: &str,
    reply: &str,
    cause: &JsValue,
    at: Micros,
) {
    let failure = match is_of_storage(cause) {
        true => Failure::Store(STORAGE_FAILED.to_owned()),
        false => Failure::Unknown,
    };
    for bytes in replies(reply) {
        let _ = outbox.handle_reply(&bytes, at); // the question then gets its answer by the next lines
    }
    for number in numbers(asked) {
        outbox.handle_lost(number, &failure, at); // does nothing if the reply came
    }
}

/// Whether the storage of an object is the reason why its call failed. The runtime ends an object whose disk is full.
fn is_of_storage(cause: &JsValue) -> bool {
    if cause.is_undefined() {
        return false; // to look for its message takes as long as the call
    }
    let message = Reflect::get(cause, &"message".into()).ok().and_then(|text| text.as_string());
    message.is_some_and(|message| message.contains("SQLITE_"))
}
