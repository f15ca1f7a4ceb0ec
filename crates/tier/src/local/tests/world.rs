//! Random histories of several nodes and one authority, with clocks that differ and messages that are late, lost or
//! out of order.

mod mixed;
mod refusals;
mod units;

use alloc::collections::BTreeMap;
use alloc::vec;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tidegate_gate::{Budget, Effect};

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
#[derive(Clone, Copy, Debug)]
struct Fate {
    there: Option<u64>,
    back: Option<u64>,
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
    let fate = move || (travel(), travel()).prop_map(|(there, back)| Fate { there, back });
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
    Question { node: Node, key: usize, operation: Operation, sent: Micros, back: Option<u64> },
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
}

/// Nodes, the authority, and the messages between them.
struct Histories {
    keys: Vec<Resolved>,
    locals: Vec<Local>,
    runs: Vec<u64>,
    /// What each node's clock shows at the true time 0.
    offsets: Vec<u64>,
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

    /// What the authority would say at this moment.
    fn would_say(&self, key: usize, operation: Operation) -> Verdict {
        self.authority.clone().ask(&self.keys[key], self.now(), &operation).unwrap()
    }

    fn run(&mut self, steps: &[Step], watch: &mut impl Watch) {
        for step in steps {
            let time = self.time + step.gap;
            self.deliver(time, watch);
            self.time = time;
            self.ask(step, watch);
        }
        self.deliver(u64::MAX, watch);
    }

    fn ask(&mut self, step: &Step, watch: &mut impl Watch) {
        if step.restarts {
            self.runs[step.node] += 1;
            self.locals[step.node] = local(id((step.node, self.runs[step.node])));
        }
        let node = (step.node, self.runs[step.node]);
        let (sent, now) = (self.at(step.node), self.now());
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
        self.send(node, step.key, operation, sent, step.request);
        if let Some(budget) = budget {
            watch.passed(self, node, step.key, &budget);
            self.send(node, step.key, budget, sent, step.budget);
        }
    }

    fn send(&mut self, node: Node, key: usize, operation: Operation, sent: Micros, fate: Fate) {
        if let Some(there) = fate.there {
            let question = Message::Question { node, key, operation, sent, back: fate.back };
            self.travel(there, question);
        }
    }

    fn travel(&mut self, span: u64, message: Message) {
        self.sent += 1;
        self.messages.insert((self.time + span, self.sent), message);
    }

    /// Delivers what arrives up to a time.
    fn deliver(&mut self, until: u64, watch: &mut impl Watch) {
        while let Some(first) = self.messages.first_entry().filter(|next| next.key().0 <= until) {
            self.time = first.key().0;
            match first.remove() {
                Message::Question { node, key, operation, sent, back } => {
                    let now = self.now();
                    let verdict = self.authority.ask(&self.keys[key], now, &operation).unwrap();
                    watch.done(self, key, &operation, &verdict);
                    if let Some(back) = back {
                        self.travel(back, Message::Reply { node, key, operation, sent, verdict });
                    }
                }
                Message::Reply { node: (node, run), key, operation, sent, verdict } => {
                    if run == self.runs[node] {
                        let (operation, verdict) = (&operation, &verdict);
                        let (resolved, at) = (&self.keys[key], self.at(node));
                        let heard = Heard { resolved, operation, verdict, sent, at };
                        self.locals[node].heard(&heard);
                        watch.passed(self, (node, run), key, operation);
                    }
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
