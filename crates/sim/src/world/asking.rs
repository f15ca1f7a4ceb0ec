//! Operations from their callers to an authority, and the answers back.

use tidegate_gate::{
    Class, Draw, Id, Micros, Offered, Operation, Request, Resolved, Rule, Settlement, Share,
    Timestamp, Verdict,
};
use tidegate_tier::authority::{Failure, Queued};
use tidegate_tier::cache::{Next, VerdictOf};

use super::act::Act;
use super::known::Question;
use super::machine::World;
use super::node::Fault;
use super::violation::{Checked, Invariant, Seen, check};

/// The most grants that callers remember, to settle them.
const MOST_GRANTS: usize = 64;

/// An answer and the number of its operation.
pub(super) type Answer = (usize, Result<Verdict, Failure<Fault>>);

/// An operation that a caller asked for, or the node itself.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) node: usize,
    /// The run of the node's local part.
    run: u64,
    /// The node whose authority decides.
    pub(super) authority: usize,
    pub(super) key: usize,
    pub(super) time: Timestamp,
    pub(super) operation: Operation,
    /// The step, and the time of the world.
    pub(super) asked_in: usize,
    asked_at: u64,
    /// The same by the monotonic clocks of the node and of the authority.
    pub(super) sent: Micros,
    pub(super) at: Micros,
    /// The operation whose units this one settles or gives back.
    pub(super) settles: Option<usize>,
    pub(super) state: Progress,
    /// The caller went away.
    pub(super) is_gone: bool,
    /// The authority has asked whether the caller is gone.
    pub(super) is_seen: bool,
    /// When and for how much the caller was granted something.
    granted: Option<(Timestamp, u64)>,
    /// The operation that took the units out of which a node granted this one.
    pub(super) taken_by: Option<usize>,
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
        let Some((key, operation, settles)) = self.operation(node, key, act) else {
            return Ok(());
        };
        let number = self.begin(node, key, operation);
        self.operations[number].settles = settles;
        if settles.is_none() {
            self.operations[number].settles = self.asks_for_units(number)?;
        }
        let Asking { time, sent, .. } = self.operations[number];
        let resolved = &self.places.keys[key].resolved;
        if !self.setup.has_locals {
            return self.pass_on(number);
        }
        let budget = match self.nodes[node].local.ask(resolved, &operation, time, sent) {
            Next::Forward { budget } => budget,
            Next::Answer(answer) => {
                let (verdict, decision) = (answer.verdict(), answer.decision());
                check(verdict.decision == decision, Invariant::Remembered, || {
                    format!("number {number} was answered with {decision:?} and {verdict:?}")
                })?;
                return self.answered_by_node(number, verdict);
            }
        };
        self.nodes[node].known.passes(key, &operation, sent);
        self.pass_on(number)?;
        let Some(budget) = budget else { return Ok(()) };
        let number = self.begin(node, key, budget);
        self.operations[number].settles = self.asks_for_units(number)?;
        self.nodes[node].known.passes(key, &budget, sent);
        self.pass_on(number)
    }

    /// A new operation on a key.
    fn begin(&mut self, node: usize, key: usize, operation: Operation) -> usize {
        let authority = self.setup.topology.authority_of(node);
        self.operations.push(Asking {
            node,
            run: self.nodes[node].run.1,
            authority,
            key,
            time: self.time_of(node),
            operation,
            asked_in: self.step,
            asked_at: self.now,
            sent: self.monotonic(node),
            at: self.monotonic(authority),
            settles: None,
            state: Progress::Waiting,
            is_gone: false,
            is_seen: false,
            granted: None,
            taken_by: None,
        });
        self.operations.len() - 1
    }

    fn answered_by_node(&mut self, number: usize, verdict: Verdict) -> Checked {
        self.operations[number].state = Progress::Answered;
        let Asking { key, time, .. } = self.operations[number];
        if let Rule::Listed(decision) = self.places.keys[key].resolved.rule() {
            let said = Verdict::listed(time, decision);
            return check(verdict == said, Invariant::Reason, || {
                format!("number {number}: expected {said:?}, found {verdict:?}")
            });
        }
        match verdict.decision.is_allowed() {
            true => self.check_spent(number, &verdict)?,
            false => self.check_repeated(number, &verdict)?,
        }
        self.remember_grant(number, &verdict);
        Ok(())
    }

    /// The authority takes an operation.
    fn pass_on(&mut self, number: usize) -> Checked {
        let Asking { authority, key, time, at, operation, .. } = self.operations[number];
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
        if !waits.partitions[partition].has_work() && !waits.partitions[partition].is_flying {
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
        while let Some((number, answer)) = self.nodes[authority].authority.poll_answer() {
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
                self.remember_grant(number, verdict);
                self.arrive(number, verdict.clone());
            }
            answers.push((number, answer));
        }
        Ok(answers)
    }

    /// A verdict arrives at the node that asked. A node that is stopped reads it later.
    fn arrive(&mut self, number: usize, verdict: Verdict) {
        let Asking { node, run, .. } = self.operations[number];
        if self.nodes[node].run.1 != run {
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
        let at = self.monotonic(node);
        let resolved = &self.places.keys[key].resolved;
        let question = Question { key, operation, sent, sent_at: asked_at };
        let hears = &mut self.nodes[node];
        hears.known.hears(question, verdict, at);
        if self.setup.has_locals {
            hears.local.handle_verdict(&VerdictOf { resolved, operation, verdict, sent, at });
        }
    }

    fn remember_grant(&mut self, number: usize, verdict: &Verdict) {
        let asking = &mut self.operations[number];
        if let Operation::Decide(request) = asking.operation
            && verdict.decision.is_allowed()
            && request.cost > 0
            && !verdict.limits.is_empty()
        {
            asking.granted = Some((verdict.at, request.cost));
            self.grants.push(number);
            if self.grants.len() > MOST_GRANTS {
                self.grants.remove(0);
            }
        }
    }

    /// The key of an act under the node's revision of the policies, its operation, and the operation that it
    /// settles.
    fn operation(
        &mut self,
        node: usize,
        key: usize,
        act: Act,
    ) -> Option<(usize, Operation, Option<usize>)> {
        let (mut key, mut settles, mut granted) = (key, None, None);
        if let Act::Settle(index, _) = act {
            let of = self.grants.remove(index.checked_rem(self.grants.len())?);
            let asking = &self.operations[of];
            (key, granted) = (asking.key, asking.granted);
            settles = Some(asking.taken_by.unwrap_or(of));
        }
        key = key % self.places.of_revision + self.nodes[node].revision * self.places.of_revision;
        let operation = match act {
            Act::Settle(_, actual) => {
                let (granted_at, reserved) = granted.unwrap_or_default();
                Operation::Settle(Settlement { granted_at, reserved, actual })
            }
            Act::Borrow { holder, wants, left } => {
                let holder = Id([u64::MAX, holder]);
                self.lending.borrow(key, holder, wants, left)
            }
            act => operation(act, &self.places.keys[key].resolved, self.time_of(node)),
        };
        Some((key, operation, settles))
    }
}

/// The operation of an act that concerns no earlier one.
pub(super) fn operation(act: Act, resolved: &Resolved, now: Timestamp) -> Operation {
    let lease = |number: u64| resolved.lease_id(&number.to_string());
    let asked_for = |cost| Request { lease: Some(lease(0)), ..Request::of(cost) };
    match act {
        Act::Take(units) => Operation::Decide(asked_for(units)),
        Act::Ranked { units, class, signal_ppm, draw } => {
            let classes = resolved.policy().classes();
            let name = class.checked_rem(classes.len()).and_then(|class| classes.get(class));
            let class = name.and_then(|name| resolved.policy().class(name)).unwrap_or(Class(0));
            let (signal, draw) = (Share::from_ppm(signal_ppm), Draw(draw));
            let lease = Some(lease(draw.0.into()));
            Operation::Decide(Request { class, signal, draw, lease, ..Request::of(units) })
        }
        Act::Peek(units) => Operation::Peek(asked_for(units)),
        Act::Acquire(number) => {
            Operation::Decide(Request { lease: Some(lease(number)), ..Request::of(1) })
        }
        Act::Heartbeat(number) => Operation::Heartbeat(lease(number)),
        Act::Count(owner, count) => Operation::Count(lease(owner), count),
        Act::Release(number) => Operation::Release(lease(number)),
        Act::Refund(units) => Operation::Refund(units),
        Act::Report { admitted, suppressed, age } => {
            let at = (age > 0).then(|| Timestamp(now.0.saturating_sub(age)));
            Operation::Report(Offered { at, admitted, suppressed })
        }
        Act::Reset(depth) => Operation::Reset(depth),
        Act::Block(span) => Operation::Block(Micros(span)),
        Act::Settle(..) | Act::Borrow { .. } => Operation::from(0), // they concern earlier ones
    }
}

/// The answers must be these, in this order.
pub(super) fn same(answers: &[Answer], expected: &[Answer], invariant: Invariant) -> Checked {
    check(answers == expected, invariant, || {
        format!("answered: {answers:?}; expected: {expected:?}")
    })
}
