//! Operations from their callers to an authority, and the answers back.

use tidegate_gate::{Micros, Operation, Rule, Timestamp, Verdict};
use tidegate_tier::authority::{Failure, Queued};
use tidegate_tier::cache::{NodeStep, Transmit, VerdictOf};

use super::machine::World;
use super::node::{Fault, Letter};
use crate::world::act::Act;
use crate::world::front::{Front, Run, verdict_of};
use crate::world::violation::{Checked, Invariant, Seen, check};

/// An answer and the number of its operation.
pub(super) type Answer = (usize, Result<Verdict, Failure<Fault>>);

/// An operation that a caller asked for, or the node itself.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) node: usize,
    /// The run of the node's cache.
    pub(super) run: Run,
    /// The node whose authority decides.
    pub(super) authority: usize,
    pub(super) key: usize,
    pub(super) time: Timestamp,
    pub(super) operation: Operation,
    /// The step, and the time of the world.
    pub(super) asked_in: usize,
    pub(super) asked_at: u64,
    /// The same by the monotonic clocks of the node and of the authority.
    pub(super) sent: Micros,
    pub(super) at: Micros,
    /// The operation whose units this one gives back.
    pub(super) returns: Option<usize>,
    pub(super) state: Progress,
    /// The caller went away.
    pub(super) is_gone: bool,
    /// The authority has asked whether the caller is gone.
    pub(super) is_seen: bool,
}

/// Whether an operation waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Waiting,
    Answered,
    /// The authority left it out, because its caller is gone.
    Dropped,
    /// The authority's node crashed.
    Lost,
}

impl World {
    /// A caller asks a node. The node answers by itself, or passes the operation on.
    pub(super) fn ask(&mut self, node: usize, key: usize, act: Act) -> Checked {
        let node = node % self.nodes.len();
        if !self.runs(node) {
            return Ok(());
        }
        let (time, revision) = (self.time_of(node), self.nodes[node].front.revision);
        let asked = self.grants.operation((&self.places, revision), key, act, time);
        let Some((key, operation)) = asked else { return Ok(()) };
        let (of, sent) = ((key, &self.places.keys[key].resolved), self.storage_now());
        if !self.offered.asks(of, &operation, (sent, sent + self.setup.linger)) {
            return Ok(());
        }
        let number = self.begin(node, key, operation)?;
        if !self.setup.has_caches {
            return self.pass_on(number);
        }
        let (sent, resolved) = (self.operations[number].sent, &self.places.keys[key].resolved);
        let NodeStep { answer, own } = self.nodes[node].cache.ask(resolved, &operation, time, sent);
        match answer {
            Some(answer) => self.answered_by_node(number, &verdict_of(&answer)?)?,
            None => {
                if let Operation::Reset(_) = operation {
                    self.offered.forget((self.nodes[node].front.run, key));
                }
                self.pass_on(number)?;
            }
        }
        own.into_iter().try_for_each(|own| self.ask_for_node(node, &own))
    }

    /// A node asks for something itself: for units, or for a report to be counted.
    pub(super) fn ask_for_node(&mut self, node: usize, own: &Transmit) -> Checked {
        let Front { run, revision, .. } = self.nodes[node].front;
        let unknown = || Seen(Invariant::Reason, format!("a node asks for {own:?}"));
        let key = self.places.key_of(&own.resolved, revision).ok_or_else(unknown)?;
        match &own.operation {
            Operation::Budget(_) => {}
            Operation::Report(load) => {
                self.offered.report((run, key), load)?;
                self.tally.add("a node reported a load");
            }
            _ => return Err(unknown()),
        }
        let number = self.begin(node, key, own.operation)?;
        self.pass_on(number)
    }

    /// A new operation on a key.
    pub(super) fn begin(
        &mut self,
        node: usize,
        key: usize,
        operation: Operation,
    ) -> Result<usize, Seen> {
        let mut returns = None;
        if self.setup.is_bounded {
            returns = self.grants.lending.give_back(key, &operation)?;
            if returns.is_some() {
                self.tally.add("a holder gave units back");
            }
        }
        let authority = if self.setup.asks_first { 0 } else { node };
        self.operations.push(Asking {
            node,
            run: self.nodes[node].front.run,
            authority,
            key,
            time: self.time_of(node),
            operation,
            asked_in: self.step,
            asked_at: self.now,
            sent: self.monotonic(node),
            at: self.monotonic(authority),
            returns,
            state: Progress::Waiting,
            is_gone: false,
            is_seen: false,
        });
        Ok(self.operations.len() - 1)
    }

    /// The authority takes an operation.
    fn pass_on(&mut self, number: usize) -> Checked {
        let Asking { node, authority, key, time, sent, at, operation, .. } =
            self.operations[number];
        self.nodes[node].front.known.passes(key, &operation, sent);
        if self.is_table() {
            self.letters.post(self.now, Letter::Question(number));
            return Ok(());
        }
        let (resolved, partition) =
            (self.places.keys[key].resolved.clone(), self.places.keys[key].partition);
        let listed = match resolved.rule() {
            Rule::Listed(decision) => Some(Verdict::listed(time, decision)),
            Rule::Limited(..) => None,
        };
        self.waiting.push(number);
        let decides = &mut self.nodes[authority];
        decides.authority.ask(Queued { resolved, now: time, at, operation, token: number });
        let is_overloaded = listed.is_none() && decides.waiting >= self.setup.most_waiting;
        decides.waiting += 1;
        let answers = self.take_answers(authority)?;
        if let Some(listed) = listed {
            self.tally.add("a listed key was asked about");
            return same(&answers, &[(number, Ok(listed))], Invariant::Reason);
        }
        if is_overloaded {
            let most = self.setup.most_waiting;
            self.nodes[authority].overloaded += 1;
            self.tally.add("an operation was one too many");
            return same(
                &answers,
                &[(number, Err(Failure::Overloaded { most }))],
                Invariant::Reason,
            );
        }
        let waits = &mut self.nodes[authority];
        if !waits.partitions[partition].has_work() && !waits.partitions[partition].is_swapping {
            waits.ready.push_back(partition);
        }
        waits.partitions[partition].waiting.push_back(number);
        check(answers.is_empty(), Invariant::Reason, || {
            format!("answered before anything was read: {answers:?}")
        })
    }

    /// Takes the answers of an authority. Each must be the first to an operation that waits there.
    pub(super) fn take_answers(&mut self, authority: usize) -> Result<Vec<Answer>, Seen> {
        let mut answers = Vec::new();
        while let Some((number, answer, _)) = self.nodes[authority].authority.poll_answer() {
            let Some(asking) = self.operations.get_mut(number) else {
                return Err(Seen(Invariant::Once, format!("nobody asked for number {number}")));
            };
            let waits = asking.state == Progress::Waiting && asking.authority == authority;
            check(waits, Invariant::Once, || {
                format!("number {number} was answered with {answer:?} and is {:?}", asking.state)
            })?;
            asking.state = Progress::Answered;
            self.nodes[authority].waiting -= 1;
            if let Ok(verdict) = &answer {
                let Asking { key, ref operation, .. } = self.operations[number];
                self.grants.note(key, operation, verdict);
                self.arrive(number, verdict.clone());
            }
            answers.push((number, answer));
        }
        Ok(answers)
    }

    /// A verdict arrives at the node that asked. A node that is stopped reads it later.
    pub(super) fn arrive(&mut self, number: usize, verdict: Verdict) {
        let Asking { node, run, .. } = self.operations[number];
        if self.nodes[node].front.run != run {
            return; // it is another run of the node
        }
        match self.runs(node) {
            true => self.hear(number, &verdict),
            false => self.nodes[node].inbox.push((number, verdict)),
        }
    }

    /// The nodes that go on read the answers that came meanwhile.
    pub(super) fn read_inboxes(&mut self) {
        for node in 0..self.nodes.len() {
            if self.runs(node) {
                for (number, verdict) in std::mem::take(&mut self.nodes[node].inbox) {
                    self.hear(number, &verdict);
                }
            }
        }
    }

    fn hear(&mut self, number: usize, verdict: &Verdict) {
        let Asking { node, key, sent, asked_at, ref operation, .. } = self.operations[number];
        if self.setup.has_caches {
            let resolved = &self.places.keys[key].resolved;
            let heard = VerdictOf { resolved, operation, verdict, sent, at: self.monotonic(node) };
            self.nodes[node].front.known.hears((key, asked_at), &heard);
            self.nodes[node].cache.handle_verdict(&heard);
        }
    }
}

/// The answers must be these, in this order.
pub(super) fn same(answers: &[Answer], expected: &[Answer], invariant: Invariant) -> Checked {
    check(answers == expected, invariant, || {
        format!("answered: {answers:?}; expected: {expected:?}")
    })
}
