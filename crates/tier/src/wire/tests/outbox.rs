//! The node's side.

use std::string::ToString;
use std::vec;
use std::{format, iter};

use tidegate_gate::Decision;

use super::message::{Name, Reply};
use super::*;

type Tested = Outbox<usize>;

fn outbox(options: NodeOptions) -> Tested {
    Outbox::new(options)
}

/// The keys and the costs of a question's operations.
fn operations(question: &Question) -> Vec<(String, Operation)> {
    let content = message::Question::read(&question.bytes).unwrap().content().unwrap();
    content.operations.iter().map(|asked| (asked.key.into(), asked.operation)).collect()
}

fn verdict(at: u64) -> Verdict {
    let decision = Decision::Allow { limit: 9, remaining: 8, reset_after: Micros(7) };
    Verdict::listed(Timestamp(at), decision)
}

/// A reply with as many verdicts, each with another time.
fn reply(number: u64, answers: u64) -> Vec<u8> {
    Reply::Answers((0..answers).map(|at| Ok(verdict(at))).collect())
        .write(Name { node: NODE, number })
}

/// What waits, in questions: their numbers and how many operations they have.
fn send(outbox: &mut Tested, at: u64) -> Vec<(u64, usize)> {
    iter::from_fn(|| outbox.poll_transmit(Micros(at)))
        .map(|question| (question.number, operations(&question).len()))
        .collect()
}

/// The tokens of the answers, and the times of their verdicts.
fn tokens(outbox: &mut Tested) -> Vec<(usize, Result<u64, Failure>)> {
    let answers = answers(outbox).into_iter();
    answers.map(|(token, result)| (token, result.map(|verdict| verdict.at.0))).collect()
}

#[test]
fn operations_join_the_next_question_while_one_of_their_partition_is_under_way() {
    let mut outbox = outbox(options());
    for (token, key) in ["a/1", "a/2", "b/1", "a/1"].into_iter().enumerate() {
        outbox.ask(asked(key, 0, token));
    }
    let question = outbox.poll_transmit(Micros(1)).unwrap();
    let keys: Vec<_> = operations(&question).into_iter().map(|(key, _)| key).collect();
    assert_eq!((question.number, keys), (0, vec!["a/1".into(), "a/2".into(), "a/1".into()]));
    assert_eq!(question.to.partition(), "a");
    assert_eq!(send(&mut outbox, 1), [(1, 1)], "the other partition is sent at once");
    for token in 4..7 {
        outbox.ask(asked("a/1", 2, token));
        assert_eq!(send(&mut outbox, 2), []);
    }
    outbox.handle_reply(&reply(0, 3), Micros(3)).unwrap();
    assert_eq!(tokens(&mut outbox), [(0, Ok(0)), (1, Ok(1)), (3, Ok(2))]);
    assert_eq!(send(&mut outbox, 3), [(2, 3)]);
    assert_eq!((outbox.waiting(), outbox.groups()), (4, 2));
    outbox.handle_reply(&reply(2, 3), Micros(3)).unwrap();
    outbox.handle_reply(&reply(1, 1), Micros(3)).unwrap();
    assert_eq!(tokens(&mut outbox), [(4, Ok(0)), (5, Ok(1)), (6, Ok(2)), (2, Ok(0))]);
    assert_eq!((outbox.waiting(), outbox.groups(), outbox.poll_timeout()), (0, 0, None));
}

#[test]
fn a_partition_has_as_many_questions_under_way_as_it_may() {
    for most_under_way in [0, 1, 2, 3] {
        let mut outbox = outbox(NodeOptions { most_under_way, ..options() });
        let mut sent = 0;
        for token in 0..5 {
            outbox.ask(asked("a/1", 0, token));
            sent += send(&mut outbox, 0).len();
        }
        assert_eq!(sent, most_under_way.max(1));
        outbox.handle_reply(&reply(0, 1), Micros(0)).unwrap();
        let rest = 5 - most_under_way.max(1);
        assert_eq!(send(&mut outbox, 0), [(wide(most_under_way.max(1)), rest)]);
    }
}

#[test]
fn keys_of_an_object_share_a_question_if_their_policy_says_so() {
    let mut outbox = outbox(NodeOptions { most_under_way: 9, ..options() });
    let shared = |key| Resolved::new(policies().get("shared").unwrap(), key).unwrap();
    for (token, key) in ["a", "b", "c"].into_iter().enumerate() {
        outbox.ask(Outgoing { resolved: shared(key), ..asked("a", 0, token) });
        assert_eq!(outbox.first_ready(), (token == 0).then_some(&0), "one question is under way");
        assert_eq!(send(&mut outbox, 0).len(), usize::from(token == 0));
    }
    outbox.handle_reply(&reply(0, 1), Micros(1)).unwrap();
    assert_eq!(outbox.first_ready(), Some(&1));
    assert_eq!(send(&mut outbox, 1), [(1, 2)]);
    outbox.handle_reply(&reply(1, 2), Micros(2)).unwrap();
    assert_eq!(tokens(&mut outbox), [(0, Ok(0)), (1, Ok(0)), (2, Ok(1))]);
}

#[test]
fn revisions_of_a_policy_share_the_questions_of_a_partition() {
    let mut outbox = outbox(options());
    let revision = POLICIES.replace("depth = 1", "depth = 1, name = 'other'");
    let edited = Policies::parse(&revision).unwrap();
    let edited = Resolved::new(edited.get("api").unwrap(), "a/1").unwrap();
    let one = Resolved::new(policies().get("one").unwrap(), "a").unwrap();
    outbox.ask(asked("a/1", 0, 0));
    outbox.ask(Outgoing { resolved: edited, ..asked("a/1", 0, 1) });
    outbox.ask(Outgoing { resolved: one, ..asked("a/1", 0, 2) });
    assert_eq!(send(&mut outbox, 0), [(0, 2), (1, 1)], "another policy has other partitions");
}

#[test]
fn a_question_has_the_key_as_it_was_written_and_the_time_that_was_given() {
    let mut outbox = outbox(options());
    let key = "ip:2001:DB8::0/x";
    let resolved = Resolved::new(policies().get("one").unwrap(), "ip:2001:DB8::0").unwrap();
    assert_ne!(resolved.key(), resolved.written_key(), "{key}");
    outbox.ask(Outgoing { resolved, now: Some(NOW), ..asked("a", 0, 0) });
    let question = outbox.poll_transmit(Micros(0)).unwrap();
    let content = message::Question::read(&question.bytes).unwrap().content().unwrap();
    let [asked] = content.operations.as_slice() else { panic!() };
    assert_eq!((content.policy, asked.key, asked.now), ("one", "ip:2001:DB8::0", Some(NOW)));
}

#[test]
fn what_waits_is_bounded() {
    let all = NodeOptions { most: 3, ..options() };
    let of_a_group = NodeOptions { most_of_a_group: 2, ..options() };
    for (options, keys, most) in [(all, ["a", "b"], 3), (of_a_group, ["a", "a"], 2)] {
        let mut outbox = outbox(options);
        // an operation that is under way takes a place too
        outbox.ask(asked(keys[0], 0, 0));
        assert_eq!(send(&mut outbox, 0), [(0, 1)]);
        for token in 1..5 {
            outbox.ask(asked(keys[token % 2], 0, token));
        }
        let failure = Failure::Overloaded { most };
        let refused: Vec<_> = tokens(&mut outbox);
        let expected: Vec<_> =
            (narrow(most)..5).map(|token| (token, Err(failure.clone()))).collect();
        assert_eq!(refused, expected);
        assert_eq!((outbox.waiting(), outbox.overloaded()), (narrow(most), 5 - most));
        outbox.handle_reply(&reply(0, 1), Micros(0)).unwrap();
        assert_eq!(tokens(&mut outbox), [(0, Ok(0))]);
        outbox.ask(asked("a", 0, 7));
        assert_eq!((tokens(&mut outbox).len(), outbox.waiting()), (0, narrow(most)));
    }
    let mut outbox = outbox(NodeOptions { most_of_a_group: 1, ..options() });
    (0..3).for_each(|token| outbox.ask(asked(&format!("{token}"), 0, token)));
    assert_eq!(outbox.waiting(), 3, "each partition has places of its own");
}

#[test]
fn questions_are_bounded() {
    let few = NodeOptions { most_operations: 2, ..options() };
    let mut outbox = outbox(few);
    (0..5).for_each(|token| outbox.ask(asked("a", 0, token)));
    for number in 0..3 {
        let count = if number == 2 { 1 } else { 2 };
        assert_eq!(send(&mut outbox, 0), [(number, count)]);
        outbox.handle_reply(&reply(number, wide(count)), Micros(0)).unwrap();
    }
    let order: Vec<_> = tokens(&mut outbox).into_iter().map(|(token, _)| token).collect();
    assert_eq!(order, [0, 1, 2, 3, 4]);

    let long = "k".repeat(500);
    let keys = [long.as_str(), "a", "b", "c", &long];
    // 26 bytes of head, 4 of the policy, 8 of the checksum, 7 of an operation, and the keys
    for (most_bytes, counts) in [
        (0, [1, 1, 1, 1, 1].as_slice()),
        (53, &[1, 1, 1, 1, 1]),
        (54, &[1, 2, 1, 1]),
        (62, &[1, 3, 1]),
        (10_000, &[5]),
    ] {
        let policy = POLICIES.replace("depth = 1", "depth = 0");
        let policies = Policies::parse(&policy).unwrap();
        let mut outbox = Tested::new(NodeOptions { most_bytes, ..options() });
        for (token, key) in keys.into_iter().enumerate() {
            let resolved = Resolved::new(policies.get("api").unwrap(), key).unwrap();
            outbox.ask(Outgoing { resolved, ..asked("a", 0, token) });
        }
        let mut found = Vec::new();
        while let Some(question) = outbox.poll_transmit(Micros(0)) {
            let count = operations(&question).len();
            assert!(question.bytes.len() <= most_bytes || count == 1);
            outbox.handle_reply(&reply(question.number, wide(count)), Micros(0)).unwrap();
            found.push(count);
        }
        assert_eq!(found, counts, "{most_bytes}");
    }
}

#[test]
fn a_deadline_ends_a_question_and_what_waits_too_long_is_not_sent() {
    let mut outbox = outbox(NodeOptions { deadline: Micros(100), ..options() });
    outbox.ask(asked("a", 1_000, 0));
    assert_eq!(outbox.poll_timeout(), None, "nothing is under way");
    assert_eq!(send(&mut outbox, 1_010), [(0, 1)]);
    outbox.ask(asked("a", 1_010, 1));
    outbox.ask(asked("a", 1_011, 2));
    assert_eq!(outbox.poll_timeout(), Some(Micros(1_110)));
    outbox.handle_timeout(Micros(1_109));
    assert_eq!(tokens(&mut outbox), []);
    outbox.handle_timeout(Micros(1_110));
    assert_eq!(tokens(&mut outbox), [(0, Err(Failure::Unknown))]);
    assert_eq!(send(&mut outbox, 1_110), [(1, 1)]);
    assert_eq!(tokens(&mut outbox), [(1, Err(Failure::TooLate))]);
    assert_eq!(outbox.handle_reply(&reply(0, 1), Micros(1_110)), Err(Ignored::Late(0)));
    assert_eq!(outbox.poll_timeout(), Some(Micros(1_210)));
    outbox.ask(asked("a", 1_111, 3));
    outbox.handle_timeout(Micros(5_000));
    assert_eq!(send(&mut outbox, 5_000), [], "and the partition is forgotten");
    assert_eq!(tokens(&mut outbox), [(2, Err(Failure::Unknown)), (3, Err(Failure::TooLate))]);
    assert_eq!((outbox.waiting(), outbox.groups(), outbox.poll_timeout()), (0, 0, None));
}

#[test]
fn a_question_that_is_lost_ends_at_once() {
    let mut outbox = outbox(options());
    outbox.ask(asked("a", 0, 0));
    assert_eq!(send(&mut outbox, 0), [(0, 1)]);
    outbox.ask(asked("a", 0, 1));
    outbox.handle_lost(7, &Failure::Unknown, Micros(1));
    assert_eq!(tokens(&mut outbox), []);
    outbox.handle_lost(0, &Failure::Unknown, Micros(1));
    outbox.handle_lost(0, &Failure::Unknown, Micros(1));
    assert_eq!(tokens(&mut outbox), [(0, Err(Failure::Unknown))]);
    assert_eq!(send(&mut outbox, 1), [(1, 1)]);
}

#[test]
fn a_clock_that_goes_back_stands_still() {
    let mut outbox = outbox(NodeOptions { deadline: Micros(100), ..options() });
    outbox.ask(asked("a", 1_000, 0));
    outbox.ask(asked("b", 0, 1));
    assert_eq!(outbox.poll_transmit(Micros(500)).unwrap().number, 0);
    assert_eq!(outbox.poll_timeout(), Some(Micros(1_100)));
    assert_eq!(outbox.poll_transmit(Micros(0)).map(|question| question.number), None);
    assert_eq!(tokens(&mut outbox), [(1, Err(Failure::TooLate))], "it was asked long before");
}

#[test]
fn replies_that_answer_nothing_change_nothing() {
    let mut outbox = outbox(options());
    outbox.ask(asked("a", 0, 0));
    outbox.ask(asked("a", 0, 1));
    let question = outbox.poll_transmit(Micros(0)).unwrap();
    let right = reply(0, 2);
    let foreign = Reply::Answers(vec![Ok(verdict(0)); 2]);
    let foreign = foreign.write(Name { node: Id([1, 2]), number: 0 });
    let mut corrupt = right.clone();
    corrupt[30] ^= 1;
    let unreadable = |bytes: &[u8]| Ignored::Unreadable(Reply::read(bytes).unwrap_err());
    for (bytes, ignored) in [
        (&corrupt, unreadable(&corrupt)),
        (&Vec::new(), unreadable(&[])),
        (&question.bytes, unreadable(&question.bytes)),
        (&foreign, Ignored::Foreign(Id([1, 2]))),
        (&reply(1, 2), Ignored::Late(1)),
        (&reply(0, 1), Ignored::Answers { found: 1, expected: 2 }),
        (&reply(0, 3), Ignored::Answers { found: 3, expected: 2 }),
    ] {
        assert_eq!(outbox.handle_reply(bytes, Micros(0)), Err(ignored), "{ignored}");
        assert_eq!((answers(&mut outbox), outbox.waiting()), (vec![], 2));
    }
    assert_eq!(outbox.handle_reply(&right, Micros(0)), Ok(()));
    assert_eq!(outbox.handle_reply(&right, Micros(0)), Err(Ignored::Late(0)));
    assert_eq!(tokens(&mut outbox), [(0, Ok(0)), (1, Ok(1))]);
}

#[test]
fn what_is_ignored_says_why() {
    for (ignored, text) in [
        (
            Ignored::Foreign(Id([1, 2])),
            "reply: expected one for this node, found one for 00000000000000010000000000000002",
        ),
        (Ignored::Late(5), "reply: expected one to a question without answers, found one to 5"),
        (Ignored::Answers { found: 1, expected: 2 }, "reply: expected 2 answers, found 1"),
        (
            Ignored::Unreadable(WireError::Longer { found: 3 }),
            "reply: message: expected its end, found 3 more bytes",
        ),
    ] {
        assert_eq!(ignored.to_string(), text);
    }
}

#[test]
fn a_failure_says_why() {
    for (failure, text) in [
        (Failure::Transaction("`cost`: found 0".into()), "`cost`: found 0"),
        (Failure::Refused("no policy".into()), "authority: no policy"),
        (Failure::Overloaded { most: 7 }, "too much waits: expected at most 7"),
        (Failure::TooLate, "the operation came too late and was not begun"),
        (Failure::Contended, "other writers came first for too long"),
        (Failure::Store("no disk".into()), "store: no disk"),
        (Failure::Unknown, "no reply came, so the outcome is unknown"),
    ] {
        assert_eq!(failure.to_string(), text);
    }
}

#[test]
fn a_failure_of_the_whole_question_answers_each_operation() {
    let mut outbox = outbox(options());
    (0..3).for_each(|token| outbox.ask(asked("a", 0, token)));
    assert_eq!(send(&mut outbox, 0), [(0, 3)]);
    let failure = Failure::Refused("no".into());
    let reply = Reply::Failure(failure.clone()).write(Name { node: NODE, number: 0 });
    outbox.handle_reply(&reply, Micros(0)).unwrap();
    let expected: Vec<_> = (0..3).map(|token| (token, Err(failure.clone()))).collect();
    assert_eq!(tokens(&mut outbox), expected);
}

#[test]
fn the_local_part_hears_of_a_verdict_with_the_time_of_its_question() {
    let mut outbox = outbox(options());
    outbox.ask(asked("a", 5, 0));
    outbox.ask(asked("a", 6, 1));
    assert_eq!(send(&mut outbox, 8), [(0, 2)]);
    let answers = vec![Ok(verdict(3)), Err(Failure::TooLate)];
    let reply = Reply::Answers(answers).write(Name { node: NODE, number: 0 });
    outbox.handle_reply(&reply, Micros(9)).unwrap();
    let answer = outbox.poll_answer().unwrap();
    let heard = answer.verdict_of().unwrap();
    assert_eq!((heard.sent, heard.at, heard.verdict), (Micros(5), Micros(9), &verdict(3)));
    assert_eq!((heard.resolved.key(), heard.operation), ("a", &Operation::from(1)));
    assert!(outbox.poll_answer().unwrap().verdict_of().is_none());
}

#[test]
fn partitions_take_turns_and_a_question_has_an_operation_at_least() {
    let most_operations = 0;
    let mut outbox = outbox(NodeOptions { most_operations, most_under_way: 2, ..options() });
    for (token, key) in ["a", "a", "b"].into_iter().enumerate() {
        outbox.ask(asked(key, 0, token));
    }
    let sent = iter::from_fn(|| outbox.poll_transmit(Micros(0)));
    let partitions: Vec<String> = sent.map(|question| question.to.partition().into()).collect();
    assert_eq!(partitions, ["a", "b", "a"]);
}
