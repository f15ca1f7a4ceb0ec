//! Refusals that a node repeats.

use tidegate_gate::Depth;

use super::*;

const BUCKET: &str =
    "remember = '10s'\nlimits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/s' }]";

/// A node that has just heard that one unit is refused for 1 s.
fn refused(text: &str) -> World {
    let mut world = World::new(text);
    assert!(world.ask(5).1.decision.is_allowed());
    let (by_node, verdict) = world.ask(1);
    assert!(!by_node && !verdict.decision.is_allowed());
    world
}

#[test]
fn a_refusal_is_repeated_until_the_request_passes() {
    for limit in [
        "{ algorithm = 'token_bucket', capacity = 5, rate = '1/s' }",
        "{ algorithm = 'fixed_window', limit = 5, period = '4s' }",
        "{ algorithm = 'sliding_window', limit = 5, period = '4s' }",
        "{ algorithm = 'sliding_window', limit = 5, period = '4s', segments = 4 }",
        "{ algorithm = 'sliding_log', rates = ['5/4s', '7/8s'], min_gap = '100ms' }",
    ] {
        let mut world = refused(&format!("remember = '1m'\nlimits = [{limit}]"));
        let wait = world.would_say(1).decision.retry_after();
        for span in [0, 1, wait.0 / 3, wait.0 / 2] {
            world.pass(Micros(span));
            let (by_node, verdict) = world.ask(1);
            assert!(by_node);
            let said = world.would_say(1);
            assert_eq!(verdict.at, said.at, "{limit}");
            let wait = |verdict: &Verdict| {
                (verdict.decision.retry_after(), verdict.decision.reset_after())
            };
            assert_eq!(wait(&verdict), wait(&said), "{limit}");
            assert_eq!(verdict.limits.len(), said.limits.len());
            for (one, other) in verdict.limits.iter().zip(&said.limits) {
                assert_eq!(
                    (one.retry_after(), one.reset_after()),
                    (other.retry_after(), other.reset_after())
                );
            }
        }
        let left = world.would_say(1).decision.retry_after();
        world.pass(Micros(left.0 - 1));
        assert!(world.ask(1).0, "{limit}");
        world.pass(Micros(1));
        let (by_node, verdict) = world.ask(1);
        assert!(!by_node && verdict.decision.is_allowed(), "{limit}");
    }
}

#[test]
fn a_grant_is_not_remembered() {
    let mut world = World::new(BUCKET);
    world.ask(1);
    world.ask(Operation::Peek(request(1)));
    assert!(world.local.is_empty());
    assert!(!world.ask(5).1.decision.is_allowed());
    assert!(!world.local.is_empty());
    assert_eq!(world.local.len(), 1);
}

#[test]
fn a_wait_counts_from_the_question() {
    let mut world = World::new(BUCKET);
    let sent = world.at;
    assert_eq!(world.local(1), Err(None));
    world.pass(Micros(300_000));
    world.decide(5);
    let verdict = world.decide(1);
    world.pass(Micros(500_000));
    world.hear(1, &verdict, sent);
    assert_eq!(world.local(1).unwrap().decision.retry_after(), Micros(200_000));
    world.pass(Micros(200_000));
    assert_eq!(world.local(1), Err(None), "a second has passed since the question");
}

#[test]
fn a_reply_that_takes_longer_than_the_wait_is_not_remembered() {
    let mut world = World::new(BUCKET);
    world.decide(5);
    let (sent, verdict) = (world.at, world.decide(1));
    world.pass(s(1));
    world.hear(1, &verdict, sent);
    assert!(world.local.is_empty());
}

#[test]
fn a_refusal_is_repeated_for_no_longer_than_the_policy_says() {
    let mut world = refused(
        "remember = '2s'\nlimits = [{ algorithm = 'fixed_window', limit = 5, period = '1h' }]",
    );
    world.pass(Micros(1_999_999));
    assert!(world.ask(1).0);
    world.pass(Micros(1));
    assert!(!world.ask(1).0);
}

#[test]
fn an_answer_that_was_overtaken_does_not_shorten_the_memory() {
    let mut world = World::new(&BUCKET.replace("10s", "700ms"));
    world.decide(5);
    let (first, early) = (world.at, world.decide(1));
    world.pass(Micros(500_000));
    let (second, late) = (world.at, world.decide(1));
    world.hear(1, &late, second);
    world.hear(1, &early, first);
    world.pass(Micros(499_999));
    assert_eq!(world.local(1).unwrap().decision.retry_after(), Micros(1));
}

#[test]
fn a_refusal_holds_for_higher_costs_and_not_for_lower_ones() {
    let mut world = World::new(BUCKET);
    world.ask(3);
    assert!(!world.ask(4).0);
    assert_eq!(world.ask(5).1.decision.retry_after(), s(2), "known for 4 units");
    assert_eq!(world.local(3), Err(None));
    assert!(world.ask(2).1.decision.is_allowed());
    // the four units now take longer, and the node learns of it with the next question
    assert!(!world.ask(1).1.decision.is_allowed());
    assert_eq!(world.local(1).unwrap().decision.retry_after(), s(1));
    assert_eq!(world.local(4).unwrap().decision.retry_after(), s(2));
    assert_eq!(world.would_say(4).decision.retry_after(), s(4));
    world.pass(s(1));
    assert_eq!(world.local(1), Err(None));
    assert_eq!(world.local(4).unwrap().decision.retry_after(), s(1));
}

#[test]
fn a_few_costs_are_remembered_and_the_lowest_ones_stay() {
    let mut world = World::new(
        "remember = '1m'\nlimits = [{ algorithm = 'token_bucket', capacity = 9, rate = '1/s' }]",
    );
    world.decide(9);
    for cost in [9, 7, 5, 3, 8, 1] {
        let sent = world.at;
        let verdict = world.decide(cost);
        world.hear(cost, &verdict, sent);
    }
    let waits = [1, 2, 3, 4, 5, 6, 9].map(|cost| world.local(cost).unwrap().decision.retry_after());
    assert_eq!(waits, [1, 1, 3, 3, 5, 5, 5].map(s), "those of 1, 3 and 5 are known");
}

#[test]
fn whatever_gives_units_back_forgets_the_refusals_of_its_key() {
    for operation in [Operation::Refund(5), Operation::Reset(Depth::Whole)] {
        let mut world = refused(BUCKET);
        let sent = world.at;
        assert_eq!(world.local(operation), Err(None));
        // a question that overtakes the operation is forgotten once the operation is answered
        world.pass(Micros(10));
        let (early, verdict) = (world.at, world.decide(1));
        world.hear(1, &verdict, early);
        assert!(world.local(1).is_ok());
        let done = world.decide(operation);
        world.pass(Micros(10));
        world.hear(operation, &done, sent);
        assert_eq!(world.local(1), Err(None), "{operation:?}");
        // a question that was sent before the answer, or in the same microsecond, may have been decided before the
        // operation
        for sent in [early, world.at] {
            world.hear(1, &verdict, sent);
            assert_eq!(world.local(1), Err(None), "{operation:?}");
        }
        assert!(world.ask(1).1.decision.is_allowed(), "{operation:?}");
    }
}

#[test]
fn units_that_came_back_count_even_if_the_node_has_forgotten_the_key() {
    let heard_before: fn(&mut World) = |world| world.pass(Micros(1));
    let heard_after: fn(&mut World) = |world| {
        let answer = world.decide(Operation::Refund(5));
        world.pass(Micros(1));
        world.hear(Operation::Refund(5), &answer, Micros(78));
    };
    for answers in [heard_before, heard_after] {
        let mut world = refused(BUCKET);
        world.local = NodeCache::new(Options { most_keys: 1, ..Options::default() });
        let (key, sent) = (world.resolved.clone(), world.at);
        let late = world.decide(1);
        world.pass(Micros(1));
        assert!(world.local(Operation::Refund(5)).is_err());
        world.pass(Micros(1));
        world.resolved = Resolved::new(key.policy(), "another").unwrap();
        assert!(world.local(Operation::Refund(1)).is_err());
        world.resolved = key;
        answers(&mut world);
        world.hear(1, &late, sent); // it was decided before the units came back
        assert!(world.local(1).is_err());
    }
}

#[test]
fn a_block_is_repeated_until_it_ends_or_is_lifted_by_this_node() {
    let mut world = World::new(BUCKET);
    world.ask(Operation::Block(s(5)));
    world.pass(Micros(1));
    assert_eq!(world.ask(1).1.decision.retry_after(), Micros(4_999_999));
    world.pass(s(2));
    let (by_node, verdict) = world.ask(1);
    assert!(by_node);
    assert_eq!(verdict.decision, world.would_say(1).decision);
    world.ask(Operation::Block(Micros::ZERO));
    world.pass(Micros(1));
    assert!(world.ask(1).1.decision.is_allowed());
}

#[test]
fn another_revision_of_the_policy_forgets_the_refusals() {
    let mut world = refused(BUCKET);
    assert!(world.local(1).is_ok());
    world.resolved = Resolved::new(&policy(BUCKET), "user:42").unwrap();
    assert_eq!(world.local(1), Err(None));
}

#[test]
fn keys_and_rules_are_remembered_apart() {
    let policy =
        policy(&format!("{BUCKET}\noverrides = {{ 'ip:2001:db8::1' = {{ capacity = 9 }} }}"));
    let mut world = refused(BUCKET);
    world.resolved = Resolved::new(&policy, "ip:2001:db8::2").unwrap();
    world.ask(5);
    assert!(!world.ask(1).1.decision.is_allowed());
    assert!(world.local(1).is_ok());
    // the same canonical key under the rule of an override
    world.resolved = Resolved::new(&policy, "ip:2001:db8::1").unwrap();
    assert_eq!(world.resolved.key(), "ip:2001:db8::/64");
    assert_eq!(world.local(1), Err(None));
    world.resolved = Resolved::new(&policy, "user:42").unwrap();
    assert_eq!(world.local(1), Err(None));
}

#[test]
fn the_refusal_of_a_limit_on_places_is_not_remembered() {
    let mut world = World::new(
        "remember = '1m'
         limits = [
           { algorithm = 'token_bucket', capacity = 2, rate = '1/m' },
           { algorithm = 'concurrency', capacity = 1, time_to_live = '1m' },
         ]",
    );
    let with = |lease| Operation::Decide(Request { lease: Some(Id([lease, lease])), ..request(1) });
    assert!(world.ask(with(1)).1.decision.is_allowed());
    assert!(!world.ask(with(2)).1.decision.is_allowed());
    assert!(!world.ask(with(2)).0, "the place may come back at any time");
    world.ask(Operation::Release(Id([1, 1])));
    assert!(world.ask(with(2)).1.decision.is_allowed());
    world.ask(Operation::Release(Id([2, 2])));
    world.pass(Micros(1));
    assert!(!world.ask(with(3)).1.decision.is_allowed());
    assert!(world.ask(with(3)).0, "units come back with time alone");
    world.ask(Operation::Heartbeat(Id([3, 3])));
    assert!(world.ask(with(3)).0, "a lease that is renewed gives nothing back");
    assert_eq!(world.local(1), Err(None), "without a lease the authority has an error");
}

#[test]
fn a_cost_that_never_fits_is_an_error_of_the_authority() {
    let mut world = refused(BUCKET);
    assert!(world.local(5).is_ok());
    assert_eq!(world.local(6), Err(None));
    assert_eq!(world.local(Operation::Peek(request(6))), Err(None));
    assert_eq!(world.local(0), Err(None), "a peek at nothing always passes");
    assert!(world.local(Operation::Peek(request(1))).is_ok());
}

#[test]
fn the_refusal_of_a_peek_is_not_remembered() {
    let mut world = World::new(
        "remember = '1m'
         limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/s', start = 'empty' }]",
    );
    assert!(!world.ask(Operation::Peek(request(1))).1.decision.is_allowed());
    assert!(!world.ask(1).0, "the bucket fills from this request on");
    assert!(world.ask(Operation::Peek(request(1))).0);
}

#[test]
fn a_reservation_is_always_asked_for_and_a_commit_ends_a_refusal() {
    let mut world =
        World::new(&format!("{BUCKET}\nreservations = {{ most = 1, remember = '1s' }}"));
    let reserve = |id: u64, cost: u64| {
        Operation::Decide(Request { lease: Some(Id([0, id])), hold: s(60), ..request(cost) })
    };
    assert!(world.ask(reserve(1, 5)).1.decision.is_allowed());
    let (by_node, verdict) = world.ask(1);
    assert!(!by_node && !verdict.decision.is_allowed());
    assert!(world.ask(1).0, "the refusal is remembered");
    let (by_node, again) = world.ask(reserve(1, 5));
    assert!(!by_node && again.decision.is_allowed(), "only the authority knows the reservation");
    world.ask(Operation::Commit(Id([0, 1]), 2));
    let (by_node, verdict) = world.ask(1);
    assert!(!by_node && verdict.decision.is_allowed(), "3 units have come back");
    let (by_node, full) = world.ask(reserve(2, 1));
    assert!(!by_node && !full.decision.is_allowed(), "the key remembers the first one");
    assert!(world.ask(1).1.decision.is_allowed(), "which says nothing of other requests");
}

#[test]
fn a_request_whose_repeats_are_known_goes_to_the_authority_and_its_verdict_teaches_nothing() {
    let text = "remember = '1m'\nidempotency = '1h'
        limits = [{ algorithm = 'token_bucket', capacity = 10, rate = '1/m' }]";
    let mut world = World::new(text);
    assert!(world.ask(10).1.decision.is_allowed());
    assert!(!world.ask(1).0);
    assert!(world.ask(1).0, "the refusal is repeated");
    let known = Idempotency { id: Id([1, 2]), request: 3 };
    world.resolved = world.resolved.clone().known_by(known);
    assert!(!world.ask(1).0);
    assert_eq!(world.local(1), Err(None), "the authority knows whether it is a repeat");
}
