//! Reads questions and replies by the description in `tier`, without its code.

use tidegate_gate::{Decision, Effect, Id, Micros, Operation, Probability, Timestamp, Verdict};
use tidegate_tier::wire::Failure;

/// The answer of an object to an operation.
pub(in crate::world) type Answer = Result<Verdict, Failure>;

/// The node and the number of a question.
pub(in crate::world) type Name = (Id, u64);

/// The policy, the keys and the operations of a question.
pub(in crate::world) type Asked = (String, Vec<(String, Operation)>);

/// Reads a question that is not corrupt.
pub(in crate::world) fn question(bytes: &[u8]) -> Option<(Name, Asked)> {
    let mut tape = Tape::of(bytes, 1)?;
    let (name, policy) = (tape.name()?, tape.text()?);
    let (mut operations, mut key) = (Vec::new(), String::new());
    while !tape.0.is_empty() {
        let text = tape.text()?;
        if !text.is_empty() {
            key = text;
        }
        let count = tape.number()?;
        if count % 2 == 1 {
            tape.number()?;
        }
        let words = (0..count / 2).map(|_| tape.word()).collect::<Option<Vec<u64>>>()?;
        operations.push((key.clone(), Operation::from_words(&words)?));
    }
    Some((name, (policy, operations)))
}

/// Reads a reply that is not corrupt: an answer to each operation, or one failure for all.
pub(in crate::world) fn reply(bytes: &[u8]) -> Option<(Name, Result<Vec<Answer>, Failure>)> {
    if let Some(mut tape) = Tape::of(bytes, 3) {
        return Some((tape.name()?, Err(tape.answer()?.err()?)));
    }
    let mut tape = Tape::of(bytes, 2)?;
    let (name, mut answers) = (tape.name()?, Vec::new());
    while !tape.0.is_empty() {
        answers.push(tape.answer()?);
    }
    Some((name, Ok(answers)))
}

/// What is left of a message.
struct Tape<'b>(&'b [u8]);

impl<'b> Tape<'b> {
    /// The content of a message of a kind, without its version and its checksum.
    fn of(bytes: &'b [u8], kind: u8) -> Option<Self> {
        let content = bytes.get(..bytes.len().checked_sub(8)?)?;
        match content {
            [1, found, rest @ ..] if *found == kind => Some(Self(rest)),
            _ => None,
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn fixed(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    fn name(&mut self) -> Option<Name> {
        Some((Id([self.fixed()?, self.fixed()?]), self.fixed()?))
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for place in 0..10 {
            let byte = u64::from(self.byte()?);
            number |= (byte & 127) << (7 * place);
            if byte < 128 {
                break;
            }
        }
        Some(number)
    }

    fn word(&mut self) -> Option<u64> {
        Some(self.number()?.wrapping_sub(1))
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    fn answer(&mut self) -> Option<Answer> {
        Some(Err(match self.byte()? {
            0 => return Some(Ok(self.verdict()?)),
            1 => Failure::Transaction(self.text()?),
            2 => Failure::Refused(self.text()?),
            3 => Failure::Overloaded { most: self.number()? },
            4 => Failure::TooLate,
            5 => Failure::Contended,
            6 => Failure::Store(self.text()?),
            _ => Failure::Unknown,
        }))
    }

    fn verdict(&mut self) -> Option<Verdict> {
        let (at, decision) = (Timestamp(self.number()?), self.decision()?);
        let count = self.number()?;
        let limits = (0..count).map(|_| self.decision()).collect::<Option<Vec<_>>>()?;
        let factor = match self.word()? {
            u64::MAX => None,
            units => Some(Probability::from_units(units)?),
        };
        let effect = match self.byte()? {
            kind @ 0..=2 => Effect::of_numbers(kind, [0; 3])?,
            kind => Effect::of_numbers(kind, [self.number()?, self.number()?, self.number()?])?,
        };
        Some(Verdict { at, decision, limits, factor, effect, degraded: false })
    }

    fn decision(&mut self) -> Option<Decision> {
        let is_allowed = self.byte()? == 1;
        let (limit, remaining) = (self.number()?, self.number()?);
        let reset_after = Micros(self.number()?);
        Some(match is_allowed {
            true => Decision::Allow { limit, remaining, reset_after },
            false => {
                let retry_after = Micros(self.number()?);
                Decision::Deny { limit, remaining, retry_after, reset_after }
            }
        })
    }
}
