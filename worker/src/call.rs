//! What an isolate and an object say to each other in a call: questions and their replies, in fields.
#![cfg_attr(not(target_arch = "wasm32"), expect(dead_code, reason = "tests use a part of it"))]

use std::collections::BTreeMap;
use std::sync::Arc;

use js_sys::Reflect;
use tidegate_gate::{Micros, Policy};
use tidegate_tier::wire::{Failure, Outbox, Question};
use wasm_bindgen::JsValue;

use crate::fields::{Fields, Reader};

/// What callers learn of a storage that refuses to read or write.
pub(crate) const STORAGE_FAILED: &str = "its storage failed";

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

/// The calls that are due, by the names of their objects.
#[derive(Debug, Default)]
struct Calls(BTreeMap<String, Box<Call>>);

/// The questions to one object.
#[derive(Debug, Default)]
struct Call {
    /// The numbers of the questions.
    numbers: Fields,
    questions: Fields,
}

impl Calls {
    /// Adds a question to an object, to be answered by the revision of the policies with this hash. The hash of the deployed
    /// revision is empty.
    fn add(&mut self, object: &str, revision: &str, number: u64, question: &[u8]) {
        let call = match self.0.get_mut(object) {
            Some(call) => call,
            None => self.0.entry(object.to_owned()).or_default(),
        };
        call.numbers.number(number);
        call.questions.text(revision).bytes(question);
    }

    /// How many calls there are, and of each the name of the object, the numbers of the questions, and what to send.
    fn into_text(self) -> String {
        let mut fields = Fields::default();
        fields.number(u64::try_from(self.0.len()).unwrap_or(u64::MAX));
        for (object, call) in self.0 {
            let Call { numbers, questions } = *call;
            fields.text(&object).text(&numbers.into_text()).text(&questions.into_text());
        }
        fields.into_text()
    }
}

/// The questions of a call, each with the hash of the revision to answer it by.
pub(crate) fn questions(text: &str) -> impl Iterator<Item = (&str, Vec<u8>)> {
    let mut fields = Reader::new(text);
    std::iter::from_fn(move || Some((fields.text()?, fields.bytes()?)))
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

/// The numbers of the questions of a call.
fn numbers(text: &str) -> impl Iterator<Item = u64> {
    let mut fields = Reader::new(text);
    std::iter::from_fn(move || fields.number())
}

/// The replies to the questions of a call. A question that failed has an empty one.
fn replies(text: &str) -> impl Iterator<Item = Vec<u8>> {
    let mut fields = Reader::new(text);
    std::iter::from_fn(move || fields.bytes())
}

/// Whether the storage of an object is the reason why its call failed. The runtime ends an object whose disk is full.
fn is_of_storage(cause: &JsValue) -> bool {
    if cause.is_undefined() {
        return false; // to look for its message takes as long as the call
    }
    let message = Reflect::get(cause, &"message".into()).ok().and_then(|text| text.as_string());
    message.is_some_and(|message| message.contains("SQLITE_"))
}

#[cfg(test)]
mod tests {
    use super::{Calls, numbers, questions};
    use crate::fields::Reader;

    #[test]
    fn the_questions_to_an_object_go_in_one_call() {
        let mut calls = Calls::default();
        calls.add("b", "", 7, &[0, 255]);
        calls.add("a", "hash", 8, &[1]);
        calls.add("b", "hash", 900, &[]);
        let text = calls.into_text();
        let mut fields = Reader::new(&text);
        assert_eq!(fields.number(), Some(2));
        for (object, all, asked) in [
            ("a", vec![8], vec![("hash", vec![1])]),
            ("b", vec![7, 900], vec![("", vec![0, 255]), ("hash", vec![])]),
        ] {
            assert_eq!(fields.text(), Some(object));
            assert_eq!(numbers(fields.text().unwrap()).collect::<Vec<_>>(), all);
            assert_eq!(questions(fields.text().unwrap()).collect::<Vec<_>>(), asked);
        }
        assert_eq!(fields.number(), None);
    }
}
