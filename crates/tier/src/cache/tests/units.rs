//! Units that a node takes in advance.

use tidegate_gate::{Budget, Depth, Effect, Grant, Unspent};

use super::super::OFTEN;
use super::*;

const BUCKET: &str = "
    local = { most = 50, time = '10s' }
    limits = [{ algorithm = 'token_bucket', capacity = 100, rate = '1/d' }]";

/// A node that has just received units.
fn lent(text: &str) -> World {
    let mut world = World::new(text);
    for _ in 0..OFTEN {
        assert!(!world.ask(1).0);
    }
    world
}

/// Asks as often as it takes until the node sends for units, and returns that question.
fn sends_for(world: &mut World) -> (Operation, Micros) {
    for _ in 0..OFTEN {
        if let Err(Some(budget)) = world.local(1) {
            return (budget, world.at);
        }
    }
    panic!("the node does not send for units");
}

fn unspent(operation: Operation) -> Option<Unspent> {
    match operation {
        Operation::Budget(Budget { unspent, .. }) => unspent,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_that_is_asked_often_spends_units_without_asking() {
    let mut world = lent(BUCKET);
    for left in (0..8).rev() {
        let (by_node, verdict) = world.ask(1);
        assert!(by_node && verdict.decision.is_allowed());
        assert_eq!(verdict.effect, Effect::Decision);
        assert_eq!((verdict.decision.limit(), verdict.decision.remaining()), (100, 84 + left));
        assert_eq!(verdict.limits[0].remaining(), 84 + left);
    }
    assert!(!world.ask(1).0, "the units are spent");
}

#[test]
fn a_node_that_is_asked_seldom_asks_for_each_request() {
    let mut world = World::new(BUCKET);
    for _ in 0..50 {
        assert!(!world.ask(1).0);
        world.pass(Micros(10_000_000 / u64::from(OFTEN - 1) + 1));
    }
}

#[test]
fn all_units_of_the_limit_are_granted_and_no_more() {
    let mut world = World::new(BUCKET);
    let (mut granted, mut by_node) = (0, 0);
    for _ in 0..200 {
        let (own, verdict) = world.ask(1);
        granted += u64::from(verdict.decision.is_allowed());
        by_node += u64::from(own);
        world.pass(Micros(1));
    }
    assert_eq!(granted, 100);
    assert!(by_node > 50, "{by_node}");
}

#[test]
fn units_are_spent_within_their_time_since_the_node_sent_for_them() {
    let mut world = World::new(BUCKET);
    let (budget, sent) = sends_for(&mut world);
    world.pass(s(1));
    let granted = world.decide(budget);
    world.pass(s(2));
    world.hear(budget, &granted, sent);
    assert!(world.ask(1).0);
    world.pass(Micros(6_999_999));
    assert!(world.ask(1).0);
    world.pass(Micros(1));
    assert!(!world.ask(1).0);
}

#[test]
fn the_rest_goes_back_with_the_next_question_and_is_not_spent_meanwhile() {
    let mut world = lent(BUCKET);
    for _ in 0..7 {
        world.ask(1);
    }
    world.pass(Micros(1));
    let sent = world.at;
    let Err(Some(budget)) = world.local(5) else { panic!("one unit is not enough") };
    assert_eq!(unspent(budget).map(|unspent| unspent.left), Some(1));
    assert_eq!(world.local(1), Err(None), "the unit is on its way back");
    let granted = world.decide(budget);
    let Effect::Budget { returned, allowance } = granted.effect else { panic!() };
    assert_eq!(returned, Some(true));
    world.hear(budget, &granted, sent);
    assert_eq!(world.local(1).unwrap().at, allowance.granted_at);
}

#[test]
fn a_node_that_stops_gives_back_what_it_holds_and_what_arrives_late() {
    let mut world = lent(BUCKET);
    for _ in 0..3 {
        assert!(world.ask(1).0);
    }
    let at = world.at;
    let [own] = &world.local.give_back(at)[..] else { panic!("one key") };
    let left = unspent(own.operation).unwrap().left;
    assert!(left > 0);
    let spent = OFTEN + 3;
    assert_eq!(world.decide(own.operation).decision.remaining(), 100 - u64::from(spent));
    assert_eq!(world.local(1), Err(None), "what went back is not spent");
    assert_eq!(world.local.give_back(at), []);
    assert!(!world.local.waits_for_units(at));

    world.pass(s(11)); // a holder gets units once in their time
    let (late, sent) = sends_for(&mut world);
    assert!(world.local.waits_for_units(world.at));
    assert_eq!(world.local.give_back(world.at), [], "they have not arrived");
    let granted = world.decide(late);
    world.hear(late, &granted, sent);
    assert!(!world.local.waits_for_units(world.at));
    let [own] = &world.local.give_back(world.at)[..] else { panic!("they have arrived") };
    world.decide(own.operation);
    world.pass(s(1));
    assert_eq!(world.decide(Operation::from(0)).decision.remaining(), 100 - u64::from(spent));
}

#[test]
fn a_lost_question_is_not_repeated_before_its_time_has_passed() {
    let mut world = World::new(BUCKET);
    let (lost, first) = sends_for(&mut world);
    for _ in 0..20 {
        assert_eq!(world.local(1), Err(None));
        world.pass(Micros(400_000));
    }
    world.pass(Micros(1_999_999));
    let late = world.decide(lost);
    world.pass(Micros(1));
    let (budget, sent) = sends_for(&mut world);
    assert_eq!(unspent(budget), None);
    world.hear(lost, &late, first);
    assert_eq!(world.local(1), Err(None), "these units were lost");
    let granted = world.decide(budget);
    world.hear(budget, &granted, sent);
    world.hear(budget, &granted, sent);
    let left = granted.effect.allowance().unwrap().left;
    for _ in 0..left {
        assert!(world.ask(1).0);
    }
    world.hear(budget, &granted, sent);
    assert!(!world.ask(1).0, "a verdict that arrives twice grants once");
}

#[test]
fn the_units_of_a_caller_are_not_the_units_of_the_node() {
    let mut world = World::new(BUCKET);
    let (_, sent) = sends_for(&mut world);
    let caller = Budget { holder: Id([9, 9]), wants: 10, unspent: None };
    let granted = world.decide(Operation::Budget(caller));
    world.hear(Operation::Budget(caller), &granted, sent);
    assert_eq!(world.local(1), Err(None));
}

#[test]
fn a_node_forgets_its_units_when_it_blocks_or_clears_the_key() {
    for operation in [Operation::Block(s(60)), Operation::Reset(Depth::Whole)] {
        let mut world = lent(BUCKET);
        assert!(world.ask(1).0);
        let verdict = world.ask(operation).1;
        assert_eq!(verdict.decision.remaining() == 0, operation == Operation::Block(s(60)));
        assert!(!world.ask(1).0, "{operation:?}");

        // units that arrive after the operation, and were sent for before its answer
        for answered_first in [false, true] {
            let mut world = World::new(BUCKET);
            let (budget, sent) = sends_for(&mut world);
            let granted = world.decide(budget);
            if answered_first {
                world.ask(operation);
            } else {
                assert_eq!(world.local(operation), Err(None));
            }
            world.hear(budget, &granted, sent);
            assert!(!world.ask(1).0, "{operation:?}");
            for _ in 0..20 {
                // in the microsecond of the operation nobody knows what was first
                assert!(matches!(world.local(1), Err(None)), "{operation:?}");
            }
        }
        let mut world = World::new(BUCKET);
        assert_eq!(world.local(operation), Err(None));
        world.pass(Micros(1));
        let (budget, sent) = sends_for(&mut world);
        let granted = world.decide(budget);
        world.hear(budget, &granted, sent);
        let verdict = world.decide(operation);
        world.hear(operation, &verdict, Micros(77));
        assert!(!world.ask(1).0, "{operation:?}");
    }
}

/// The reply could be from before the reset, and the node has no other way to tell.
#[test]
fn a_node_does_not_send_for_units_in_the_moment_of_a_reset_also_if_it_has_forgotten_the_key() {
    let mut world = World::new(BUCKET);
    world.local = NodeCache::new(Options { most_keys: 1, ..Options::default() });
    let policy = Arc::clone(world.resolved.policy());
    let key = world.resolved.clone();
    assert!(!world.ask(1).0);
    assert_eq!(world.local(Operation::Reset(Depth::Whole)), Err(None));
    world.resolved = Resolved::new(&policy, "user:43").unwrap();
    for _ in 0..3 {
        assert_eq!(world.local(1), Err(None), "there is room for one key");
    }
    world.resolved = key;
    for _ in 0..3 * OFTEN {
        assert_eq!(world.local(1), Err(None));
    }
    world.pass(Micros(1));
    sends_for(&mut world);
}

#[test]
fn another_revision_of_the_policy_forgets_the_units() {
    let mut world = lent(BUCKET);
    assert!(world.local(1).is_ok());
    world.resolved = Resolved::new(&policy(BUCKET), "user:42").unwrap();
    assert!(world.local(1).is_err());
}

#[test]
fn a_refund_returns_units_to_the_window_that_counted_them() {
    let mut world = World::new(
        "local = { most = 50, time = '10s' }
         limits = [{ algorithm = 'fixed_window', limit = 100, period = '10s' }]",
    );
    world.pass(Micros(8_000_000 - 77));
    for _ in 0..OFTEN {
        world.ask(1);
    }
    world.pass(s(3));
    let (by_node, verdict) = world.ask(5);
    assert!(by_node && verdict.decision.is_allowed());
    world.decide(100); // in the next window
    let refund = Operation::RefundOf(Grant { at: verdict.at, units: 5 }, 5);
    assert_eq!(world.ask(refund).1.decision.remaining(), 0, "another window counted them");
}

#[test]
fn a_key_without_units_is_asked_about_and_then_known_to_be_refused() {
    let mut world = lent(&format!("remember = '1m'\n{BUCKET}"));
    world.decide(84);
    for _ in 0..8 {
        assert!(world.ask(1).1.decision.is_allowed(), "the node holds units");
    }
    let (by_node, verdict) = world.ask(1);
    assert!(!by_node && !verdict.decision.is_allowed());
    let asks_no_more = (0..50).all(|_| world.ask(1).0);
    assert!(asks_no_more);
}

#[test]
fn demand_that_grows_gets_more_units() {
    let mut world = World::new(
        "local = { most = 1_000, time = '1s' }
         limits = [{ algorithm = 'token_bucket', capacity = 10_000, rate = '10000/s' }]",
    );
    let mut asked = 0;
    for _ in 0..5_000 {
        asked += u64::from(!world.ask(1).0);
        world.pass(Micros(1_000));
    }
    assert!(asked < 50, "{asked} of 5,000 requests were forwarded");
}

#[test]
fn units_that_go_back_make_refusals_untrue() {
    let mut world = lent(&format!("remember = '1m'\n{BUCKET}"));
    world.decide(40); // 44 are left, and the node has 8
    assert!(!world.ask(45).1.decision.is_allowed());
    assert!(world.ask(45).0);
    for _ in 0..7 {
        world.ask(1);
    }
    world.pass(Micros(1));
    let Err(Some(budget)) = world.local(5) else { panic!("one unit is not enough") };
    assert_eq!(unspent(budget).map(|unspent| unspent.left), Some(1));
    world.decide(Operation::Budget(Budget {
        holder: Id([1, 0]),
        wants: 0,
        unspent: unspent(budget),
    }));
    assert_eq!(world.local(45), Err(None));
    assert!(world.decide(45).decision.is_allowed());
}

#[test]
fn peeks_and_costs_that_never_fit_are_not_counted() {
    for cost in [0, 101] {
        let mut world = World::new(BUCKET);
        for _ in 0..3 * OFTEN {
            assert_eq!(world.local(cost), Err(None));
        }
        let mut world = lent(BUCKET);
        for _ in 0..3 * OFTEN {
            assert_eq!(world.local(cost), Err(None));
        }
    }
}

#[test]
fn a_node_wants_what_it_would_spend_at_the_speed_of_the_last_units() {
    let mut world = lent(BUCKET);
    for _ in 0..7 {
        assert!(world.ask(1).0);
    }
    world.pass(s(9));
    assert!(world.ask(1).0);
    world.pass(Micros(500_000)); // no units are left to spend meanwhile
    let Err(Some(Operation::Budget(budget))) = world.local(1) else { panic!("no units are left") };
    assert_eq!(budget.wants, 9, "8 units in 9 s are 8 in 10 s, and an eighth more");
}
