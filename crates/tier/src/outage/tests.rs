use core::num::NonZeroU64;
use std::format;
use std::sync::Arc;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_gate::{
    Effect, Id, Idempotency, Micros, Operation, OperationError, Policy, Request, Resolved,
    TimedOverride, TimedPolicies, Timestamp, Transaction, TransactionError, Verdict,
};

use super::{Outage, Standing};

fn policy(text: &str) -> Arc<Policy> {
    Arc::new(Policy::parse("p", &format!("on_error = 'local'\n{text}")).unwrap())
}

fn window(limit: u64) -> Arc<Policy> {
    policy(&format!("limits = [{{ algorithm = 'fixed_window', limit = {limit}, period = '1h' }}]"))
}

fn on(policy: &Arc<Policy>, key: &str) -> Resolved {
    Resolved::new(policy, key).unwrap()
}

/// A node among so many.
struct Node {
    outage: Outage,
    standing: Standing,
}

type Said = Option<Result<Verdict, TransactionError>>;

impl Node {
    fn among(nodes: u64) -> Self {
        Self::with(1 << 20, nodes)
    }

    fn with(most_bytes: usize, nodes: u64) -> Self {
        let nodes = NonZeroU64::new(nodes);
        let standing = Standing { store: 1, nodes, has_answered: true };
        Self { outage: Outage::new(most_bytes), standing }
    }

    fn ask(&mut self, key: &Resolved, now: u64, operation: impl Into<Operation>) -> Said {
        self.outage.decide(self.standing, key, Timestamp(now), &operation.into(), None)
    }

    fn decide(&mut self, key: &Resolved, now: u64, operation: impl Into<Operation>) -> Verdict {
        let verdict = self.ask(key, now, operation).unwrap().unwrap();
        assert!(verdict.degraded);
        verdict
    }

    fn passes(&mut self, key: &Resolved, now: u64, cost: u64) -> bool {
        self.decide(key, now, cost).decision.is_allowed()
    }
}

/// A transaction that has seen these units used.
fn seen(resolved: &Resolved, used: u64) -> Transaction {
    let mut transaction = Transaction::default();
    let own = transaction.join(resolved);
    transaction.operate(&own, Timestamp(1), &Operation::from(used)).unwrap();
    transaction.stored(|_| Micros::ZERO);
    transaction
}

#[test]
fn a_request_that_costs_more_than_the_share_is_refused_and_is_no_error() {
    let (policy, mut node) = (window(20), Node::among(8));
    let key = on(&policy, "k");
    for (cost, passes) in [(3, false), (20, false), (2, true), (1, false)] {
        assert_eq!(node.passes(&key, 1, cost), passes, "{cost} of a share of 2.5");
    }
    let error = node.ask(&key, 1, 21).unwrap().unwrap_err();
    assert!(matches!(error, TransactionError::Operation(OperationError::Cost(_))), "{error}");
    let refused = node.decide(&key, 3_600_000_000, 3).decision;
    assert_eq!((refused.limit(), refused.remaining()), (20, 2), "once more in the next window");
    assert!(refused.retry_after() < Micros::MAX, "the store may be back");
}

#[test]
fn a_node_without_a_number_of_nodes_or_an_answer_of_the_store_decides_nothing() {
    let mut node = Node::among(0);
    assert_eq!(node.ask(&on(&window(5), "k"), 1, 1), None);
    let text = "nodes = 4\nlimits = [{ algorithm = 'fixed_window', limit = 8, period = '1h' }]";
    let policy = policy(text);
    for (counted, has_answered, expected) in [
        (0, false, None),
        (0, true, Some(2)),
        (1, false, Some(2)),
        (4, true, Some(2)),
        (8, true, Some(1)),
    ] {
        let (mut node, key) = (Node::among(counted), on(&policy, "k"));
        node.standing.has_answered = has_answered;
        let said = node.ask(&key, 1, 0).map(|said| said.unwrap().decision.remaining());
        assert_eq!(said, expected, "{counted} were seen");
    }
}

#[test]
fn only_checks_peeks_and_commits_of_the_share_are_decided() {
    let (policy, mut node) = (window(5), Node::among(2));
    let key = on(&policy, "k");
    for operation in [
        Operation::Refund(1),
        Operation::Charge(1),
        Operation::Commit(Id([1, 1]), 1),
        Operation::Release(Id::default()),
        Operation::Block(Micros(1)),
    ] {
        assert!(node.ask(&key, 1, operation).is_none(), "{operation:?}");
    }
    assert!(node.ask(&key, 1, Operation::Peek(Request::of(1))).is_some());
    let limits = "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]";
    for text in [&*format!("on_error = 'local'\nallow = ['k']\n{limits}"), limits] {
        let other = Arc::new(Policy::parse("p", text).unwrap());
        assert!(node.ask(&on(&other, "k"), 1, 1).is_none());
    }
}

#[test]
fn a_reservation_takes_and_gives_back_by_the_same_factor() {
    let policy = policy(
        "reservations = {}\nlimits = [{ algorithm = 'fixed_window', limit = 100_000, period = '1h' }]",
    );
    let (key, mut node) = (on(&policy, "k"), Node::among(8));
    let left = |node: &mut Node| node.decide(&key, 9, 0).decision.remaining();
    let reserve = |id| Request { lease: Some(id), hold: Micros(60_000_000), ..Request::of(4_000) };
    let [first, second] = [Id([7, 7]), Id([8, 8])];
    for id in [first, second] {
        let verdict = node.decide(&key, 1, Operation::Decide(reserve(id)));
        assert!(matches!(verdict.effect, Effect::Reserved { units: 4_000, .. }), "{verdict:?}");
    }
    assert_eq!(left(&mut node), 4_500, "12,500 less two estimates");
    for _ in 0..2 {
        let verdict = node.decide(&key, 2, Operation::Commit(first, 33));
        assert_eq!(verdict.effect, Effect::Committed { charged: 33, late: false, by: None });
        assert_eq!(left(&mut node), 8_467);
    }
    node.decide(&key, 2, Operation::Commit(second, 0));
    assert_eq!(left(&mut node), 12_467);
}

#[test]
fn memory_is_bounded_and_comes_back_with_time() {
    let shared = policy(
        "limits = [{ algorithm = 'fixed_window', limit = 1000000, period = '1h', depth = 0 },
                   { algorithm = 'fixed_window', limit = 5, period = '1h' }]",
    );
    for (policy, most) in [(window(5), 200), (shared, 200)] {
        let mut node = Node::with(20_000, 1);
        let taken =
            (0..1_000).filter(|n| node.ask(&on(&policy, &format!("k{n}")), 1, 1).is_some()).count();
        assert!((5..most).contains(&taken), "{taken}");
        assert!(node.ask(&on(&policy, "k0"), 2, 1).is_some(), "a known key goes on");
        assert!(node.ask(&on(&policy, "new"), 3_600_000_001, 1).is_some());
    }
}

#[test]
fn keys_that_share_a_limit_share_it_in_an_outage() {
    let policy = policy(
        "limits = [{ algorithm = 'fixed_window', limit = 10, period = '1h', depth = 1 },
                   { algorithm = 'fixed_window', limit = 100, period = '1h' }]",
    );
    let mut node = Node::among(2);
    let [a, b] = ["acme/a", "acme/b"].map(|key| on(&policy, key));
    assert!(node.passes(&a, 1, 3) && node.passes(&b, 1, 2));
    assert!(!node.passes(&a, 1, 1) && !node.passes(&b, 1, 1));
}

#[test]
fn a_limit_in_shadow_goes_on_to_say_what_it_refuses() {
    let policy = policy(
        "limits = [{ algorithm = 'fixed_window', limit = 4, period = '1h', shadow = true },
                   { algorithm = 'fixed_window', limit = 100, period = '1h' }]",
    );
    let (mut node, key) = (Node::among(2), on(&policy, "k"));
    let mut check = || {
        let verdict = node.decide(&key, 1, 1);
        assert!(verdict.decision.is_allowed());
        verdict.limits[0].is_allowed()
    };
    assert_eq!([check(), check(), check()], [true, true, false]);
}

#[test]
fn a_repeat_in_an_outage_is_another_request() {
    let policy = policy(
        "idempotency = '1h'\nlimits = [{ algorithm = 'fixed_window', limit = 2, period = '1h' }]",
    );
    let mut node = Node::among(1);
    let key = on(&policy, "k").known_by(Idempotency { id: Id([1, 1]), request: 1 });
    assert_eq!([1, 2, 3].map(|now| node.passes(&key, now, 1)), [true, true, false]);
}

#[test]
fn a_share_goes_on_over_an_edit_as_a_stored_state_does() {
    let mut node = Node::among(2);
    let keep = |limit| on(&window(limit), "kept");
    let reset = |limit| {
        let limits = format!("[{{ algorithm = 'fixed_window', limit = {limit}, period = '1h' }}]");
        on(&policy(&format!("on_change = 'reset'\nlimits = {limits}")), "k")
    };
    assert!(node.passes(&reset(10), 1, 5));
    assert!(!node.passes(&reset(10), 1, 1), "another parse of the same text");
    assert!(node.passes(&reset(20), 1, 10), "`reset` starts afresh");
    assert!(!node.passes(&reset(10), 1, 1), "a roll-back");
    node.standing.store = 2;
    assert!(node.passes(&reset(20), 1, 10), "another store");
    assert!(node.passes(&keep(10), 1, 4));
    assert!(!node.passes(&keep(20), 1, 7));
    assert!(node.passes(&keep(20), 1, 6));
}

#[test]
fn the_end_of_an_override_gives_no_other_key_a_second_share() {
    let file = "[policies.p]\non_error = 'local'\nlimits = [{ algorithm = 'fixed_window', limit = 10, period = '1h' }]\n";
    let own = |key, until: u64| {
        let fields = format!("{{\"limit\": 4, \"until_us\": {until}}}");
        TimedOverride::new("p", key, "alice", &fields).unwrap()
    };
    let text = TimedOverride::join(file, &[own("a", 5), own("b", 7)]);
    let at = |now, key| {
        let policies = TimedPolicies::parse(&text, Timestamp(now)).unwrap().policies;
        on(policies.get("p").unwrap(), key)
    };
    let mut node = Node::among(2);
    assert!(node.passes(&at(1, "k"), 1, 5) && node.passes(&at(1, "b"), 1, 2));
    for now in [4, 5, 6, 7, 8] {
        assert!(!node.passes(&at(now, "k"), now, 1), "{now}");
    }
    assert!(node.passes(&at(8, "b"), 8, 5), "the former rule counts apart");
}

#[test]
fn what_is_learnt_later_does_not_undo_what_was_granted() {
    let (policy, mut node) = (window(10), Node::among(1));
    let key = on(&policy, "k");
    assert!(node.passes(&key, 1, 8));
    let known = seen(&key, 1);
    let verdict = node.outage.decide(node.standing, &key, Timestamp(2), &3.into(), Some(&known));
    assert!(!verdict.unwrap().unwrap().decision.is_allowed());
}

#[derive(Clone, Debug)]
struct Asked {
    node: usize,
    after: u64,
    cost: u64,
}

fn asked(most_cost: u64) -> impl Strategy<Value = Vec<Asked>> {
    let asked = (0..8_usize, 0..900_000_u64, 1..=most_cost);
    let asked = asked.prop_map(|(node, after, cost)| Asked { node, after, cost });
    prop::collection::vec(asked, 0..400)
}

proptest! {
    /// A window by hand: a count for each node, in which each grant of the node counts `nodes` times.
    #[test]
    fn nodes_share_what_is_left_of_a_window(
        limit in 1..500_u64,
        used in 0..500_u64,
        nodes in 1..=8_usize,
        asked in asked(19),
    ) {
        let (used, times) = (used.min(limit), u64::try_from(nodes).unwrap());
        let policy = window(limit);
        let key = on(&policy, "k");
        let known = seen(&key, used);
        let mut all: Vec<Node> = (0..nodes).map(|_| Node::among(times)).collect();
        let mut counts = std::vec![used; nodes];
        let mut granted = 0;
        for (now, Asked { node, cost, .. }) in (2..).zip(asked) {
            let (node, cost) = (node % nodes, cost.min(limit));
            let Node { outage, standing } = &mut all[node];
            let verdict = outage.decide(*standing, &key, Timestamp(now), &cost.into(), Some(&known));
            let decision = verdict.unwrap().unwrap().decision;
            let expected = counts[node] + times * cost <= limit;
            prop_assert_eq!(decision.is_allowed(), expected);
            if expected {
                granted += cost;
                counts[node] += times * cost;
            }
            prop_assert_eq!(decision.remaining(), (limit - counts[node]) / times);
        }
        prop_assert!(granted <= limit - used, "{granted}");
    }

    /// A bucket by hand, in units of a millionth: what each node has spent, in which each grant counts `nodes` times. In any span all
    /// nodes together grant no more than the bucket.
    #[test]
    fn nodes_share_what_flows_into_a_bucket(
        capacity in 1..100_u64,
        rate in 1..50_u64,
        nodes in 1..=8_usize,
        asked in asked(5),
    ) {
        const UNIT: u64 = 1_000_000;
        let times = u64::try_from(nodes).unwrap();
        let text = "limits = [{ algorithm = 'token_bucket', capacity = CAPACITY, rate = 'RATE/s' }]";
        let policy = policy(&text.replace("CAPACITY", &format!("{capacity}")).replace("RATE", &format!("{rate}")));
        let key = on(&policy, "k");
        let mut all: Vec<Node> = (0..nodes).map(|_| Node::among(times)).collect();
        let mut spent = std::vec![(0, 1_000_000_u64); nodes];
        let (mut granted, mut now) = (0, 1_000_000);
        for Asked { node, after, cost } in asked {
            let (node, cost) = (node % nodes, cost.min(capacity));
            now += after;
            let verdict = all[node].decide(&key, now, cost);
            let (level, at) = spent[node];
            let level = u64::saturating_sub(level, (now - at) * rate);
            let expected = level + times * cost * UNIT <= capacity * UNIT;
            prop_assert_eq!(verdict.decision.is_allowed(), expected);
            spent[node] = (if expected { level + times * cost * UNIT } else { level }, now);
            granted += if expected { cost } else { 0 };
        }
        let flowed = capacity * UNIT + (now - 1_000_000) * rate;
        prop_assert!(granted * UNIT <= flowed, "{granted}");
    }

    #[test]
    fn no_cost_and_no_number_of_nodes_overflows(cost: u64, nodes: u64, now: u64) {
        let policy = policy("limits = [
          { algorithm = 'token_bucket', capacity = 9_000_000_000, rate = '1/s' },
          { algorithm = 'sliding_window', limit = 2_000_000_000, period = '1h' },
          { algorithm = 'calendar', limit = 9_007_199_254_740_991, period = 'day', timezone = 'UTC' },
        ]");
        let (key, mut node) = (on(&policy, "k"), Node::among(nodes));
        for now in [now, 0, u64::MAX] {
            let _ = node.ask(&key, now, cost);
        }
    }
}
