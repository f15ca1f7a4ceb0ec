//! Random histories of several nodes and one authority, with clocks that differ and messages that are late, lost or
//! out of order.

mod mixed;
mod refusals;
mod reports;
mod units;

use alloc::collections::BTreeMap;
use alloc::vec;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tidegate_gate::{Budget, Effect, Offered};

use super::*;

const NODES: usize = 3;
const KEYS: [&str; 2] = ["acme/alice", "acme/bob"];

/// A question that a node gets, and the fate of the messages that follow.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// The span since the step before, in µs.
    gap: u64,
    node: usize,
    key: usize,
    operation: Operation,
    request: Fate,
    budget: Fate,
    /// The node stops first and starts again as another one.
    restarts: bool,
}

/// How long a question and its answer take, in µs. `None` if they are lost.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    there: Option<u64>,
    back: Option<u64>,
    /// The answer arrives a second time after that.
    again: Option<u64>,
}

impl Step {
    /// The cost of the request.
    fn cost(&self) -> u64 {
        match self.operation {
            Operation::Decide(request) | Operation::Peek(request) => request.cost,
            other => panic!("{other:?} has no cost"),
        }
    }
}

/// Requests that cost 1, or up to `costs`.
fn requests(costs: u64) -> impl Strategy<Value = Operation> {
    let cost = prop_oneof![2 => Just(1), 1 => 1..=costs];
    (cost, prop::bool::weighted(0.1)).prop_map(|(cost, peeks)| match peeks {
        true => Operation::Peek(request(cost)),
        false => Operation::from(cost),
    })
}

fn steps(
    most_gap: u64,
    operations: impl Strategy<Value = Operation>,
    most_steps: usize,
) -> impl Strategy<Value = Vec<Step>> {
    let travel = || {
        prop_oneof![
            6 => (0..50_000_u64).prop_map(Some),
            2 => (0..3_000_000_u64).prop_map(Some),
            1 => Just(None),
        ]
    };
    let again = || prop_oneof![8 => Just(None), 1 => (0..3_000_000_u64).prop_map(Some)];
    let fate = move || {
        let fate = (travel(), travel(), again());
        fate.prop_map(|(there, back, again)| Fate { there, back, again })
    };
    let gap = prop_oneof![3 => 0..most_gap, 1 => Just(0)];
    let key = prop_oneof![4 => Just(0), 1 => Just(1_usize)];
    let step = ((gap, 0..NODES, key, operations), fate(), fate(), prop::bool::weighted(0.01));
    let step = step.prop_map(|((gap, node, key, operation), request, budget, restarts)| Step {
        gap,
        node,
        key,
        operation,
        request,
        budget,
        restarts,
    });
    prop::collection::vec(step, 1..most_steps)
}

/// What is under way.
#[derive(Clone, Debug)]
enum Message {
    Question { node: Node, key: usize, operation: Operation, sent: Micros, fate: Fate },
    Reply { node: Node, key: usize, operation: Operation, sent: Micros, verdict: Verdict },
}

/// A run of a node. Messages to an earlier run are lost.
type Node = (usize, u64);

/// What the test checks.
trait Watch {
    /// A node answers by itself, while the authority is in this state.
    fn answered(&mut self, world: &Histories, node: Node, step: &Step, said: &Verdict);
    /// The authority has done an operation.
    fn done(&mut self, world: &Histories, key: usize, operation: &Operation, said: &Verdict);
    /// A node has been asked for an operation that it forwards, or gets the answer.
    fn passed(&mut self, _: &Histories, _: Node, _key: usize, _: &Operation) {}
    /// A node forwards an operation.
    fn forwarded(&mut self, _: &Histories, _: Node, _key: usize, _: &Operation) {}
    /// A node reports what it was offered.
    fn reported(&mut self, _: &Histories, _: Node, _key: usize, _: &Offered) {}
}

/// Nodes, the authority, and the messages between them.
struct Histories {
    keys: Vec<Resolved>,
    locals: Vec<NodeCache>,
    runs: Vec<u64>,
    /// What each node's clock shows at the true time 0.
    offsets: Vec<u64>,
    /// How far the wall clock of each node is ahead of the authority's.
    walls: [i64; NODES],
    /// The nodes report when it is due, and not only when they are asked.
    timers: bool,
    /// The fates of the reports, one after another.
    fates: Vec<Fate>,
    authority: Table,
    /// The true time.
    time: u64,
    /// What the authority's clock shows at the true time 0.
    epoch: u64,
    messages: BTreeMap<(u64, usize), Message>,
    sent: usize,
}

impl Histories {
    fn new(policy: &Arc<Policy>, offsets: Vec<u64>, epoch: u64) -> Self {
        let resolved = |key: &&str| Resolved::new(policy, key).unwrap();
        Self {
            keys: KEYS.iter().map(resolved).collect(),
            locals: (0..NODES).map(|node| local(id((node, 0)))).collect(),
            runs: vec![0; NODES],
            offsets,
            walls: [0; NODES],
            timers: false,
            fates: vec![Fate { there: Some(0), back: Some(0), again: None }],
            authority: Table::new(1 << 20, KeyHasher::new(0)),
            time: 0,
            epoch,
            messages: BTreeMap::new(),
            sent: 0,
        }
    }

    /// The time of the authority's clock.
    fn now(&self) -> Timestamp {
        Timestamp(AHEAD + self.epoch + self.time)
    }

    /// The time of a node's clock.
    fn at(&self, node: usize) -> Micros {
        Micros(self.offsets[node] + self.time)
    }

    /// The time of a node's wall clock.
    fn wall(&self, node: usize) -> Timestamp {
        Timestamp(self.now().0.saturating_add_signed(self.walls[node]))
    }

    /// What the authority would say at this moment.
    fn would_say(&self, key: usize, operation: Operation) -> Verdict {
        self.authority.clone().ask(&self.keys[key], self.now(), &operation).unwrap()
    }

    fn run(&mut self, steps: &[Step], watch: &mut impl Watch) {
        for step in steps {
            self.step(step, watch);
        }
        self.deliver(u64::MAX, watch);
    }

    fn step(&mut self, step: &Step, watch: &mut impl Watch) {
        let time = self.time + step.gap;
        self.deliver(time, watch);
        self.time = time;
        self.fates.push(step.budget);
        self.ask(step, watch);
        self.transmit((step.node, self.runs[step.node]), watch);
        let local = &self.locals[step.node];
        assert!(local.due.accounts.len() <= local.entries.len());
    }

    fn ask(&mut self, step: &Step, watch: &mut impl Watch) {
        if step.restarts {
            self.runs[step.node] += 1;
            self.locals[step.node] = local(id((step.node, self.runs[step.node])));
        }
        let node = (step.node, self.runs[step.node]);
        let (sent, now) = (self.at(step.node), self.wall(step.node));
        let operation = step.operation;
        let resolved = &self.keys[step.key];
        let budget = match self.locals[step.node].ask(resolved, &operation, now, sent) {
            Next::Answer(answer) => {
                let said = verdict(answer);
                return watch.answered(self, node, step, &said);
            }
            Next::Forward { budget } => budget,
        };
        watch.passed(self, node, step.key, &operation);
        watch.forwarded(self, node, step.key, &operation);
        self.send(node, step.key, operation, sent, step.request);
        if let Some(budget) = budget {
            watch.passed(self, node, step.key, &budget);
            self.send(node, step.key, budget, sent, step.budget);
        }
    }

    /// Sends what a node has to report.
    fn transmit(&mut self, node: Node, watch: &mut impl Watch) {
        let (now, at) = (self.wall(node.0), self.at(node.0));
        while let Some(next) = self.locals[node.0].poll_transmit(now, at) {
            let Operation::Report(offered) = next.operation else { panic!("{next:?}") };
            let key = self.keys.iter().position(|key| *key == next.resolved).unwrap();
            watch.reported(self, node, key, &offered);
            let fate = self.fates[self.sent % self.fates.len()];
            self.send(node, key, next.operation, at, fate);
        }
    }

    /// The true time of the next report, and its node.
    fn next_report(&self) -> Option<(u64, usize)> {
        let due = |node: usize| {
            let due = self.locals[node].poll_timeout()?.0;
            Some((due.saturating_sub(self.offsets[node]).max(self.time), node))
        };
        (0..NODES).filter_map(due).min().filter(|_| self.timers)
    }

    fn send(&mut self, node: Node, key: usize, operation: Operation, sent: Micros, fate: Fate) {
        if let Some(there) = fate.there {
            let question = Message::Question { node, key, operation, sent, fate };
            self.travel(there, question);
        }
    }

    fn travel(&mut self, span: u64, message: Message) {
        self.sent += 1;
        self.messages.insert((self.time + span, self.sent), message);
    }

    /// Delivers what arrives up to a time.
    fn deliver(&mut self, until: u64, watch: &mut impl Watch) {
        loop {
            let arrives = self.messages.first_key_value().map(|((time, _), _)| *time);
            match self.next_report() {
                Some((due, node)) if due <= until && arrives.is_none_or(|time| due <= time) => {
                    self.time = due;
                    self.transmit((node, self.runs[node]), watch);
                }
                _ if arrives.is_some_and(|time| time <= until) => self.deliver_first(watch),
                _ => return,
            }
        }
    }

    fn deliver_first(&mut self, watch: &mut impl Watch) {
        let Some(((time, _), message)) = self.messages.pop_first() else { return };
        self.time = time;
        match message {
            Message::Question { node, key, operation, sent, fate } => {
                let now = self.now();
                let verdict = self.authority.ask(&self.keys[key], now, &operation).unwrap();
                watch.done(self, key, &operation, &verdict);
                let again = fate.back.and_then(|back| Some(back + fate.again?));
                for back in fate.back.into_iter().chain(again) {
                    let verdict = verdict.clone();
                    self.travel(back, Message::Reply { node, key, operation, sent, verdict });
                }
            }
            Message::Reply { node: (node, run), key, operation, sent, verdict } => {
                if run == self.runs[node] {
                    let (operation, verdict) = (&operation, &verdict);
                    let (resolved, at) = (&self.keys[key], self.at(node));
                    let heard = VerdictOf { resolved, operation, verdict, sent, at };
                    self.locals[node].handle_verdict(&heard);
                    watch.passed(self, (node, run), key, operation);
                }
            }
        }
    }
}

/// No two runs of nodes have the same.
fn id((node, run): Node) -> u64 {
    1 + u64::try_from(node).unwrap() + 1_000 * run
}

/// Tries a number of cases. The test may count what it saw.
fn run<S: Strategy>(
    strategy: S,
    cases: u32,
    test: impl FnMut(S::Value) -> Result<(), TestCaseError>,
) {
    let test = core::cell::RefCell::new(test);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    if let Err(error) = TestRunner::new(config).run(&strategy, |case| (test.borrow_mut())(case)) {
        panic!("{error}");
    }
}
