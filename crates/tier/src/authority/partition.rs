//! The operations on one partition, from their arrival to their answers.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use compact_str::CompactString;
use tidegate_gate::{
    Answered, Due, KeySlots, Micros, OnError, Operation, Policy, Resolved, Timestamp, Transaction,
    Used, Verdict, Write, never,
};

use super::ask::{Completion, Failure, OnFailure, Queued};
use crate::count::less;

/// How many operations may wait for one partition.
const MOST_WAITING: usize = 16_384;

/// How many of them may be on one key: half, so that one key cannot take all places from the others.
const MOST_OF_A_KEY: usize = MOST_WAITING / 2;

/// How many records the operations of one swap may need. The store is blocked for some µs for each of them.
const MOST_SLICES: usize = 2_048;

/// A transaction with more records is forgotten before the next operations. Otherwise a partition that is never idle
/// could remember every key.
const MOST_REMEMBERED: usize = MOST_SLICES / 2;

/// An allocation with room for more operations is not kept for other partitions.
const MOST_SPARE: usize = 64;

/// A partition under one revision of a policy.
#[derive(Debug)]
pub(super) struct Partition<T> {
    pub(super) policy: Arc<Policy>,
    pub(super) name: CompactString,
    is_only_writer: bool,
    pub(super) transaction: Transaction,
    /// The slots of the key that was asked about last.
    joined: Option<KeySlots>,
    /// `None` while nothing waits.
    busy: Option<Box<Queue<T>>>,
    /// Since the last search for partitions to forget.
    pub(super) was_used: bool,
}

/// What a partition needs only while operations wait.
#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: VecDeque<Queued<T>>,
    of_each_key: OfEachKey,
    /// The operations of the present swap, with the answers that wait for it. `None` while an only writer reads
    /// what it must know to decide.
    decided: Vec<(Queued<T>, Option<Verdict>)>,
    /// When other writers first came before the present swap.
    lost_since: Option<Micros>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            of_each_key: OfEachKey::default(),
            decided: Vec::new(),
            lost_since: None,
        }
    }
}

impl<T> Queue<T> {
    /// The number of operations that are not answered.
    pub(super) fn len(&self) -> usize {
        self.waiting.len().saturating_add(self.decided.len())
    }
}

/// How many operations on each key have no answer. Only partitions of several keys count.
#[derive(Debug, Default)]
struct OfEachKey(BTreeMap<CompactString, usize>);

impl OfEachKey {
    fn count(&self, key: &str) -> usize {
        self.0.get(key).copied().unwrap_or(0)
    }

    fn add(&mut self, key: &str) {
        let count = self.0.entry(CompactString::new(key)).or_default();
        *count = count.saturating_add(1);
    }

    /// An operation gets its answer: returns its token.
    fn remove<T>(&mut self, asked: Queued<T>) -> T {
        if let Some(count) = self.0.get_mut(asked.resolved.key()) {
            *count = less(*count, 1);
            if *count == 0 {
                self.0.remove(asked.resolved.key());
            }
        }
        asked.token
    }
}

impl<T> Partition<T> {
    pub(super) fn new(resolved: &Resolved, is_only_writer: bool) -> Self {
        Self {
            policy: Arc::clone(resolved.policy()),
            name: CompactString::new(resolved.partition()),
            is_only_writer,
            transaction: new_transaction(is_only_writer),
            joined: None,
            busy: None,
            was_used: true,
        }
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.busy.is_none()
    }

    /// The number of operations that are not answered.
    pub(super) fn len(&self) -> usize {
        self.busy.as_ref().map_or(0, |busy| busy.len())
    }

    /// The bytes of memory that the partition takes while it is idle.
    pub(super) fn bytes(&self) -> usize {
        let name = if self.name.is_heap_allocated() { self.name.capacity() } else { 0 };
        let joined = self.joined.as_ref().map_or(0, KeySlots::bytes);
        [name, joined, self.transaction.bytes()]
            .into_iter()
            .fold(size_of::<Self>(), usize::saturating_add)
    }

    /// Begins to wait.
    pub(super) fn wake(&mut self, busy: Box<Queue<T>>) {
        self.busy = Some(busy);
    }

    /// Ends the waiting. The allocation may serve another partition next, unless a flood has made it large.
    pub(super) fn rest(&mut self) -> Option<Box<Queue<T>>> {
        let mut busy = self.busy.take()?;
        busy.lost_since = None;
        let most = busy.waiting.capacity().max(busy.decided.capacity());
        (most <= MOST_SPARE).then_some(busy)
    }

    /// Adds an operation. If too many wait, gives back the token and how many may wait.
    pub(super) fn push(&mut self, asked: Queued<T>) -> Result<(), (T, usize)> {
        self.was_used = true;
        let is_shared = self.policy.shares_states();
        let Some(busy) = &mut self.busy else { return Err((asked.token, 0)) };
        let of_key = match is_shared {
            true => busy.of_each_key.count(asked.resolved.key()),
            false => busy.len(),
        };
        for (found, most) in [(of_key, MOST_OF_A_KEY), (busy.len(), MOST_WAITING)] {
            if found >= most {
                return Err((asked.token, most));
            }
        }
        if is_shared {
            busy.of_each_key.add(asked.resolved.key());
        }
        busy.waiting.push_back(asked);
        Ok(())
    }

    /// Decides what waits, in order, on the states last seen. An only writer does not guess: if it does not know the
    /// states of the first operation, it has to read before it decides. What was asked before `too_late` is not
    /// decided. Returns the number of operations that are left out because their callers are gone.
    pub(super) fn decide<E>(
        &mut self,
        (now, too_late): (Option<Timestamp>, Micros),
        is_gone: impl Fn(&T) -> bool,
        answers: &mut VecDeque<Completion<T, E>>,
    ) -> usize {
        let Self { transaction, joined, busy, is_only_writer, .. } = self;
        let Some(busy) = busy else { return 0 };
        if busy.decided.is_empty() && transaction.len() > MOST_REMEMBERED {
            (*transaction, *joined) = (new_transaction(*is_only_writer), None);
        }
        let Queue { waiting, decided, of_each_key, .. } = &mut **busy;
        let mut gone = 0_usize;
        // an only writer that has read goes on with what it has read for
        let has_read = *is_only_writer && !decided.is_empty();
        let mut reads = None;
        while !has_read
            && transaction.len() < MOST_SLICES
            && let Some(asked) = waiting.pop_front()
        {
            if is_droppable(&asked.operation) && is_gone(&asked.token) {
                of_each_key.remove(asked);
                gone = gone.saturating_add(1);
                continue;
            }
            if asked.at < too_late {
                answers.push_back((of_each_key.remove(asked), Err(Failure::TooLate), None));
                continue;
            }
            let own = joined_of(transaction, joined, &asked.resolved);
            if *is_only_writer {
                let is_known = transaction.knows(own);
                if *reads.get_or_insert(!is_known) {
                    transaction.touch(own);
                    decided.push((asked, None));
                    continue;
                }
                if !is_known {
                    waiting.push_front(asked);
                    break;
                }
            }
            let answer = match transaction.operate(own, asked.time(now), &asked.operation) {
                Ok(Answered { verdict, is_settled }) if is_settled && *is_only_writer => {
                    Ok(verdict)
                }
                Ok(Answered { verdict, .. }) => {
                    decided.push((asked, Some(verdict)));
                    continue;
                }
                Err(error) => Err(Failure::Transaction(error)),
            };
            answers.push_back((of_each_key.remove(asked), answer, None));
        }
        gone
    }

    /// What the store must hold, and what it must write.
    pub(super) fn records(&mut self) -> impl Iterator<Item = Used<'_>> {
        self.transaction.used()
    }

    /// Whether an answer or a write waits for a swap.
    pub(super) fn needs_swap(&mut self) -> bool {
        let waits = self.busy.as_ref().is_some_and(|busy| !busy.decided.is_empty());
        // the newest time of a refusal is for other writers: an authority that starts again has a later clock
        let is_due = |write: Write<'_>| !self.is_only_writer || write.due == Due::BeforeAnswer;
        waits || self.transaction.writes().any(is_due)
    }

    /// The writes are stored: answers what was decided. If nothing was, because an only writer has read that
    /// nothing is stored, decides now.
    pub(super) fn swapped<E>(
        &mut self,
        expires_at: impl Fn(&Used<'_>) -> Micros,
        now: Option<Timestamp>,
        answers: &mut VecDeque<Completion<T, E>>,
    ) {
        self.transaction.stored(expires_at);
        if self.reads() {
            return self.decide_on_found(now, answers);
        }
        if let Some(busy) = &mut self.busy {
            busy.lost_since = None;
            let Queue { decided, of_each_key, .. } = &mut **busy;
            for (asked, verdict) in decided.drain(..) {
                // nothing was decided, or all was
                let answer = verdict.ok_or_else(|| never(Failure::Contended));
                answers.push_back((of_each_key.remove(asked), answer, None));
            }
        }
    }

    /// Whether the present swap reads what an only writer must know to decide.
    fn reads(&self) -> bool {
        let first = self.busy.as_ref().and_then(|busy| busy.decided.first());
        first.is_some_and(|(_, verdict)| verdict.is_none())
    }

    /// For how long other writers have come first. To an only writer, none may come after it has read.
    pub(super) fn lost_for(&mut self, at: Micros) -> Micros {
        if self.is_only_writer {
            return if self.reads() { Micros::ZERO } else { Micros(u64::MAX) };
        }
        let since = self.busy.as_mut().map_or(at, |busy| *busy.lost_since.get_or_insert(at));
        Micros(at.0.saturating_sub(since.0))
    }

    /// Other bytes were found: does the operations again on them.
    pub(super) fn found<E>(
        &mut self,
        found: Vec<Option<Vec<u8>>>,
        now: Option<Timestamp>,
        answers: &mut VecDeque<Completion<T, E>>,
    ) {
        self.transaction.found(found);
        self.decide_on_found(now, answers);
    }

    /// Decides the operations of the swap on the bytes that were found. These were read after the operations
    /// came, so an answer that depends on no write is sent at once.
    fn decide_on_found<E>(
        &mut self,
        now: Option<Timestamp>,
        answers: &mut VecDeque<Completion<T, E>>,
    ) {
        let Self { transaction, joined, busy, .. } = self;
        let Some(busy) = busy else { return };
        let Queue { decided, of_each_key, .. } = &mut **busy;
        for (asked, _) in mem::take(decided) {
            let own = joined_of(transaction, joined, &asked.resolved);
            let answer = match transaction.operate(own, asked.time(now), &asked.operation) {
                Ok(Answered { verdict, is_settled: true }) => Ok(verdict),
                Ok(Answered { verdict, .. }) => {
                    decided.push((asked, Some(verdict)));
                    continue;
                }
                Err(error) => Err(Failure::Transaction(error)),
            };
            answers.push_back((of_each_key.remove(asked), answer, None));
        }
        transaction.forget_unreadable(); // somebody may mend them
    }

    /// Nothing was written. Decides each operation alone on the bytes that were found. An operation that then
    /// takes nothing gets this answer, so a refusal stays a refusal and a repeat gets the kept answer. The others get the failure.
    pub(super) fn give_up<E: Clone>(
        &mut self,
        found: &[Option<Vec<u8>>],
        (now, failure): (Option<Timestamp>, &Failure<E>),
        (on_error, answers): (&mut OnFailure<'_>, &mut VecDeque<Completion<T, E>>),
    ) {
        let names: Vec<String> = self.transaction.used().map(|used| used.name.into()).collect();
        let mut of_name = BTreeMap::new();
        of_name.extend(names.into_iter().zip(found)); // `collect` would sort, which takes more code
        let found: BTreeMap<String, &Option<Vec<u8>>> = of_name;
        let Some(busy) = &mut self.busy else { return };
        let Queue { decided, of_each_key, .. } = &mut **busy;
        for (asked, _) in decided.drain(..) {
            let mut alone = Transaction::default();
            let joined = alone.join(&asked.resolved);
            let own: Vec<Option<Vec<u8>>> =
                alone.names().map(|name| found.get(name).and_then(|&own| own.clone())).collect();
            alone.load(own);
            let (answer, cause) = match alone.operate(&joined, asked.time(now), &asked.operation) {
                Ok(Answered { verdict, .. }) if takes_nothing(&asked.operation, &verdict) => {
                    (Ok(verdict), None)
                }
                // a repeat, whose answer was kept
                Ok(Answered { verdict, is_settled: true })
                    if asked.resolved.idempotency().is_some() =>
                {
                    (Ok(verdict), None)
                }
                _ => on_error.answer(&asked, Some(&alone), failure),
            };
            answers.push_back((of_each_key.remove(asked), answer, cause));
        }
        self.forget();
    }

    /// Nobody knows what was written.
    pub(super) fn failed<E: Clone>(
        &mut self,
        failure: &Failure<E>,
        (on_error, answers): (&mut OnFailure<'_>, &mut VecDeque<Completion<T, E>>),
    ) {
        let Self { busy, transaction, .. } = self;
        if let Some(busy) = busy {
            let Queue { decided, of_each_key, .. } = &mut **busy;
            for (asked, _) in decided.drain(..) {
                let (answer, cause) = on_error.answer(&asked, Some(transaction), failure);
                answers.push_back((of_each_key.remove(asked), answer, cause));
            }
        }
        self.forget();
    }

    /// The store is known not to answer.
    pub(super) fn fail_waiting<E: Clone>(
        &mut self,
        failure: &Failure<E>,
        (on_error, answers): (&mut OnFailure<'_>, &mut VecDeque<Completion<T, E>>),
    ) {
        self.failed(failure, (on_error, answers));
        let Self { busy, transaction, .. } = self;
        if let Some(busy) = busy {
            let Queue { waiting, of_each_key, .. } = &mut **busy;
            for asked in waiting.drain(..) {
                let (answer, cause) = on_error.answer(&asked, Some(transaction), failure);
                answers.push_back((of_each_key.remove(asked), answer, cause));
            }
        }
    }

    /// Forgets what was decided. What was seen last is of use in an outage; a swap compares it in any case.
    fn forget(&mut self) {
        if self.policy.on_error() == OnError::Local && !self.is_only_writer {
            self.transaction.revert();
        } else {
            (self.transaction, self.joined) = (new_transaction(self.is_only_writer), None);
        }
        if let Some(busy) = &mut self.busy {
            busy.lost_since = None;
        }
    }
}

fn new_transaction(is_only_writer: bool) -> Transaction {
    if is_only_writer { Transaction::of_only_writer() } else { Transaction::default() }
}

/// The joined of a key, which is often the key that was asked about last.
#[inline]
fn joined_of<'s>(
    transaction: &mut Transaction,
    last: &'s mut Option<KeySlots>,
    resolved: &Resolved,
) -> &'s KeySlots {
    if last.as_ref().is_none_or(|joined| !joined.is_of(resolved)) {
        *last = None;
    }
    last.get_or_insert_with(|| transaction.join(resolved))
}

/// Whether an operation need not be done once its caller is gone. Other operations report what has
/// happened, such as the end of a lease.
const fn is_droppable(operation: &Operation) -> bool {
    matches!(operation, Operation::Decide(_) | Operation::Peek(_) | Operation::Explain(_))
}

fn takes_nothing(operation: &Operation, verdict: &Verdict) -> bool {
    let is_refused = matches!(operation, Operation::Decide(_)) && !verdict.decision.is_allowed();
    is_refused || operation.is_peek()
}
