//! The bytes of a question and of a reply, little endian.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version: 1 |
//! | 1 | what follows: 1 for a question, 2 for a reply with an answer to each operation, 3 for a reply with one failure for all of them |
//! | 16 | id of the node |
//! | 8 | number of the question |
//! | | the content |
//! | 8 | FNV-1a of all bytes before |
//!
//! Numbers in the content are written in as few bytes as they need (LEB128), and texts after their length. A *word* is a
//! number plus one, modulo 2^64.
//!
//! | content | what |
//! |---|---|
//! | question | name of the policy; operations until the end |
//! | operation | key, empty for that of the operation before; twice the number of words, plus 1 if a time follows, plus 64 if a repeat of the request is known; the time; the words of [`Operation::to_words`]; in two words the id of the request, and in one the hash of what it asks |
//! | reply | answers until the end |
//! | answer | 0 and a verdict, or a failure |
//! | verdict | time; decision; number of limits; the decision of each; factor as a word, the largest for none; effect |
//! | decision | 0 for a refusal or 1 for a grant; limit, remaining, reset after, and after a refusal retry after |
//! | effect | 0 for none, 1 or 2 for a lease that was gone or live; 3, 4 or 5 for a budget whose holder gave nothing back, or too late, or in time; and with a budget the units, the time of the grant and its end; 6 for a reservation, with its units, its end and the payer; 7 or 8 for a commit in time or late, with its units, the payer and 0; 9 for a request for which a limit has paid, with the payer and twice 0; 10 for a request whose idempotency key another one had, with three times 0; 11 for a part of a limit that holds a request back, with its number and twice 0; 12 for a block, with how long it still lasts and twice 0; 13 for a limit without a place for a reservation, with its place among the limits, the payer and 0. A payer is its place among the limits plus one, or 0 for none |
//! | failure | 1 and a text for [`Failure::Transaction`], 2 and a text for [`Failure::Refused`], 3 and the most for [`Failure::Overloaded`], 4 for [`Failure::TooLate`], 5 for [`Failure::Contended`], 6 and a text for [`Failure::Store`], 7 for [`Failure::Unknown`] |

use alloc::vec::Vec;

use tidegate_gate::{
    Decision, Effect, Id, Idempotency, Micros, Operation, Probability, Timestamp, Verdict,
};

use super::Failure;
use super::bytes::{Reader, WireError, Writer};

const QUESTION: u8 = 1;
const ANSWERS: u8 = 2;
const FAILURE: u8 = 3;
/// The first kind of an effect that numbers follow.
const FIRST_WITH_NUMBERS: u8 = 3;

/// The most words of an operation.
const MOST_WORDS: usize = 8;

/// Stands beside the number of words if a repeat of the request is known.
const IS_KNOWN: u64 = 64;
const _: () = assert!(IS_KNOWN.ilog2() > (2 * MOST_WORDS + 1).ilog2());

/// Which question a message is or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) node: Id,
    pub(super) number: u64,
}

impl Name {
    fn write(self, message: &mut Writer, kind: u8) {
        let Self { node: Id([high, low]), number } = self;
        message.byte(kind);
        [high, low, number].into_iter().for_each(|word| message.fixed(word));
    }

    fn read(message: &mut Reader<'_>) -> Result<Self, WireError> {
        let node = "the id of a node";
        let node = Id([message.fixed(node)?, message.fixed(node)?]);
        Ok(Self { node, number: message.fixed("the number of a question")? })
    }
}

/// Writes a question.
#[derive(Debug)]
pub(super) struct QuestionWriter<'k> {
    message: Writer,
    last_key: &'k str,
}

impl<'k> QuestionWriter<'k> {
    pub(super) fn new(name: Name, policy: &str) -> Self {
        let mut message = Writer::new();
        name.write(&mut message, QUESTION);
        message.text(policy);
        Self { message, last_key: "" }
    }

    /// Adds an operation if the message is then no longer than `most`, and returns whether it did.
    pub(super) fn add(&mut self, asked: &Item<'k>, most: usize) -> bool {
        let Item { key, now, operation, idempotency } = asked;
        let before = self.message.len();
        self.message.text(if *key == self.last_key { "" } else { key });
        let words = operation.to_words();
        let has_time = u64::from(now.is_some());
        let is_known = idempotency.map_or(0, |_| IS_KNOWN);
        let count = u64::try_from(words.len()).unwrap_or(u64::MAX);
        self.message.number(count.saturating_mul(2).saturating_add(has_time | is_known));
        now.iter().for_each(|now| self.message.number(now.0));
        words.into_iter().for_each(|word| self.message.word(word));
        if let Some(Idempotency { id: Id([high, low]), request }) = *idempotency {
            [high, low, request].into_iter().for_each(|word| self.message.word(word));
        }
        if self.message.len() > most {
            self.message.truncate(before);
            return false;
        }
        self.last_key = key;
        true
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.message.finish()
    }
}

/// An operation of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item<'b> {
    pub(super) key: &'b str,
    pub(super) now: Option<Timestamp>,
    pub(super) operation: Operation,
    /// By what a repeat of the request is known.
    pub(super) idempotency: Option<Idempotency>,
}

/// A question of which only the name is read.
#[derive(Clone, Debug)]
pub(super) struct Question<'b> {
    pub(super) name: Name,
    content: Reader<'b>,
}

/// The content of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content<'b> {
    pub(super) policy: &'b str,
    pub(super) operations: Vec<Item<'b>>,
}

impl<'b> Question<'b> {
    pub(super) fn read(bytes: &'b [u8]) -> Result<Self, WireError> {
        let mut message = Reader::new(bytes)?;
        match message.byte("a question (1)")? {
            QUESTION => Ok(Self { name: Name::read(&mut message)?, content: message }),
            found => Err(WireError::Number { expected: "a question (1)", found: found.into() }),
        }
    }

    pub(super) fn content(self) -> Result<Content<'b>, WireError> {
        let mut content = self.content;
        let policy = content.text("the name of a policy")?;
        let (mut operations, mut last_key) = (Vec::new(), "");
        while operations.is_empty() || content.len() > 0 {
            let asked = operation(&mut content, last_key)?;
            last_key = asked.key;
            operations.push(asked);
        }
        Ok(Content { policy, operations })
    }
}

fn operation<'b>(content: &mut Reader<'b>, last_key: &'b str) -> Result<Item<'b>, WireError> {
    let key = match content.text("a key")? {
        "" => last_key,
        key => key,
    };
    let expected =
        "a number of words up to 8, twice, plus 1 for a time, plus 64 for the id of a request";
    let found = content.number(expected)?;
    let (is_known, count) = (found & IS_KNOWN != 0, (found & !IS_KNOWN) >> 1);
    let mut room = [0; MOST_WORDS];
    let words = usize::try_from(count).ok().and_then(|count| room.get_mut(..count));
    let words = words.ok_or(WireError::Number { expected, found })?;
    let now = match found & 1 {
        0 => None,
        _ => Some(Timestamp(content.number("a time")?)),
    };
    for word in &mut *words {
        *word = content.word("a word of an operation")?;
    }
    let kind = words.first().copied().unwrap_or(0);
    let operation = Operation::from_words(words)
        .ok_or(WireError::Number { expected: "the words of an operation", found: kind })?;
    let mut word = || content.word("a word of the id of a request");
    let idempotency = match is_known {
        true => Some(Idempotency { id: Id([word()?, word()?]), request: word()? }),
        false => None,
    };
    Ok(Item { key, now, operation, idempotency })
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The answer to each operation, in order.
    Answers(Vec<Result<Verdict, Failure>>),
    /// The same failure for all operations.
    Failure(Failure),
}

impl Reply {
    pub(super) fn write(&self, name: Name) -> Vec<u8> {
        let mut message = Writer::new();
        match self {
            Self::Answers(answers) => {
                name.write(&mut message, ANSWERS);
                for answer in answers {
                    match answer {
                        Ok(verdict) => write_verdict(&mut message, verdict),
                        Err(failure) => write_failure(&mut message, failure),
                    }
                }
            }
            Self::Failure(failure) => {
                name.write(&mut message, FAILURE);
                write_failure(&mut message, failure);
            }
        }
        message.finish()
    }

    pub(super) fn read(bytes: &[u8]) -> Result<(Name, Self), WireError> {
        let mut message = Reader::new(bytes)?;
        let expected = "a reply (2 or 3)";
        let kind = message.byte(expected)?;
        let name = Name::read(&mut message)?;
        match kind {
            ANSWERS => {
                let mut answers = Vec::new();
                while message.len() > 0 {
                    answers.push(answer(&mut message)?);
                }
                Ok((name, Self::Answers(answers)))
            }
            FAILURE => {
                let failed = answer(&mut message)?;
                message.end()?;
                let verdict = WireError::Number { expected: "a failure (1 to 7)", found: 0 };
                Ok((name, Self::Failure(failed.err().ok_or(verdict)?)))
            }
            found => Err(WireError::Number { expected, found: found.into() }),
        }
    }
}

fn write_failure(message: &mut Writer, failure: &Failure) {
    let mut texts = |kind, text: &str| {
        message.byte(kind);
        message.text(text);
    };
    match failure {
        Failure::Transaction(text) => texts(1, text),
        Failure::Refused(text) => texts(2, text),
        Failure::Overloaded { most } => {
            message.byte(3);
            message.number(*most);
        }
        Failure::TooLate => message.byte(4),
        Failure::Contended => message.byte(5),
        Failure::Store(text) => texts(6, text),
        Failure::Unknown => message.byte(7),
    }
}

fn answer(message: &mut Reader<'_>) -> Result<Result<Verdict, Failure>, WireError> {
    let expected = "a verdict (0) or a failure (1 to 7)";
    Ok(Err(match message.byte(expected)? {
        0 => return Ok(Ok(verdict(message)?)),
        1 => Failure::Transaction(message.text("the error of a transaction")?.into()),
        2 => Failure::Refused(message.text("the reason of a refusal")?.into()),
        3 => Failure::Overloaded { most: message.number("the most operations")? },
        4 => Failure::TooLate,
        5 => Failure::Contended,
        6 => Failure::Store(message.text("the error of a store")?.into()),
        7 => Failure::Unknown,
        found => return Err(WireError::Number { expected, found: found.into() }),
    }))
}

fn write_verdict(message: &mut Writer, verdict: &Verdict) {
    message.byte(0);
    message.number(verdict.at.0);
    write_decision(message, &verdict.decision);
    message.count(verdict.limits.len());
    verdict.limits.iter().for_each(|decision| write_decision(message, decision));
    message.word(verdict.factor.map_or(u64::MAX, Probability::units));
    let (kind, numbers) = verdict.effect.to_numbers();
    message.byte(kind);
    if kind >= FIRST_WITH_NUMBERS {
        numbers.into_iter().for_each(|number| message.number(number));
    }
}

fn verdict(message: &mut Reader<'_>) -> Result<Verdict, WireError> {
    let at = Timestamp(message.number("the time of a verdict")?);
    let decision = decision(message)?;
    let limits = message.count("the number of limits")?;
    let limits = (0..limits).map(|_| self::decision(message)).collect::<Result<Vec<_>, _>>()?;
    let expected = "a factor up to 2^32, or none";
    let factor = match message.word(expected)? {
        u64::MAX => None,
        found => Some(Probability::from_units(found).ok_or(WireError::Number { expected, found })?),
    };
    let expected = "an effect (0 to 13)";
    let kind = message.byte(expected)?;
    let mut numbers = [0; 3];
    if kind >= FIRST_WITH_NUMBERS {
        for number in &mut numbers {
            *number = message.number("a number of an effect")?;
        }
    }
    let effect = Effect::of_numbers(kind, numbers)
        .ok_or(WireError::Number { expected, found: kind.into() })?;
    Ok(Verdict { at, decision, limits, factor, effect, degraded: false })
}

fn write_decision(message: &mut Writer, decision: &Decision) {
    message.byte(decision.is_allowed().into());
    let numbers = [decision.limit(), decision.remaining(), decision.reset_after().0];
    numbers.into_iter().for_each(|number| message.number(number));
    if !decision.is_allowed() {
        message.number(decision.retry_after().0);
    }
}

fn decision(message: &mut Reader<'_>) -> Result<Decision, WireError> {
    let expected = "a refusal (0) or a grant (1)";
    let kind = message.byte(expected)?;
    let limit = message.number("a limit")?;
    let remaining = message.number("the remaining units")?;
    let reset_after = Micros(message.number("the time of a reset")?);
    match kind {
        0 => {
            let retry_after = Micros(message.number("the time of a retry")?);
            Ok(Decision::Deny { limit, remaining, retry_after, reset_after })
        }
        1 => Ok(Decision::Allow { limit, remaining, reset_after }),
        found => Err(WireError::Number { expected, found: found.into() }),
    }
}
