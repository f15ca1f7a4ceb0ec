//! The authority's side: questions that arrive any number of times, and their replies.

mod memory;

use alloc::borrow::Cow;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use alloc::{fmt, vec};

use tidegate_gate::{
    Micros, Policies, Quoted, Resolved, Timestamp, TransactionError, Verdict, fnv1a,
};

use super::Failure;
use super::bytes::WireError;
use super::message::{Content, Item, Name, Question, Reply};
use crate::authority::{self, Authority, Queued};
use crate::count::less;
use memory::{Found, Known, Memory, State};

/// The place of an operation: its question, and which operation of the question it is. An [`Authority`] carries it as
/// the token.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    question: Name,
    operation: usize,
}

/// What an authority accepts, and what it remembers.
#[derive(Clone, Copy, Debug)]
pub struct AuthorityOptions {
    /// The most bytes of a question. Longer ones are refused.
    pub most_bytes: usize,
    /// The most operations of a question. Questions with more of them are refused.
    pub most_operations: usize,
    /// How long a reply is remembered, and how long a node that asks nothing. It must be longer than a copy of a
    /// question may be under way.
    pub time: Micros,
    /// The most bytes that questions and replies take, beside the verdicts of the questions under way.
    pub bytes: usize,
    /// Whether a question is refused if a later one of its node on the same group of keys came first. Nodes need that if one
    /// caller asks twice without waiting.
    pub keeps_order: bool,
}

impl Default for AuthorityOptions {
    fn default() -> Self {
        Self {
            most_bytes: 1 << 18,
            most_operations: 4_096,
            time: Micros(60_000_000),
            bytes: 4 << 20,
            keeps_order: true,
        }
    }
}

/// The bytes of a reply, and what [`Inbox::handle_question`] was given with the question.
pub type Addressed<T> = (T, Arc<[u8]>);

/// The questions that an authority has got, and its replies. The [module](super) says how to drive it.
#[derive(Debug)]
pub struct Inbox<T> {
    options: AuthorityOptions,
    memory: Memory<T>,
    replies: VecDeque<Addressed<T>>,
    /// The newest time that the driver has told.
    at: Micros,
}

impl<T> Inbox<T> {
    /// No question has come yet.
    #[must_use]
    pub const fn new(options: AuthorityOptions) -> Self {
        Self { options, memory: Memory::new(), replies: VecDeque::new(), at: Micros::ZERO }
    }

    /// Takes the bytes of a question: gives its operations to the authority, or finds its reply. `to` comes back with
    /// the reply. `now` is the time of the operations that have none of their own, so only trusted nodes may ask. `at` is
    /// the time by the clock that the authority goes by.
    ///
    /// # Errors
    /// Fails with [`WireError`] and gives back `to` if the bytes are not a question. Nothing is taken. The node should
    /// hear that no reply will come, for [`Outbox::handle_lost`](super::Outbox::handle_lost).
    pub fn handle_question<E: Clone>(
        &mut self,
        (to, bytes): (T, &[u8]),
        policies: &Policies,
        (now, at): (Timestamp, Micros),
        authority: &mut Authority<Place, E>,
    ) -> Result<(), (T, WireError)> {
        let question = match Question::read(bytes) {
            Ok(question) => question,
            Err(error) => return Err((to, error)),
        };
        let (name, hash) = (question.name, fnv1a(bytes.iter().copied()));
        self.at = self.at.max(at);
        match self.memory.find(name, self.at) {
            Found::Known => self.repeat(to, (name, hash)),
            Found::Forgotten => self.refuse(to, name, Failure::Unknown),
            Found::New => {
                let whole = match self.resolve(question, bytes.len(), policies, (now, at)) {
                    Ok(whole) => whole,
                    Err(error) => return Err((to, error)),
                };
                let asked = self.begin((to, name, hash), whole);
                asked.into_iter().for_each(|asked| authority.ask(asked));
            }
        }
        Ok(())
    }

    /// The next reply to send. Takes the answers of the authority first.
    pub fn poll_reply<E: Clone + fmt::Display>(
        &mut self,
        at: Micros,
        authority: &mut Authority<Place, E>,
    ) -> Option<Addressed<T>> {
        self.at = self.at.max(at);
        while let Some((place, answer, _)) = authority.poll_answer() {
            self.answer(place, answer.map_err(Failure::from));
        }
        self.replies.pop_front()
    }

    /// The bytes of memory that questions and replies take. They are never more than
    /// [`AuthorityOptions::bytes`].
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// A question has come again.
    fn repeat(&mut self, to: T, (name, hash): (Name, u64)) {
        let has_room = self.memory.bytes().saturating_add(size_of::<T>()) <= self.options.bytes;
        let mut to = Some(to);
        let reply = self.memory.change(name, self.at, |known| match &mut known.state {
            _ if known.hash != hash => {
                let text = "`number`: expected a new number for a new question, found one of \
                            another question";
                Some(Reply::Failure(Failure::Refused(text.into())).write(name).into())
            }
            State::Replied(reply) => Some(Arc::clone(reply)),
            State::UnderWay { to: all, .. } if has_room => {
                all.extend(to.take());
                None
            }
            State::UnderWay { .. } => Some(Reply::Failure(Failure::Unknown).write(name).into()),
        });
        self.replies.extend(to.zip(reply.flatten()));
    }

    fn refuse(&mut self, to: T, name: Name, failure: Failure) {
        self.replies.push_back((to, Reply::Failure(failure).write(name).into()));
    }

    /// What a question asks, or why nothing of it is begun.
    fn resolve(
        &self,
        question: Question<'_>,
        bytes: usize,
        policies: &Policies,
        times: (Timestamp, Micros),
    ) -> Result<Result<Whole, Failure>, WireError> {
        let most = self.options.most_bytes;
        if bytes > most {
            let text = format!("question: expected at most {most} bytes, found {bytes}");
            return Ok(Err(Failure::Refused(text)));
        }
        let name = question.name;
        let content = question.content()?;
        let whole = resolve(name, &content, self.options.most_operations, policies, times);
        Ok(match whole {
            Ok(whole)
                if self.options.keeps_order && self.memory.is_overtaken(name, whole.group) =>
            {
                Err(Failure::TooLate)
            }
            Ok(whole) => Ok(whole),
            Err(text) => Err(Failure::Refused(text)),
        })
    }

    /// Remembers a new question and returns the operations to do.
    fn begin(
        &mut self,
        (to, name, hash): (T, Name, u64),
        whole: Result<Whole, Failure>,
    ) -> Vec<Queued<Place>> {
        let (known, asked) = match whole {
            Ok(Whole { group, operations }) => {
                let answers = operations.iter().map(|_| None).collect();
                let state = State::UnderWay { left: operations.len(), answers, to: vec![to] };
                (Known { hash, group: Some(group), state }, operations)
            }
            Err(failure) => {
                let reply: Arc<[u8]> = Reply::Failure(failure).write(name).into();
                self.replies.push_back((to, Arc::clone(&reply)));
                (Known { hash, group: None, state: State::Replied(reply) }, Vec::new())
            }
        };
        let AuthorityOptions { bytes: most, time, .. } = self.options;
        let Err(known) = self.memory.add((name, known), self.at, (most, time)) else {
            return asked;
        };
        if let State::UnderWay { to, .. } = known.state {
            let most = u64::try_from(most).unwrap_or(u64::MAX);
            to.into_iter().for_each(|to| self.refuse(to, name, Failure::Overloaded { most }));
        }
        Vec::new()
    }

    /// Takes the answer to an operation. The last one makes the reply.
    fn answer(&mut self, place: Place, answer: Result<Verdict, Failure>) {
        let Place { question: name, operation } = place;
        let replies = &mut self.replies;
        self.memory.change(name, self.at, |known| {
            let State::UnderWay { answers, left, to } = &mut known.state else { return };
            let Some(place @ None) = answers.get_mut(operation) else { return };
            *place = Some(answer);
            *left = less(*left, 1);
            if *left > 0 {
                return;
            }
            let answers = answers.drain(..).flatten().collect();
            let reply: Arc<[u8]> = Reply::Answers(answers).write(name).into();
            replies.extend(to.drain(..).map(|to| (to, Arc::clone(&reply))));
            known.state = State::Replied(reply);
        });
        let AuthorityOptions { bytes: most, time, .. } = self.options;
        self.memory.forget(self.at, (most, time));
    }
}

/// The operations of a question, all of one [group](Resolved::group).
struct Whole {
    /// A hash of the policy's name and the group.
    group: u64,
    operations: Vec<Queued<Place>>,
}

/// Finds the keys of a question under the authority's revision of the policy.
fn resolve(
    question: Name,
    content: &Content<'_>,
    most: usize,
    policies: &Policies,
    (now, at): (Timestamp, Micros),
) -> Result<Whole, String> {
    let found = content.operations.len();
    if found > most {
        return Err(format!("question: expected at most {most} operations, found {found}"));
    }
    let policy = policies.get(content.policy).ok_or_else(|| {
        format!("`policy`: expected a policy of the authority, found {}", Quoted(content.policy))
    })?;
    let mut operations: Vec<Queued<Place>> = Vec::with_capacity(found);
    for (place, asked) in content.operations.iter().enumerate() {
        // one key after another is usual, and a key is resolved once
        let resolved = match (operations.last(), asked.key) {
            (Some(Queued { resolved: last, .. }), key)
                if last.written_key() == key && last.idempotency().is_none() =>
            {
                last.clone()
            }
            (_, key) => Resolved::new(policy, key).map_err(|error| error.to_string())?,
        };
        let resolved = match asked.idempotency {
            Some(idempotency) => resolved.known_by(idempotency),
            None => resolved,
        };
        if let Some(first) = operations.first()
            && first.resolved.group() != resolved.group()
        {
            let (expected, found) = (first.resolved.group(), resolved.group());
            let (expected, found) = (Quoted(&expected), Quoted(&found));
            return Err(format!("question: expected keys of {expected}, found a key of {found}"));
        }
        let Item { now: own, operation, .. } = *asked;
        let token = Place { question, operation: place };
        operations.push(Queued { resolved, now: own.unwrap_or(now), at, operation, token });
    }
    let group = operations.first().map_or(Cow::Borrowed(""), |first| first.resolved.group());
    let group = fnv1a(content.policy.bytes().chain([0]).chain(group.bytes()));
    Ok(Whole { group, operations })
}

impl<E: fmt::Display> From<authority::Failure<E>> for Failure {
    fn from(failure: authority::Failure<E>) -> Self {
        match failure {
            // the name of a stored record is of no use to a node
            authority::Failure::Transaction(TransactionError::Blob { error, .. }) => {
                Self::Transaction(error.to_string())
            }
            authority::Failure::Transaction(error) => Self::Transaction(error.to_string()),
            authority::Failure::Overloaded { most } => {
                Self::Overloaded { most: u64::try_from(most).unwrap_or(u64::MAX) }
            }
            authority::Failure::TooLate => Self::TooLate,
            authority::Failure::Contended => Self::Contended,
            authority::Failure::Store(error) => Self::Store(error.to_string()),
        }
    }
}
