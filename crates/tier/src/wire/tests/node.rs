//! A node: what it answers by itself, what it asks, and in which order.

use std::string::ToString;

use super::*;
use crate::Node;
use crate::Outage;
use crate::cache::{self, Kind, LocalVerdict, OFTEN};
use crate::outage::Shares;

/// What each of these policies lets a node answer is in its name. All keys have one object.
const POLICIES: &str = "
[policies.refused]
placement = 'shard:1'
remember = '1m'
limits = [{ algorithm = 'fixed_window', limit = 8, period = '1d' }]
[policies.lent]
placement = 'shard:1'
local = { most = 50, time = '10s' }
limits = [{ algorithm = 'token_bucket', capacity = 100, rate = '1/d' }]
[policies.reported]
placement = 'shard:1'
reports = true
limits = [{ algorithm = 'suppression', rate = '100/s' }]
[policies.shared]
placement = 'shard:1'
on_error = 'local'
nodes = 4
limits = [{ algorithm = 'fixed_window', limit = 8, period = '1d' }]
[policies.listed]
placement = 'shard:1'
deny = ['k']
limits = [{ algorithm = 'fixed_window', limit = 8, period = '1d' }]
";

/// A node, its object, and the number of the next caller.
struct World {
    node: Node<usize>,
    object: Object,
    policy: &'static str,
    at: Micros,
    caller: usize,
}

impl World {
    fn new(policy: &'static str) -> Self {
        let cache = cache::Options { node: NODE, ..cache::Options::default() };
        let object = Object::new(AuthorityOptions::default());
        let object = Object { policies: Policies::parse(POLICIES).unwrap(), ..object };
        Self {
            node: Node::new(cache, options(), (0, Shares::Own(Outage::new(1 << 20)))),
            object,
            policy,
            at: Micros(5),
            caller: 0,
        }
    }

    /// A world in which the node answers for `k` by itself.
    fn that_knows(policy: &'static str) -> Self {
        let mut world = Self::new(policy);
        for _ in 0..=OFTEN {
            world.ask("k", None);
            world.call();
        }
        world
    }

    /// A further caller asks for a unit of a key.
    fn ask(&mut self, key: &str, now: Option<Timestamp>) -> Option<LocalVerdict> {
        let resolved = Resolved::new(self.object.policies.get(self.policy).unwrap(), key).unwrap();
        let (operation, token) = (Operation::from(1), Some(self.caller));
        self.caller += 1;
        let asked = Outgoing { resolved, operation, now, at: self.at, token };
        self.node.ask(asked, NOW.saturating_add(self.at))
    }

    /// What waits, in the order of the questions, which are lost.
    fn asks(&mut self) -> Vec<Asked> {
        let mut all = Vec::new();
        while let Some(question) = self.node.outbox().poll_transmit(self.at) {
            let content = message::Question::read(&question.bytes).unwrap().content().unwrap();
            let one = |asked: &message::Item<'_>| (asked.key.into(), asked.now, asked.operation);
            all.extend(content.operations.iter().map(one));
            self.node.outbox().handle_lost(question.number, &Failure::Unknown, self.at);
        }
        all
    }

    /// The object answers what waits. Returns the callers and whether they pass; the node itself is `None`.
    fn call(&mut self) -> Vec<(Option<usize>, bool)> {
        self.object.at = self.at;
        while let Some(question) = self.node.outbox().poll_transmit(self.at) {
            let reply = self.object.call(&question.bytes);
            self.node.outbox().handle_reply(&reply, self.at).unwrap();
        }
        let mut answers = Vec::new();
        while let Some(Delivered { asked, result, .. }) = self.node.poll_answer() {
            answers.push((asked.token, result.unwrap().decision.is_allowed()));
        }
        answers
    }
}

/// The key of an operation, its own time, and the operation.
type Asked = (String, Option<Timestamp>, Operation);

fn once(key: &str) -> Asked {
    (key.to_string(), None, Operation::from(1))
}

#[test]
fn an_operation_with_a_time_of_its_own_is_always_asked() {
    for (policy, kind) in [
        ("refused", Some(Kind::Remembered)),
        ("lent", Some(Kind::Lent)),
        ("reported", Some(Kind::Factor)),
        ("listed", None),
    ] {
        let mut world = World::that_knows(policy);
        assert_eq!(
            world.ask("k", None).unwrap().kind(),
            kind,
            "{policy}: the node knows the answer"
        );
        world.asks();
        for time in [Timestamp(7), NOW, Timestamp(u64::MAX >> 11)] {
            assert!(world.ask("k", Some(time)).is_none(), "{policy} at {time:?}");
            let asked = ("k".to_string(), Some(time), Operation::from(1));
            assert_eq!(world.asks(), [asked], "{policy}");
        }
        assert_eq!(world.ask("k", None).unwrap().kind(), kind, "{policy}: the node knows it still");
    }
}

/// A request with a time of its own is no demand on this moment.
#[test]
fn a_node_does_not_ask_for_units_because_of_operations_with_times_of_their_own() {
    let mut world = World::new("lent");
    for _ in 0..3 * OFTEN {
        assert!(world.ask("k", Some(NOW)).is_none());
    }
    assert!(world.asks().iter().all(|(_, _, operation)| *operation == Operation::from(1)));
}

#[test]
fn the_node_asks_for_units_after_the_request_that_made_it_ask() {
    let mut world = World::new("lent");
    for _ in 1..OFTEN {
        assert!(world.ask("k", None).is_none());
    }
    world.asks();
    assert!(world.ask("k", None).is_none());
    let asked = world.asks();
    let [first, (key, None, Operation::Budget(budget))] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((first, key.as_str(), budget.holder), (&once("k"), "k", NODE));
}

#[test]
fn a_node_reports_after_the_request_that_comes_when_a_report_is_due() {
    let mut world = World::that_knows("reported");
    assert!(world.ask("k", None).is_some());
    world.at.0 += 2_000_000;
    assert!(world.ask("other", None).is_none(), "the node has heard no factor of this key");
    let asked = world.asks();
    let [first, (key, None, Operation::Report(load))] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((first, key.as_str()), (&once("other"), "k"));
    assert!(load.admitted > 0 && load.at.is_some(), "{load:?}");
}

#[test]
fn a_request_that_the_node_answers_sends_the_report_that_is_due() {
    let mut world = World::that_knows("reported");
    world.at.0 += 2_000_000;
    assert!(world.ask("k", None).is_some());
    let asked = world.asks();
    assert!(matches!(asked[..], [(_, None, Operation::Report(_))]), "{asked:?}");
}

#[test]
fn a_node_with_a_timer_reports_without_a_request() {
    let mut world = World::that_knows("reported");
    assert!(world.ask("k", None).is_some());
    let due = world.node.cache().poll_timeout().unwrap();
    world.at = Micros(due.0 - 1);
    world.node.report(NOW.saturating_add(world.at), world.at);
    assert_eq!(world.asks(), []);
    world.at = due;
    world.node.report(NOW.saturating_add(world.at), world.at);
    assert_eq!(world.call(), [(None, true)], "no caller waits for it");
    assert_eq!(world.node.cache().poll_timeout(), None);
}

#[test]
fn the_node_has_learnt_of_an_answer_before_its_caller_gets_it() {
    let mut world = World::new("refused");
    let answers: Vec<bool> = (0..9)
        .flat_map(|_| {
            assert!(world.ask("k", None).is_none());
            world.call()
        })
        .map(|(_, passes)| passes)
        .collect();
    assert_eq!(answers.iter().filter(|passes| **passes).count(), 8);
    assert!(!world.ask("k", None).unwrap().decision().is_allowed());
    assert_eq!(world.node.outbox().waiting(), 0, "what the node answers is not asked");
}

/// A wait counts from the moment at which the caller asked, and not from the question or its reply.
#[test]
fn a_refusal_counts_from_the_request() {
    let mut world = World::new("refused");
    for _ in 0..8 {
        world.ask("k", None);
    }
    world.call();
    assert!(world.ask("k", None).is_none());
    let asked = world.at;
    world.at.0 += 900_000;
    assert_eq!(world.call(), [(Some(8), false)]);
    world.at = Micros(asked.0 + 59_999_999);
    assert!(world.ask("k", None).is_some());
    world.at.0 += 1;
    assert!(world.ask("k", None).is_none(), "it is repeated for a minute after the request");
}

#[test]
fn a_node_learns_nothing_from_a_failure() {
    let mut world = World::that_knows("refused");
    assert!(world.ask("other", None).is_none());
    world.asks();
    let failed = world.node.poll_answer().unwrap();
    assert_eq!((failed.asked.token, failed.result), (Some(9), Err(Failure::Unknown)));
    assert!(world.ask("other", None).is_none());
    assert_eq!(world.node.cache().len(), 1);
}

#[test]
fn a_node_goes_on_with_its_share_while_no_reply_comes() {
    let mut world = World::new("shared");
    assert!(world.ask("k", None).is_none());
    assert_eq!(world.call(), [(Some(0), true)]);
    for caller in 1..=3 {
        assert!(world.ask("k", None).is_none(), "it asks the object first");
        world.asks();
        let answer = world.node.poll_answer().unwrap();
        assert_eq!(answer.result, Err(Failure::Unknown));
        let verdict = world.node.share(&answer, NOW.saturating_add(world.at)).unwrap();
        assert!(verdict.degraded);
        assert_eq!((answer.asked.token, verdict.decision.is_allowed()), (Some(caller), caller < 3));
    }
    // a quarter of 8 was granted in the outage, and the object hears nothing of it
    for _ in 0..8 {
        world.ask("k", None);
    }
    let passes: Vec<bool> = world.call().into_iter().map(|(_, passes)| passes).collect();
    assert_eq!(passes, [true, true, true, true, true, true, true, false]);
}

#[test]
fn a_node_that_no_object_has_answered_has_no_share() {
    let mut world = World::new("shared");
    assert!(world.ask("k", None).is_none());
    world.asks();
    let answer = world.node.poll_answer().unwrap();
    assert!(world.node.share(&answer, NOW).is_none());
}
