//! A node that decides by the factor heard last, and reports what it was offered.

use tidegate_gate::{Decision, Depth, Draw, Offered, Probability};

use super::*;

/// 6 units in each part of 6 s.
const ONE_A_SECOND: &str = "
    reports = true
    limits = [{ algorithm = 'suppression', rate = '1/s' }]";

const PART: u64 = 6_000_000;

/// A node at the beginning of a part, which has asked the authority for one request.
fn knows(text: &str) -> World {
    let mut world = World::new(text);
    world.at = Micros(PART - AHEAD % PART);
    assert!(!world.ask(1).0, "a node that has heard no factor asks");
    world
}

fn draw(cost: u64, draw: u32) -> Operation {
    Request { draw: Draw(draw), ..request(cost) }.into()
}

fn offered(world: &World, admitted: u64, suppressed: u64) -> Operation {
    let at = Timestamp(world.now().0 / PART * PART);
    Operation::Report(Offered { at: Some(at), admitted, suppressed })
}

#[test]
fn a_node_decides_by_itself_and_reports_every_two_seconds() {
    let mut world = knows(ONE_A_SECOND);
    assert!(world.ask(1).0);
    assert_eq!(world.transmit(), [offered(&world, 1, 0)], "it has reported nothing for 2 s");
    assert_eq!(world.local.poll_timeout(), None);
    assert!(world.ask(2).0 && world.ask(1).0);
    let due = world.at.0 + 2_000_000;
    assert_eq!(world.local.poll_timeout(), Some(Micros(due)));
    world.at.0 = due - 1;
    assert_eq!(world.transmit(), []);
    world.at.0 = due;
    assert_eq!(world.transmit(), [offered(&world, 3, 0)]);
    assert_eq!(world.local.poll_timeout(), None);
    world.pass(s(20));
    assert_eq!(world.transmit(), []);
}

#[test]
fn units_of_two_parts_are_two_reports() {
    let mut world = knows(ONE_A_SECOND);
    world.pass(s(5));
    assert!(world.ask(1).0);
    world.transmit();
    assert!(world.ask(2).0);
    let before = offered(&world, 2, 0);
    world.pass(s(2));
    assert!(world.ask(3).0);
    assert_eq!(world.transmit(), [offered(&world, 3, 0), before]);
}

/// The node's clock was slow, and an answer corrects it. The account keeps the units of two parts, so they are reported
/// before a third part begins.
#[test]
fn a_report_is_due_at_once_when_an_answer_moves_the_clock_of_the_key_by_as_much() {
    for (ahead, is_due) in [(s(1), false), (s(2), true), (s(7), true)] {
        let mut world = knows(ONE_A_SECOND);
        assert!(world.ask(1).0);
        world.transmit();
        assert!(world.ask(2).0);
        let (before, sent) = (offered(&world, 2, 0), world.at);
        let mut verdict = world.decide(1);
        verdict.at = world.now().saturating_add(ahead);
        world.hear(1, &verdict, sent);
        let due = if is_due { sent } else { Micros(sent.0 + 2_000_000) };
        assert_eq!(world.local.poll_timeout(), Some(due), "{ahead:?}");
        assert_eq!(
            world.transmit(),
            if is_due { [before].into() } else { Vec::new() },
            "{ahead:?}"
        );
        assert_eq!(world.local.due.accounts.len(), usize::from(!is_due), "one place");
    }
}

/// The account keeps the units of two parts, and an answer moves its clock into a third one before a report is due.
#[test]
fn an_answer_that_moves_the_clock_of_the_key_over_a_part_loses_no_unit() {
    let mut world = knows(ONE_A_SECOND);
    world.pass(Micros(4_500_000));
    assert!(world.ask(1).0);
    world.transmit();
    assert!(world.ask(2).0);
    let older = offered(&world, 2, 0);
    world.pass(Micros(1_900_000));
    assert!(world.ask(3).0);
    let (newer, sent) = (offered(&world, 3, 0), world.at);
    assert_eq!(world.transmit(), []);
    let mut verdict = world.decide(1);
    verdict.at = world.now().saturating_add(s(6));
    world.hear(1, &verdict, sent);
    assert_eq!(world.local.poll_timeout(), Some(sent));
    assert_eq!(world.transmit(), [newer, older]);
    assert_eq!(world.local.poll_timeout(), None);
}

/// A single node knows all that the authority knows.
#[test]
fn an_answer_is_the_one_that_the_authority_would_give() {
    let mut world = knows(ONE_A_SECOND);
    let mut strict = World::new("limits = [{ algorithm = 'suppression', rate = '1/s' }]");
    strict.at = world.at;
    let _ = strict.decide(1);
    for pause in [0, 100_000, 900_000, 3_000_000, 0, 3_000_000, 1, 20_000_000] {
        for world in [&mut world, &mut strict] {
            world.pass(Micros(pause));
        }
        let (by_node, said) = world.ask(1);
        assert!(by_node);
        assert_eq!(said, strict.decide(1), "after {pause} µs");
        world.transmit();
    }
    // 5 more units than the part has, and a factor of ½
    let mut world = knows(ONE_A_SECOND);
    let _ = world.decide(11);
    world.pass(s(6));
    assert!(world.ask(1).0);
    world.transmit();
    let (by_node, said) = world.ask(draw(1, 0));
    let Decision::Deny { limit, remaining, retry_after, reset_after } = said.decision else {
        panic!()
    };
    assert!(by_node);
    assert_eq!((limit, remaining, retry_after, reset_after), (6, 4, s(6), s(24)));
    assert_eq!(said.limits, [said.decision]);
    assert_eq!(said.factor, Probability::from_units(1 << 31), "as at the end of the part");
    let unlucky = world.would_say(draw(1, 0)).decision;
    assert_eq!((unlucky.is_allowed(), unlucky.retry_after()), (false, s(6)));
    assert!(world.ask(draw(1, 1 << 31)).1.decision.is_allowed());
}

#[test]
fn a_node_alone_admits_no_more_than_the_account_may_have() {
    let mut world = knows(ONE_A_SECOND);
    world.pass(s(1));
    for _ in 0..6 {
        assert!(world.ask(draw(1, u32::MAX)).1.decision.is_allowed());
    }
    let (by_node, capped) = world.ask(draw(1, u32::MAX));
    assert!(by_node);
    assert_eq!(capped.decision.retry_after(), s(5));
    world.pass(s(5));
    assert_eq!(world.transmit(), [offered_before(&world, 6, 1)]);
    assert!(world.ask(draw(1, u32::MAX)).1.decision.is_allowed());
}

fn offered_before(world: &World, admitted: u64, suppressed: u64) -> Operation {
    let at = Timestamp(world.now().0 / PART * PART - PART);
    Operation::Report(Offered { at: Some(at), admitted, suppressed })
}

#[test]
fn all_else_is_asked() {
    let mut world = knows(ONE_A_SECOND);
    let offered = Offered { at: None, admitted: 1, suppressed: 0 };
    for operation in [
        Operation::from(0),
        Operation::from(7), // the authority decides on a cost that no node may admit
        Operation::Peek(request(1)),
        Operation::Refund(1),
        Operation::Report(offered),
    ] {
        assert!(!world.ask(operation).0, "{operation:?}");
    }
    assert_eq!(world.transmit(), []);
    assert!(world.ask(1).0, "the node still knows a factor");
}

#[test]
fn a_node_that_hears_nothing_for_24_s_asks_again() {
    let mut world = knows(ONE_A_SECOND);
    world.pass(s(24));
    world.at.0 -= 1;
    assert!(world.local(1).is_ok());
    world.pass(Micros(1));
    assert!(world.local(1).is_err());
    // an answer to an old question tells too little
    let verdict = world.decide(0);
    let sent = world.at;
    world.pass(s(24));
    world.hear(0, &verdict, sent);
    assert!(world.local(1).is_err());
}

#[test]
fn an_older_answer_does_not_replace_a_newer_one() {
    let mut world = knows(ONE_A_SECOND);
    let (old, sent) = (world.decide(0), world.at);
    world.pass(Micros(1));
    let _ = world.decide(1_000); // far above the limit
    let newer = world.decide(0);
    world.hear(0, &newer, world.at);
    world.hear(0, &old, sent);
    assert!(!world.local(1).unwrap().decision.is_allowed());
}

#[test]
fn a_reset_forgets_the_units_and_the_factor() {
    let mut world = knows(ONE_A_SECOND);
    let _ = world.decide(1_000);
    world.hear(0, &world.would_say(0), world.at);
    assert!(!world.local(1).unwrap().decision.is_allowed());
    let (early, sent) = (world.would_say(0), world.at);
    assert!(!world.ask(Operation::Reset(Depth::Whole)).0);
    world.hear(0, &early, sent);
    world.pass(s(2));
    assert_eq!(world.transmit(), [], "the authority has forgotten the account");
    let (by_node, verdict) = world.ask(1);
    assert!(!by_node && verdict.decision.is_allowed());
}

#[test]
fn a_block_stops_the_node_that_blocks_and_keeps_its_units() {
    let mut world = knows(ONE_A_SECOND);
    assert!(world.ask(1).0);
    assert!(!world.ask(Operation::Block(s(60))).0);
    world.pass(Micros(1));
    let (by_node, blocked) = world.ask(1);
    assert!(!by_node && !blocked.decision.is_allowed());
    assert_eq!(blocked.factor, Some(Probability::CERTAIN));
    let (by_node, blocked) = world.ask(draw(1, u32::MAX));
    assert!(by_node && !blocked.decision.is_allowed());
    world.pass(s(2));
    assert_eq!(world.transmit(), [offered(&world, 1, 1)]);
    world.ask(Operation::Block(Micros::ZERO));
    assert!(world.ask(1).1.decision.is_allowed());
}

/// An answer may be older than the operation after which it arrives.
#[test]
fn what_was_asked_before_the_end_of_a_reset_or_a_block_is_not_believed() {
    for operation in [Operation::Reset(Depth::Whole), Operation::Block(s(60))] {
        let mut world = knows(ONE_A_SECOND);
        let before = world.would_say(0);
        let (began, _) = (world.at, world.local(operation));
        assert!(world.local(1).is_err(), "{operation:?} is on its way");
        world.pass(Micros(1));
        let (sent, _) = (world.at, world.local(0));
        world.pass(Micros(1));
        let done = world.decide(operation);
        world.hear(operation, &done, began);
        world.hear(0, &before, sent);
        assert!(world.local(1).is_err(), "{operation:?}");
    }
}

#[test]
fn a_reset_of_another_part_of_the_key_changes_nothing() {
    let shared =
        "reports = true\nlimits = [{ algorithm = 'suppression', rate = '1/s', depth = 1 }]";
    let mut world = knows(shared);
    assert!(world.ask(1).0);
    assert!(!world.ask(Operation::Reset(Depth::Whole)).0);
    assert!(world.ask(1).0);
    assert_eq!(world.transmit(), [offered(&world, 2, 0)]);
}

#[test]
fn the_keys_of_one_account_are_reported_together() {
    let shared =
        "reports = true\nlimits = [{ algorithm = 'suppression', rate = '1/s', depth = 1 }]";
    let mut world = knows(shared);
    let policy = Arc::clone(world.resolved.policy());
    for key in ["user:42/laptop", "user:42/phone", "user:42"] {
        world.resolved = Resolved::new(&policy, key).unwrap();
        assert!(world.ask(1).0);
    }
    assert_eq!(world.transmit(), [offered(&world, 3, 0)]);
    world.resolved = Resolved::new(&policy, "user:43").unwrap();
    assert!(!world.ask(1).0);
}

#[test]
fn units_count_in_the_part_in_which_they_were_offered_whatever_the_wall_clock_says() {
    for wall in [0, 3_600_000_000, AHEAD * 2, u64::MAX] {
        let mut world = knows(ONE_A_SECOND);
        for _ in 0..3 {
            let at = world.at;
            let Next::Answer(answer) = world.local.answer_or_forward(
                &world.resolved,
                &Operation::from(1),
                Timestamp(wall),
                at,
            ) else {
                panic!("wall clock {wall}")
            };
            assert_eq!(answer.verdict().at, world.now());
            let transmit = world.local.poll_transmit(Timestamp(wall), at).unwrap();
            assert_eq!(transmit.operation, offered(&world, 1, 0));
            world.pass(s(7));
        }
    }
}

#[test]
fn a_key_with_units_to_report_is_not_forgotten() {
    let mut world = knows(ONE_A_SECOND);
    let policy = Arc::clone(world.resolved.policy());
    world.local = NodeCache::new(Options { most_keys: 400, ..Options::default() });
    for (round, knows) in [(0, false), (1, true)] {
        for key in 0..400 {
            world.resolved = Resolved::new(&policy, &format!("key-{key}")).unwrap();
            assert_eq!(world.ask(1).0, knows, "key {key} in round {round}");
        }
    }
    world.resolved = Resolved::new(&policy, "one too many").unwrap();
    assert_eq!((world.local.clock_hand, world.local(1).is_err()), (0, true));
    let entries = &mut world.local.entries;
    let is_key = |bucket: &usize| entries.get_bucket_entry(*bucket).is_ok();
    assert_eq!(
        (1..=world.local.clock_hand).filter(is_key).count(),
        65,
        "a search for a key to forget ends"
    );
    for _ in 0..3 {
        assert!(!world.ask(1).0, "the node asks for a key that it cannot remember");
    }
    assert_eq!(world.transmit().len(), 400);
    assert!(!world.ask(1).0 && world.ask(1).0);
    assert_eq!(world.local.len(), 400);
}

/// Three nodes are offered ten times the limit.
#[test]
fn the_admitted_rate_settles_at_the_limit() {
    let text = "reports = true\nlimits = [{ algorithm = 'suppression', rate = '100/s' }]";
    let mut world = knows(text);
    let mut nodes = [1, 2, 3].map(local);
    let (mut random, mut admitted, mut asked) = (7_u64, 0, 0);
    for request in 0..60_000_u64 {
        world.pass(Micros(1_000));
        let node = usize::try_from(request % 3).unwrap();
        core::mem::swap(&mut world.local, &mut nodes[node]);
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (by_node, verdict) = world.ask(draw(1, u32::try_from(random >> 32).unwrap()));
        asked += usize::from(!by_node) + world.transmit().len();
        core::mem::swap(&mut world.local, &mut nodes[node]);
        if request >= 12_000 {
            admitted += u64::from(verdict.decision.is_allowed());
        }
    }
    assert!((4_600..=5_000).contains(&admitted), "{admitted} in 48 s at 100/s");
    assert!(asked <= 3 * (1 + 31 + 10), "{asked} questions");
}
