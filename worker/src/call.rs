//! What an isolate and an object say to each other in a call: questions and their replies, in fields.

use std::collections::BTreeMap;

use crate::fields::{Fields, Reader};

/// The calls that are due, by the names of their objects.
#[derive(Debug, Default)]
pub(crate) struct Calls(BTreeMap<String, Call>);

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
    pub(crate) fn add(&mut self, object: &str, revision: &str, number: u64, question: &[u8]) {
        let call = match self.0.get_mut(object) {
            Some(call) => call,
            None => self.0.entry(object.to_owned()).or_default(),
        };
        call.numbers.number(number);
        call.questions.text(revision).bytes(question);
    }

    /// How many calls there are, and of each the name of the object, the numbers of the questions, and what to send.
    pub(crate) fn into_text(self) -> String {
        let mut fields = Fields::default();
        fields.number(u64::try_from(self.0.len()).unwrap_or(u64::MAX));
        for (object, Call { numbers, questions }) in self.0 {
            fields.text(&object).text(&numbers.into_text()).text(&questions.into_text());
        }
        fields.into_text()
    }
}

/// The numbers of the questions of a call.
pub(crate) fn numbers(text: &str) -> impl Iterator<Item = u64> {
    let mut fields = Reader::new(text);
    std::iter::from_fn(move || fields.number())
}

/// The questions of a call, each with the hash of the revision to answer it by.
pub(crate) fn questions(text: &str) -> impl Iterator<Item = (&str, Vec<u8>)> {
    let mut fields = Reader::new(text);
    std::iter::from_fn(move || Some((fields.text()?, fields.bytes()?)))
}

/// The replies to the questions of a call. A question that failed has an empty one.
pub(crate) fn replies(text: &str) -> impl Iterator<Item = Vec<u8>> {
    let mut fields = Reader::new(text);
    std::iter::from_fn(move || fields.bytes())
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
