//! The node's side: operations that wait for the authority, in questions.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::{fmt, mem};

use tidegate_gate::{Id, Micros, Policy, Resolved, Timestamp, Verdict};

use super::Failure;
use super::bytes::WireError;
use super::message::{Item, Name, QuestionWriter, Reply};
use crate::authority::Queued;
use crate::cache::VerdictOf;
use crate::count::less;
use crate::tree::Tree;

/// Who a node is, how long it waits, and how much may wait.
#[derive(Clone, Copy, Debug)]
pub struct NodeOptions {
    /// The id of the node: that of [`cache::Options`](crate::cache::Options). It must differ from the ids of all other
    /// nodes, and from that of an earlier run of this node.
    pub node: Id,
    /// The most operations that wait altogether.
    pub most: usize,
    /// The most operations that wait for one group.
    pub most_of_a_group: usize,
    /// The most questions of one group that are under way at once, at least 1. With 1, all operations that come
    /// meanwhile join the next question. With more, they are sent sooner in more questions. A network that lets one
    /// question overtake another then costs the late one its answers: they are [`Failure::TooLate`]. A policy that
    /// [shares calls](tidegate_gate::Policy::shares_calls) has 1.
    pub most_under_way: usize,
    /// The most operations of a question, at least 1.
    pub most_operations: usize,
    /// The most bytes of a question. A question of one operation may be longer, up to some 700 bytes.
    pub most_bytes: usize,
    /// How long a question waits for its reply, and how long an operation waits for its question.
    pub deadline: Micros,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            node: Id::default(),
            most: 1 << 14,
            most_of_a_group: 1 << 12,
            most_under_way: 1,
            most_operations: 1_024,
            most_bytes: 1 << 16,
            deadline: Micros(1_000_000),
        }
    }
}

impl NodeOptions {
    /// The most questions of this group that are under way at once.
    fn most_under_way(&self, group: &Group) -> usize {
        if group.shares_calls() { 1 } else { self.most_under_way }
    }
}

/// An operation for which a node asks the authority, since the call of [`NodeCache::ask`](crate::NodeCache::ask) or
/// [`NodeCache::poll_transmit`](crate::NodeCache::poll_transmit) for it. Only a test environment gives it a time; without one, the authority
/// decides at its own time.
pub type Outgoing<T> = Queued<T, Option<Timestamp>>;

/// What came of an operation.
#[derive(Clone, Debug)]
pub struct Delivered<T> {
    /// The operation.
    pub asked: Outgoing<T>,
    /// When the answer arrived.
    pub at: Micros,
    /// The authority's verdict, or why there is none.
    pub result: Result<Verdict, Failure>,
}

impl<T> Delivered<T> {
    /// What [`NodeCache::handle_verdict`](crate::NodeCache::handle_verdict) must be told; `None` after a failure.
    #[must_use]
    pub fn verdict_of(&self) -> Option<VerdictOf<'_>> {
        let Self { asked: Outgoing { resolved, operation, at: sent, .. }, at, result } = self;
        let verdict = result.as_ref().ok()?;
        Some(VerdictOf { resolved, operation, verdict, sent: *sent, at: *at })
    }
}

/// Bytes to send to an authority.
#[derive(Clone, Debug)]
pub struct Question {
    /// The number of the question, which no other question of the node has.
    pub number: u64,
    /// A key of the question. Each authority decides for some groups, and all keys of a question have one group.
    pub to: Resolved,
    /// The bytes to send.
    pub bytes: Vec<u8>,
}

/// Why a reply was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ignored {
    /// The bytes are not a reply.
    Unreadable(WireError),
    /// The reply is for another node.
    Foreign(Id),
    /// The question with this number has its answers already, perhaps because its deadline has passed.
    Late(u64),
    /// The reply has another number of answers than its question has operations.
    Answers {
        /// The number of answers.
        found: usize,
        /// The number of operations.
        expected: usize,
    },
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "reply: {error}"),
            Self::Foreign(Id([high, low])) => {
                write!(f, "reply: expected one for this node, found one for {high:016x}{low:016x}")
            }
            Self::Late(number) => {
                write!(
                    f,
                    "reply: expected one to a question without answers, found one to {number}"
                )
            }
            Self::Answers { found, expected } => {
                write!(f, "reply: expected {expected} answers, found {found}")
            }
        }
    }
}

impl core::error::Error for Ignored {}

/// A question under way.
#[derive(Debug)]
struct Flight<T> {
    group: Group,
    operations: Vec<Outgoing<T>>,
    sent: Micros,
}

/// The operations of a node that wait for authorities. The [module](super) says how to drive it.
#[derive(Debug)]
pub struct Outbox<T> {
    options: NodeOptions,
    /// The newest time that the driver has told.
    at: Micros,
    /// The number of the next question.
    number: u64,
    groups: Tree<Group, Queue<T>>,
    /// The groups of which a question may be sent now.
    ready: VecDeque<Group>,
    flights: Tree<u64, Flight<T>>,
    answers: VecDeque<Delivered<T>>,
    /// The number of operations without an answer.
    waiting: usize,
    overloaded: u64,
}

impl<T> Outbox<T> {
    /// No operations wait.
    #[must_use]
    pub const fn new(options: NodeOptions) -> Self {
        Self {
            options,
            at: Micros::ZERO,
            number: 0,
            groups: Tree::new(),
            ready: VecDeque::new(),
            flights: Tree::new(),
            answers: VecDeque::new(),
            waiting: 0,
            overloaded: 0,
        }
    }

    /// Takes an operation. If too many operations wait, the answer is [`Failure::Overloaded`].
    pub fn ask(&mut self, asked: Outgoing<T>) {
        let at = self.advance(asked.at);
        let NodeOptions { most, most_of_a_group, .. } = self.options;
        let group = Group::of(&asked.resolved);
        let most_under_way = self.options.most_under_way(&group);
        let of_group = self.groups.get(&group).map_or(0, |busy| busy.operations);
        for (found, most) in [(self.waiting, most), (of_group, most_of_a_group)] {
            if found >= most {
                self.overloaded = self.overloaded.saturating_add(1);
                let most = u64::try_from(most).unwrap_or(u64::MAX);
                let result = Err(Failure::Overloaded { most });
                return self.answers.push_back(Delivered { asked, at, result });
            }
        }
        self.waiting = self.waiting.saturating_add(1);
        let busy = self.groups.entry(group.clone()).or_default();
        busy.operations = busy.operations.saturating_add(1);
        busy.waiting.push_back(asked);
        if busy.may_send(most_under_way) {
            self.ready.push_back(group);
        }
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) may have a question to send.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The token of the first operation that [`poll_transmit`](Self::poll_transmit) would send.
    #[must_use]
    pub fn first_ready(&self) -> Option<&T> {
        let first = |group| Some(&self.groups.get(group)?.waiting.front()?.token);
        self.ready.iter().find_map(first)
    }

    /// The next question to send. Each is returned once: the node never asks twice for a grant.
    pub fn poll_transmit(&mut self, at: Micros) -> Option<Question> {
        let at = self.advance(at);
        while let Some(group) = self.ready.pop_front() {
            let Some(busy) = self.groups.get_mut(&group) else { continue };
            busy.is_ready = false;
            let too_late = |asked: &Outgoing<T>| is_over(asked.at, at, self.options.deadline);
            let late = busy.waiting.iter().take_while(|asked| too_late(asked)).count();
            for asked in busy.waiting.drain(..late) {
                let result = Err(Failure::TooLate);
                (busy.operations, self.waiting) = (less(busy.operations, 1), less(self.waiting, 1));
                self.answers.push_back(Delivered { asked, at, result });
            }
            let Some((question, operations)) = busy.question(&self.options, self.number) else {
                self.settle(group);
                continue;
            };
            self.number = self.number.saturating_add(1);
            busy.questions = busy.questions.saturating_add(1);
            let flight = Flight { group: group.clone(), operations, sent: at };
            self.flights.insert(question.number, Box::new(flight));
            self.settle(group);
            return Some(question);
        }
        None
    }

    /// Takes the bytes of a reply.
    ///
    /// # Errors
    /// Fails with [`Ignored`] if the reply answers nothing. Any bytes may come, any number of times.
    pub fn handle_reply(&mut self, bytes: &[u8], at: Micros) -> Result<(), Ignored> {
        let at = self.advance(at);
        let (Name { node, number }, reply) = Reply::read(bytes).map_err(Ignored::Unreadable)?;
        if node != self.options.node {
            return Err(Ignored::Foreign(node));
        }
        let flight = self.flights.get(&number).ok_or(Ignored::Late(number))?;
        let expected = flight.operations.len();
        match reply {
            Reply::Failure(failure) => self.fail(number, &failure, at),
            Reply::Answers(answers) if answers.len() == expected => {
                self.land(number, answers, at);
            }
            Reply::Answers(answers) => {
                return Err(Ignored::Answers { found: answers.len(), expected });
            }
        }
        Ok(())
    }

    /// Takes note that no reply to this question will come, for instance because the call has failed. Its operations
    /// get this failure at once: [`Failure::Unknown`], unless the driver knows more.
    pub fn handle_lost(&mut self, number: u64, failure: &Failure, at: Micros) {
        let at = self.advance(at);
        self.fail(number, failure, at);
    }

    /// Gives up the questions whose deadline has come. Their operations get [`Failure::Unknown`].
    pub fn handle_timeout(&mut self, at: Micros) {
        let at = self.advance(at);
        while let Some((number, flight)) = self.flights.first_key_value()
            && is_over(flight.sent, at, self.options.deadline)
        {
            self.fail(*number, &Failure::Unknown, at);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) should be called next; `None` if no question is under way.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Micros> {
        let (_, oldest) = self.flights.first_key_value()?;
        Some(Micros(oldest.sent.0.saturating_add(self.options.deadline.0)))
    }

    /// The next answer.
    pub fn poll_answer(&mut self) -> Option<Delivered<T>> {
        self.answers.pop_front()
    }

    /// The number of operations without an answer.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// The number of groups on which operations wait.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The number of operations that got [`Failure::Overloaded`] from this node.
    #[must_use]
    pub const fn overloaded(&self) -> u64 {
        self.overloaded
    }

    /// The newest time that is known: deadlines stay in order even if the driver's clock goes back.
    fn advance(&mut self, at: Micros) -> Micros {
        self.at = self.at.max(at);
        self.at
    }

    fn fail(&mut self, number: u64, failure: &Failure, at: Micros) {
        let count = self.flights.get(&number).map_or(0, |flight| flight.operations.len());
        self.land(number, (0..count).map(|_| Err(failure.clone())), at);
    }

    /// Ends a question with the answer to each of its operations.
    fn land(
        &mut self,
        number: u64,
        answers: impl IntoIterator<Item = Result<Verdict, Failure>>,
        at: Micros,
    ) {
        let Some(flight) = self.flights.remove(&number) else { return };
        let Flight { group, operations, .. } = *flight;
        self.waiting = less(self.waiting, operations.len());
        if let Some(busy) = self.groups.get_mut(&group) {
            busy.operations = less(busy.operations, operations.len());
            busy.questions = less(busy.questions, 1);
        }
        let answers = operations.into_iter().zip(answers);
        self.answers.extend(answers.map(|(asked, result)| Delivered { asked, at, result }));
        self.settle(group);
    }

    /// A group is ready again if operations wait and another question may be sent, and forgotten if nothing is left.
    fn settle(&mut self, group: Group) {
        let Some(busy) = self.groups.get_mut(&group) else { return };
        if busy.operations == 0 {
            self.groups.remove(&group);
        } else if busy.may_send(self.options.most_under_way(&group)) {
            self.ready.push_back(group);
        }
    }
}

/// Whether this much time has passed.
const fn is_over(since: Micros, at: Micros, span: Micros) -> bool {
    at.0.saturating_sub(since.0) >= span.0
}

/// A [group](Resolved::group) under all revisions of a policy: they have one authority, and order per key is kept among
/// them.
#[derive(Clone, Debug)]
struct Group {
    policy: Arc<Policy>,
    name: Arc<str>,
}

impl Group {
    fn of(resolved: &Resolved) -> Self {
        Self { policy: Arc::clone(resolved.policy()), name: resolved.group().into() }
    }

    fn shares_calls(&self) -> bool {
        self.policy.shares_calls()
    }

    fn parts(&self) -> (&str, bool, &str) {
        (self.policy.name(), self.shares_calls(), &self.name)
    }
}

impl Ord for Group {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for Group {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Group {}

/// The operations on a group.
#[derive(Debug)]
struct Queue<T> {
    /// The operations that are in no question yet.
    waiting: VecDeque<Outgoing<T>>,
    /// The number of operations without an answer.
    operations: usize,
    /// The number of questions under way.
    questions: usize,
    /// Whether the group is in the queue of those that may send.
    is_ready: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), operations: 0, questions: 0, is_ready: false }
    }
}

impl<T> Queue<T> {
    /// Whether the group becomes ready. A group that is ready already does not become it again.
    fn may_send(&mut self, most_under_way: usize) -> bool {
        let may = !self.waiting.is_empty() && self.questions < most_under_way.max(1);
        may && !mem::replace(&mut self.is_ready, true)
    }

    /// Puts as many of the waiting operations into a question as may be in one. The first always may.
    fn question(
        &mut self,
        options: &NodeOptions,
        number: u64,
    ) -> Option<(Question, Vec<Outgoing<T>>)> {
        let to = self.waiting.front()?.resolved.clone();
        let name = Name { node: options.node, number };
        let mut question = QuestionWriter::new(name, to.policy().name());
        let mut count = 0_usize;
        for asked in self.waiting.iter().take(options.most_operations.max(1)) {
            let most = if count == 0 { usize::MAX } else { options.most_bytes };
            let Outgoing { now, operation, .. } = *asked;
            // another revision of the policy may find another rule for the canonical key
            let key = asked.resolved.written_key();
            let idempotency = asked.resolved.idempotency();
            if !question.add(&Item { key, now, operation, idempotency }, most) {
                break;
            }
            count = count.saturating_add(1);
        }
        let bytes = question.finish();
        let operations = self.waiting.drain(..count).collect();
        Some((Question { number, to, bytes }, operations))
    }
}
