mod refusals;
mod reports;
mod units;

use alloc::sync::Arc;
use alloc::vec::Vec;
use std::format;

use tidegate_gate::{
    Id, Idempotency, KeyHasher, Micros, Operation, Policy, Request, Resolved, Table, TimedOverride,
    TimedPolicies, Timestamp, Verdict,
};

use super::ask::Next;
use super::{LocalVerdict, NodeCache, Options, Transmit, VerdictOf};

/// A node and the authority. Their clocks run alike, and the authority's is ahead by [`AHEAD`].
struct World {
    local: NodeCache,
    authority: Table,
    resolved: Resolved,
    at: Micros,
}

const AHEAD: u64 = 1_700_000_000_000_000;

fn s(seconds: u64) -> Micros {
    Micros(seconds * 1_000_000)
}

fn policy(text: &str) -> Arc<Policy> {
    Arc::new(Policy::parse("api", text).unwrap())
}

fn local(node: u64) -> NodeCache {
    NodeCache::new(Options { node: Id([node, 0]), ..Options::default() })
}

impl World {
    fn new(text: &str) -> Self {
        let resolved = Resolved::new(&policy(text), "user:42").unwrap();
        let authority = Table::new(1 << 24, KeyHasher::new(0));
        Self { local: local(1), authority, resolved, at: Micros(77) }
    }

    fn now(&self) -> Timestamp {
        Timestamp(AHEAD + self.at.0)
    }

    fn pass(&mut self, span: Micros) {
        self.at.0 += span.0;
    }

    /// The authority's verdict at this moment.
    fn decide(&mut self, operation: impl Into<Operation>) -> Verdict {
        let now = self.now();
        self.authority.ask(&self.resolved, now, &operation.into()).unwrap()
    }

    /// What the authority would say at this moment.
    fn would_say(&self, operation: impl Into<Operation>) -> Verdict {
        self.authority.clone().ask(&self.resolved, self.now(), &operation.into()).unwrap()
    }

    /// The node's own answer, and the operation that it would send otherwise.
    fn local(&mut self, operation: impl Into<Operation>) -> Result<Verdict, Option<Operation>> {
        let (now, at) = (self.now(), self.at);
        match self.local.answer_or_forward(&self.resolved, &operation.into(), now, at) {
            Next::Answer(answer) => Ok(verdict(answer)),
            Next::Forward { budget } => Err(budget),
        }
    }

    fn hear(&mut self, operation: impl Into<Operation>, verdict: &Verdict, sent: Micros) {
        let (operation, at) = (operation.into(), self.at);
        let Self { local, resolved, .. } = self;
        local.handle_verdict(&VerdictOf { resolved, operation: &operation, verdict, sent, at });
    }

    /// Asks the node, and the authority if the node does not know. `true` if the node answered.
    fn ask(&mut self, operation: impl Into<Operation>) -> (bool, Verdict) {
        let (operation, sent) = (operation.into(), self.at);
        let budget = match self.local(operation) {
            Ok(verdict) => return (true, verdict),
            Err(budget) => budget,
        };
        let verdict = self.decide(operation);
        self.hear(operation, &verdict, sent);
        if let Some(budget) = budget {
            let granted = self.decide(budget);
            self.hear(budget, &granted, sent);
        }
        (false, verdict)
    }

    /// Asks for what the node itself wants to ask now.
    fn transmit(&mut self) -> Vec<Operation> {
        let (now, at) = (self.now(), self.at);
        let mut all = Vec::new();
        while let Some(Transmit { resolved, operation }) = self.local.poll_transmit(now, at) {
            let verdict = self.authority.ask(&resolved, now, &operation).unwrap();
            let heard = VerdictOf {
                resolved: &resolved,
                operation: &operation,
                verdict: &verdict,
                sent: at,
                at,
            };
            self.local.handle_verdict(&heard);
            all.push(operation);
        }
        all
    }
}

fn verdict(answer: LocalVerdict) -> Verdict {
    let verdict = answer.verdict();
    assert_eq!(verdict.decision, answer.decision());
    verdict
}

#[test]
fn a_strict_policy_and_a_node_without_memory_ask_for_everything() {
    let limits = "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1m' }]";
    let mut strict = World::new(limits);
    let mut forgetful = World::new(&format!("remember = '1m'\n{limits}"));
    forgetful.local = NodeCache::new(Options { most_keys: 0, ..Options::default() });
    for world in [&mut strict, &mut forgetful] {
        for _ in 0..5 {
            assert!(!world.ask(1).0);
        }
        assert!(!world.ask(Operation::Refund(1)).0);
        assert!(world.local.is_empty());
    }
}

#[test]
fn listed_keys_are_always_answered() {
    let text = "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1m' }]
                deny = ['user:42']";
    let mut world = World::new(text);
    let (by_node, verdict) = world.ask(1);
    assert!(by_node && !verdict.decision.is_allowed());
    assert_eq!(verdict, world.would_say(1));
}

#[test]
fn the_node_remembers_no_more_keys_than_it_may_and_keeps_those_in_use() {
    let limits = "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1d' }]";
    let held = "remember = '1h'\nlocal = { most = 1, time = '1h' }";
    // a key is remembered once it is refused, or from the first request on
    for (nodes, asks) in [("remember = '1h'", 2), (held, 1)] {
        let policy = policy(&format!("{nodes}\n{limits}"));
        let mut world = World::new(limits);
        world.local = NodeCache::new(Options { most_keys: 8, ..Options::default() });
        let mut ask = |key: &str| {
            world.resolved = Resolved::new(&policy, key).unwrap();
            let (by_node, _) = world.ask(1);
            assert!(world.local.len() <= 8);
            by_node
        };
        assert!(!ask("often") && !ask("often"));
        for key in 0..500 {
            for _ in 0..asks {
                assert!(!ask(&format!("key-{key}")));
            }
            assert!(ask("often"), "a key in use is passed over");
        }
        assert!(!ask("last") && !ask("last") && ask("last"));
        assert_eq!(world.local.len(), 8);
    }
}

#[test]
fn keys_and_rules_have_hashes_of_their_own() {
    let policy = policy(
        "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1d' }]
         overrides = { a = { limit = 2 } }",
    );
    let hasher = KeyHasher::new(7);
    let hash = |limits, key: &str| super::hash(&hasher, limits, key);
    let (own, other) = (policy.limits(), &policy.overrides()[0].1);
    assert_ne!(hash(own, "key"), hash(other, "key"));
    let hashes: Vec<u64> = (0..1_000).map(|key| hash(own, &format!("key-{key}"))).collect();
    for bit in 0..64 {
        let set = hashes.iter().filter(|hash| *hash >> bit & 1 == 1).count();
        assert!((400..=600).contains(&set), "bit {bit} is set in {set} of 1,000 hashes");
    }
}

/// The sizes in the documentation of [`Options::most_keys`].
#[test]
fn a_key_takes_as_much_memory_as_stated() {
    let said = |limits: usize| limits * size_of::<tidegate_gate::Decision>();
    let refusal = |limits| size_of::<super::refusals::Refusal>() + said(limits);
    let units = |limits| size_of::<super::held::Units>() + said(limits);
    let key = size_of::<super::entry::Entry>() * 2; // half of the table may be empty
    assert!(key + refusal(1) <= 500, "{}", key + refusal(1));
    let due = 2 * size_of::<((Micros, u64), Resolved)>(); // half of a node of the tree may be empty
    let saved = super::reporter::MOST_SAVED * size_of::<tidegate_gate::suppression::Report>();
    let reports = key + size_of::<super::reporter::Reporter>() + saved + due;
    assert!(reports <= 800, "{reports}");
    let most = key + tidegate_gate::MAX_KEY_BYTES + 3 * refusal(16) + units(16);
    assert!(most <= 4_096, "{most}");
}

fn request(cost: u64) -> Request {
    Request::of(cost)
}

/// A request after the end has another policy, under which the node remembers nothing yet.
#[test]
fn neither_refusals_nor_units_outlive_an_override() {
    let limits = "limits = [{ algorithm = 'token_bucket', capacity = 100, rate = '1/d' }]";
    let file = format!(
        "[policies.api]\n{limits}\nremember = '1h'\nlocal = {{ most = 50, time = '1h' }}\n"
    );
    let fields = format!(r#"{{"capacity": 60, "until_us": {}}}"#, AHEAD + s(9).0);
    let own = TimedOverride::new("api", "user:42", "alice", &fields).unwrap();
    let text = TimedOverride::join(&file, &[own]);
    let at = |second| {
        let timed = TimedPolicies::parse(&text, Timestamp(AHEAD + s(second).0)).unwrap();
        Resolved::new(timed.policies.get("api").unwrap(), "user:42").unwrap()
    };
    for (asks, last) in [(12, true), (80, false)] {
        let mut world = World { resolved: at(8), at: s(8), ..World::new(limits) };
        for _ in 0..asks {
            world.ask(1);
        }
        let (by_node, verdict) = world.ask(1);
        assert_eq!((by_node, verdict.decision.is_allowed()), (true, last));
        (world.resolved, world.at) = (at(9), s(9));
        let (by_node, verdict) = world.ask(1);
        assert_eq!((by_node, verdict.decision.remaining()), (false, 99), "the former rule");
    }
}
