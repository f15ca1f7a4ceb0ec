//! Seeded histories of nodes and an authority. The network delays, drops, repeats, reorders and corrupts messages; the
//! store fails; nodes and the authority start again.

mod faults;
mod watch;

use super::*;
use alloc::collections::BTreeMap;
use faults::{Faults, Random};
use watch::Watch;

const KEYS: [&str; 4] = ["a/1", "a/2", "b/1", "c"];

/// The most units of a key of the policy `small`.
const SMALL: u64 = 20;

/// An authority with so few bytes of memory forgets replies, and refuses questions.
const LITTLE: usize = 2_000;

const POLICIES: &str = "
[policies.large]
share_calls = false
limits = [
  { algorithm = 'fixed_window', limit = 1_000_000, period = '1d' },
  { algorithm = 'fixed_window', limit = 1_000_000, period = '1d', depth = 1 },
]
[policies.small]
share_calls = false
limits = [
  { algorithm = 'fixed_window', limit = 20, period = '1d' },
  { algorithm = 'fixed_window', limit = 1_000_000, period = '1d', depth = 1 },
]
";

/// A run of a node: the place of the node, and how often it has started again.
type Run = (usize, u64);

/// What happens at a time.
#[derive(Debug)]
enum Event {
    Ask,
    Question { from: Run, number: u64, bytes: Vec<u8> },
    Reply { to: Run, bytes: Vec<u8> },
    Lost { to: Run, number: u64 },
    Stored(Stored),
}

/// What the store does once it gets to a swap.
#[derive(Debug)]
struct Stored {
    /// The life of the authority that has asked for it.
    life: u64,
    swap: authority::Swap,
    partitions: Vec<Vec<Compared>>,
    fails: bool,
    writes: bool,
}

/// The name of a record, the bytes that are expected, and those to write.
type Compared = (String, Option<Vec<u8>>, Option<Vec<u8>>);

#[derive(Debug)]
struct Node {
    run: u64,
    outbox: Outbox<usize>,
    /// What its clock shows at the true time 0.
    offset: u64,
}

struct World {
    random: Random,
    faults: Faults,
    node_options: NodeOptions,
    options: AuthorityOptions,
    policies: Policies,
    nodes: Vec<Node>,
    inbox: Inbox<Run>,
    authority: Authority<Place, &'static str>,
    is_only_writer: bool,
    life: u64,
    store: HashMap<String, Vec<u8>>,
    time: u64,
    events: BTreeMap<(u64, u64), Event>,
    made: u64,
    steps: u64,
    watch: Watch,
}

/// No two runs of nodes have the same.
fn id((node, run): Run) -> Id {
    Id([wide(node), run])
}

fn authority(random: &mut Random, is_only_writer: bool) -> Authority<Place, &'static str> {
    let most_waiting = random.one_of(&[8, 1_000]);
    let options = authority::Options::default();
    Authority::new(authority::Options { most_waiting, is_only_writer, ..options })
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let faults = Faults::new(&mut random);
        let node_options = NodeOptions {
            most: random.one_of(&[6, 1_000]),
            most_of_a_group: random.one_of(&[4, 1_000]),
            most_under_way: random.one_of(&[1, 1, 2, 4]),
            most_operations: random.one_of(&[2, 1_000]),
            most_bytes: random.one_of(&[70, 10_000]),
            deadline: Micros(random.one_of(&[20_000, 300_000, 10_000_000])),
            ..NodeOptions::default()
        };
        let options = AuthorityOptions {
            // longer than any copy of a question is under way
            time: Micros(4_000_000),
            bytes: random.one_of(&[LITTLE, 1 << 20]),
            ..AuthorityOptions::default()
        };
        let nodes = 1 + random.below(3);
        let nodes = (0..nodes).map(|node| Node {
            run: 0,
            outbox: Outbox::new(NodeOptions { node: Id([node, 0]), ..node_options }),
            offset: 1_000_000 * node,
        });
        let is_only_writer = random.happens(500);
        let shares_calls = random.happens(300);
        let shared = POLICIES.replace("share_calls = false", "placement = 'shard:1'");
        let mut world = Self {
            faults,
            node_options,
            options,
            policies: Policies::parse(if shares_calls { &shared } else { POLICIES }).unwrap(),
            nodes: nodes.collect(),
            inbox: Inbox::new(options),
            authority: authority(&mut random, is_only_writer),
            is_only_writer,
            life: 0,
            store: HashMap::new(),
            time: 0,
            events: BTreeMap::new(),
            made: 0,
            steps: 300,
            watch: Watch::new(faults.authority_restarts == 0),
            random,
        };
        world.at(0, Event::Ask);
        world
    }

    fn at(&mut self, time: u64, event: Event) {
        self.made += 1;
        self.events.insert((time, self.made), event);
    }

    fn clock(&self, node: usize) -> Micros {
        Micros(self.nodes[node].offset + self.time)
    }

    /// The times of the authority.
    fn times(&self) -> (Timestamp, Micros) {
        (NOW.saturating_add(Micros(self.time)), Micros(self.time))
    }

    /// Lets everything happen, in the order of time.
    fn run(mut self) -> Watch {
        loop {
            let timeout = |node: &Node| Some(node.outbox.poll_timeout()?.0 - node.offset);
            let timeout = self.nodes.iter().filter_map(timeout).min();
            let next = self.events.first_key_value().map(|((time, _), _)| *time);
            match (timeout, next) {
                (None, None) => break,
                (Some(timeout), next) if next.is_none_or(|next| timeout <= next) => {
                    self.time = timeout.max(self.time);
                    for node in 0..self.nodes.len() {
                        let at = self.clock(node);
                        self.nodes[node].outbox.handle_timeout(at);
                    }
                }
                _ => {
                    let ((time, _), event) = self.events.pop_first().unwrap();
                    self.time = time;
                    self.happen(event);
                }
            }
            self.drive();
        }
        for node in &self.nodes {
            assert_eq!((node.outbox.waiting(), node.outbox.groups()), (0, 0));
        }
        assert_eq!(self.authority.waiting(), 0);
        let Self { store, policies, .. } = &self;
        let taken = |policy: &str, key: &str| taken(store, policies.get(policy).unwrap(), key);
        self.watch.check_end(taken);
        self.watch
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Ask => self.ask(),
            Event::Question { from, number, bytes } => self.question(from, number, &bytes),
            Event::Reply { to, .. } | Event::Lost { to, .. } if self.nodes[to.0].run != to.1 => {}
            Event::Reply { to, bytes } => {
                let at = self.clock(to.0);
                let handled = self.nodes[to.0].outbox.handle_reply(&bytes, at);
                self.watch.replied(&bytes, handled);
            }
            Event::Lost { to, number } => {
                let at = self.clock(to.0);
                self.nodes[to.0].outbox.handle_lost(number, &Failure::Unknown, at);
            }
            Event::Stored(stored) => self.stored(stored),
        }
    }

    fn ask(&mut self) {
        let place = narrow(self.random.below(wide(self.nodes.len())));
        if self.random.happens(self.faults.node_restarts) {
            let node = &mut self.nodes[place];
            self.watch.gone((place, node.run));
            node.run += 1;
            let options = NodeOptions { node: id((place, node.run)), ..self.node_options };
            node.outbox = Outbox::new(options);
        }
        if self.random.happens(self.faults.authority_restarts) {
            self.life += 1;
            self.inbox = Inbox::new(self.options);
            self.authority = authority(&mut self.random, self.is_only_writer);
        }
        let (policy, key) = (self.random.one_of(&["large", "small"]), self.random.one_of(&KEYS));
        let resolved = Resolved::new(self.policies.get(policy).unwrap(), key).unwrap();
        let at = self.clock(place);
        let token = self.watch.asked((place, self.nodes[place].run), policy, key, self.time);
        let operation = Operation::from(1);
        self.nodes[place].outbox.ask(Outgoing { resolved, operation, now: None, at, token });
        self.steps -= 1;
        if self.steps > 0 {
            let gap = self.random.one_of(&[0, 500, 5_000, 50_000]);
            self.at(self.time + gap, Event::Ask);
        }
    }

    fn question(&mut self, from: Run, number: u64, bytes: &[u8]) {
        let times = self.times();
        let Self { inbox, policies, authority, .. } = self;
        if let Err((from, error)) = inbox.handle_question((from, bytes), policies, times, authority)
        {
            assert!(
                matches!(error, WireError::Checksum { .. } | WireError::Version { .. }),
                "{error}"
            );
            self.watch.corrupt += 1;
            if self.random.happens(500) {
                self.at(self.time + 1_000, Event::Lost { to: from, number });
            }
        }
    }

    /// Sends what there is to send, and checks the bounds.
    fn drive(&mut self) {
        for place in 0..self.nodes.len() {
            let at = self.clock(place);
            while let Some(question) = self.nodes[place].outbox.poll_transmit(at) {
                let from = (place, self.nodes[place].run);
                self.watch.sent(from, &question, &self.node_options);
                let number = question.number;
                self.travel(question.bytes, |bytes| Event::Question { from, number, bytes });
            }
            let node = &mut self.nodes[place];
            assert!(node.outbox.waiting() <= self.node_options.most);
            assert!(node.outbox.groups() <= node.outbox.waiting());
            while let Some(answer) = node.outbox.poll_answer() {
                self.watch.answered((place, node.run), answer, self.time, &self.node_options);
            }
        }
        self.swap();
        let at = Micros(self.time);
        while let Some((to, reply)) = self.inbox.poll_reply(at, &mut self.authority) {
            self.travel(reply.to_vec(), |bytes| Event::Reply { to, bytes });
        }
        assert!(self.inbox.bytes() <= self.options.bytes);
    }

    /// Sends copies of a message.
    fn travel(&mut self, bytes: Vec<u8>, event: impl Fn(Vec<u8>) -> Event) {
        let copies =
            1 + u64::from(self.random.happens(self.faults.repeats)) * (1 + self.random.below(3));
        for _ in 0..copies {
            if self.random.happens(self.faults.drops) {
                continue;
            }
            let mut bytes = bytes.clone();
            if self.random.happens(self.faults.corrupts) {
                let place = narrow(self.random.below(wide(bytes.len())));
                bytes[place] ^= u8::try_from(1 + self.random.below(255)).unwrap();
            }
            let delay = match self.random.happens(self.faults.delays) {
                true => self.random.below(1_500_000),
                false => 1_000 + self.random.below(100),
            };
            self.at(self.time + delay, event(bytes));
        }
    }

    /// Sends what waits at the authority to the store.
    fn swap(&mut self) {
        let (now, at) = self.times();
        while let Some(swap) = self.authority.poll_swap((Some(now), at), |_| false) {
            let copied = |record: authority::SwapEntry<'_>| {
                let bytes = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
                (record.name.into(), bytes(record.found), bytes(record.becomes))
            };
            let partitions: Vec<Vec<Compared>> = (0..swap.len())
                .map(|partition| self.authority.records(&swap, partition).map(copied).collect())
                .collect();
            let fails = self.random.happens(self.faults.store_fails);
            let writes = !fails || self.random.happens(500);
            let stored = Stored { life: self.life, swap, partitions, fails, writes };
            let delay = self.random.below(3_000);
            self.at(self.time + delay, Event::Stored(stored));
        }
    }

    fn stored(&mut self, stored: Stored) {
        let Stored { life, swap, partitions, fails, writes } = stored;
        if life != self.life && self.is_only_writer {
            return; // an earlier life would be another writer
        }
        let mut outcomes = Vec::new();
        for partition in partitions {
            let is_expected = |(name, found, _): &Compared| self.store.get(name) == found.as_ref();
            if !partition.iter().all(is_expected) && !fails {
                let found = partition.iter().map(|(name, ..)| self.store.get(name).cloned());
                outcomes.push(Outcome::Found(found.collect()));
                continue;
            }
            if writes && partition.iter().all(is_expected) {
                let written =
                    partition.into_iter().filter_map(|(name, _, becomes)| Some((name, becomes?)));
                self.store.extend(written);
            }
            outcomes.push(if fails { Outcome::Failed("no disk") } else { Outcome::Swapped });
        }
        if life == self.life {
            let (now, at) = self.times();
            self.authority.handle(swap, outcomes, (Some(now), at));
        }
    }
}

/// How many units of the key the store counts.
fn taken(store: &HashMap<String, Vec<u8>>, policy: &Arc<tidegate_gate::Policy>, key: &str) -> u64 {
    let mut transaction = tidegate_gate::Transaction::default();
    let joined = transaction.join(&Resolved::new(policy, key).unwrap());
    let found: Vec<_> = transaction.names().map(|name| store.get(name).cloned()).collect();
    transaction.load(found);
    let now = NOW.saturating_add(Micros(600_000_000));
    let answered = transaction.operate(&joined, now, &Operation::from(0)).unwrap();
    units(&answered.verdict)
}

/// The units of the key that are taken after a verdict.
fn units(verdict: &Verdict) -> u64 {
    let own = verdict.limits[1];
    own.limit() - own.remaining()
}

#[test]
fn every_operation_is_answered_once_and_taken_at_most_once_whatever_the_network_does() {
    let mut all = Watch::default();
    for seed in 0..120 {
        let run = std::panic::catch_unwind(|| World::new(seed).run());
        let watch = run.unwrap_or_else(|_| panic!("seed {seed}: {:?}", World::new(seed).faults));
        all.add(&watch);
    }
    all.check_coverage();
}
