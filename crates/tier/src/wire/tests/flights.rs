//! The node's side.

use std::string::ToString;
use std::vec;
use std::{format, iter};

use tidegate_gate::Decision;

use super::message::{Name, Reply};
use super::*;

type Tested = Flights<usize>;

fn flights(options: NodeOptions) -> Tested {
    Flights::new(options)
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
fn send(flights: &mut Tested, at: u64) -> Vec<(u64, usize)> {
    iter::from_fn(|| flights.poll_transmit(Micros(at)))
        .map(|question| (question.number, operations(&question).len()))
        .collect()
}

/// The tokens of the answers, and the times of their verdicts.
fn tokens(flights: &mut Tested) -> Vec<(usize, Result<u64, Failure>)> {
    let answers = answers(flights).into_iter();
    answers.map(|(token, result)| (token, result.map(|verdict| verdict.at.0))).collect()
}

#[test]
fn operations_join_the_next_question_while_one_of_their_home_is_under_way() {
    let mut flights = flights(options());
    for (token, key) in ["a/1", "a/2", "b/1", "a/1"].into_iter().enumerate() {
        flights.ask(asked(key, 0, token));
    }
    let question = flights.poll_transmit(Micros(1)).unwrap();
    let keys: Vec<_> = operations(&question).into_iter().map(|(key, _)| key).collect();
    assert_eq!((question.number, keys), (0, vec!["a/1".into(), "a/2".into(), "a/1".into()]));
    assert_eq!(question.to.home(), "a");
    assert_eq!(send(&mut flights, 1), [(1, 1)], "the other home is sent at once");
    for token in 4..7 {
        flights.ask(asked("a/1", 2, token));
        assert_eq!(send(&mut flights, 2), []);
    }
    flights.handle_reply(&reply(0, 3), Micros(3)).unwrap();
    assert_eq!(tokens(&mut flights), [(0, Ok(0)), (1, Ok(1)), (3, Ok(2))]);
    assert_eq!(send(&mut flights, 3), [(2, 3)]);
    assert_eq!((flights.waiting(), flights.groups()), (4, 2));
    flights.handle_reply(&reply(2, 3), Micros(3)).unwrap();
    flights.handle_reply(&reply(1, 1), Micros(3)).unwrap();
    assert_eq!(tokens(&mut flights), [(4, Ok(0)), (5, Ok(1)), (6, Ok(2)), (2, Ok(0))]);
    assert_eq!((flights.waiting(), flights.groups(), flights.poll_timeout()), (0, 0, None));
}

#[test]
fn a_home_has_as_many_questions_under_way_as_it_may() {
    for most_under_way in [0, 1, 2, 3] {
        let mut flights = flights(NodeOptions { most_under_way, ..options() });
        let mut sent = 0;
        for token in 0..5 {
            flights.ask(asked("a/1", 0, token));
            sent += send(&mut flights, 0).len();
        }
        assert_eq!(sent, most_under_way.max(1));
        flights.handle_reply(&reply(0, 1), Micros(0)).unwrap();
        let rest = 5 - most_under_way.max(1);
        assert_eq!(send(&mut flights, 0), [(wide(most_under_way.max(1)), rest)]);
    }
}

#[test]
fn keys_of_an_object_share_a_question_if_their_policy_says_so() {
    let mut flights = flights(NodeOptions { most_under_way: 9, ..options() });
    let shared = |key| Resolved::new(policies().get("shared").unwrap(), key).unwrap();
    for (token, key) in ["a", "b", "c"].into_iter().enumerate() {
        flights.ask(Asked { resolved: shared(key), ..asked("a", 0, token) });
        assert_eq!(flights.first_ready(), (token == 0).then_some(&0), "one question is under way");
        assert_eq!(send(&mut flights, 0).len(), usize::from(token == 0));
    }
    flights.handle_reply(&reply(0, 1), Micros(1)).unwrap();
    assert_eq!(flights.first_ready(), Some(&1));
    assert_eq!(send(&mut flights, 1), [(1, 2)]);
    flights.handle_reply(&reply(1, 2), Micros(2)).unwrap();
    assert_eq!(tokens(&mut flights), [(0, Ok(0)), (1, Ok(0)), (2, Ok(1))]);
}

#[test]
fn editions_of_a_policy_share_the_questions_of_a_home() {
    let mut flights = flights(options());
    let edition = POLICIES.replace("depth = 1", "depth = 1, name = 'other'");
    let edited = Policies::parse(&edition).unwrap();
    let edited = Resolved::new(edited.get("api").unwrap(), "a/1").unwrap();
    let one = Resolved::new(policies().get("one").unwrap(), "a").unwrap();
    flights.ask(asked("a/1", 0, 0));
    flights.ask(Asked { resolved: edited, ..asked("a/1", 0, 1) });
    flights.ask(Asked { resolved: one, ..asked("a/1", 0, 2) });
    assert_eq!(send(&mut flights, 0), [(0, 2), (1, 1)], "another policy has other homes");
}

#[test]
fn a_question_has_the_key_as_it_was_written_and_the_time_that_was_given() {
    let mut flights = flights(options());
    let key = "ip:2001:DB8::0/x";
    let resolved = Resolved::new(policies().get("one").unwrap(), "ip:2001:DB8::0").unwrap();
    assert_ne!(resolved.key(), resolved.written_key(), "{key}");
    flights.ask(Asked { resolved, now: Some(NOW), ..asked("a", 0, 0) });
    let question = flights.poll_transmit(Micros(0)).unwrap();
    let content = message::Question::read(&question.bytes).unwrap().content().unwrap();
    let [asked] = content.operations.as_slice() else { panic!() };
    assert_eq!((content.policy, asked.key, asked.now), ("one", "ip:2001:DB8::0", Some(NOW)));
}

#[test]
fn what_waits_is_bounded() {
    let all = NodeOptions { most: 3, ..options() };
    let of_a_group = NodeOptions { most_of_a_group: 2, ..options() };
    for (options, keys, most) in [(all, ["a", "b"], 3), (of_a_group, ["a", "a"], 2)] {
        let mut flights = flights(options);
        // an operation that is under way takes a place too
        flights.ask(asked(keys[0], 0, 0));
        assert_eq!(send(&mut flights, 0), [(0, 1)]);
        for token in 1..5 {
            flights.ask(asked(keys[token % 2], 0, token));
        }
        let failure = Failure::Overloaded { most };
        let refused: Vec<_> = tokens(&mut flights);
        let expected: Vec<_> =
            (narrow(most)..5).map(|token| (token, Err(failure.clone()))).collect();
        assert_eq!(refused, expected);
        assert_eq!((flights.waiting(), flights.overloaded()), (narrow(most), 5 - most));
        flights.handle_reply(&reply(0, 1), Micros(0)).unwrap();
        assert_eq!(tokens(&mut flights), [(0, Ok(0))]);
        flights.ask(asked("a", 0, 7));
        assert_eq!((tokens(&mut flights).len(), flights.waiting()), (0, narrow(most)));
    }
    let mut flights = flights(NodeOptions { most_of_a_group: 1, ..options() });
    (0..3).for_each(|token| flights.ask(asked(&format!("{token}"), 0, token)));
    assert_eq!(flights.waiting(), 3, "each home has places of its own");
}

#[test]
fn questions_are_bounded() {
    let few = NodeOptions { most_operations: 2, ..options() };
    let mut flights = flights(few);
    (0..5).for_each(|token| flights.ask(asked("a", 0, token)));
    for number in 0..3 {
        let count = if number == 2 { 1 } else { 2 };
        assert_eq!(send(&mut flights, 0), [(number, count)]);
        flights.handle_reply(&reply(number, wide(count)), Micros(0)).unwrap();
    }
    let order: Vec<_> = tokens(&mut flights).into_iter().map(|(token, _)| token).collect();
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
        let mut flights = Tested::new(NodeOptions { most_bytes, ..options() });
        for (token, key) in keys.into_iter().enumerate() {
            let resolved = Resolved::new(policies.get("api").unwrap(), key).unwrap();
            flights.ask(Asked { resolved, ..asked("a", 0, token) });
        }
        let mut found = Vec::new();
        while let Some(question) = flights.poll_transmit(Micros(0)) {
            let count = operations(&question).len();
            assert!(question.bytes.len() <= most_bytes || count == 1);
            flights.handle_reply(&reply(question.number, wide(count)), Micros(0)).unwrap();
            found.push(count);
        }
        assert_eq!(found, counts, "{most_bytes}");
    }
}

#[test]
fn a_deadline_ends_a_question_and_what_waits_too_long_is_not_sent() {
    let mut flights = flights(NodeOptions { deadline: Micros(100), ..options() });
    flights.ask(asked("a", 1_000, 0));
    assert_eq!(flights.poll_timeout(), None, "nothing is under way");
    assert_eq!(send(&mut flights, 1_010), [(0, 1)]);
    flights.ask(asked("a", 1_010, 1));
    flights.ask(asked("a", 1_011, 2));
    assert_eq!(flights.poll_timeout(), Some(Micros(1_110)));
    flights.handle_timeout(Micros(1_109));
    assert_eq!(tokens(&mut flights), []);
    flights.handle_timeout(Micros(1_110));
    assert_eq!(tokens(&mut flights), [(0, Err(Failure::Unknown))]);
    assert_eq!(send(&mut flights, 1_110), [(1, 1)]);
    assert_eq!(tokens(&mut flights), [(1, Err(Failure::TooLate))]);
    assert_eq!(flights.handle_reply(&reply(0, 1), Micros(1_110)), Err(Ignored::Late(0)));
    assert_eq!(flights.poll_timeout(), Some(Micros(1_210)));
    flights.ask(asked("a", 1_111, 3));
    flights.handle_timeout(Micros(5_000));
    assert_eq!(send(&mut flights, 5_000), [], "and the home is forgotten");
    assert_eq!(tokens(&mut flights), [(2, Err(Failure::Unknown)), (3, Err(Failure::TooLate))]);
    assert_eq!((flights.waiting(), flights.groups(), flights.poll_timeout()), (0, 0, None));
}

#[test]
fn a_question_that_is_lost_ends_at_once() {
    let mut flights = flights(options());
    flights.ask(asked("a", 0, 0));
    assert_eq!(send(&mut flights, 0), [(0, 1)]);
    flights.ask(asked("a", 0, 1));
    flights.handle_lost(7, &Failure::Unknown, Micros(1));
    assert_eq!(tokens(&mut flights), []);
    flights.handle_lost(0, &Failure::Unknown, Micros(1));
    flights.handle_lost(0, &Failure::Unknown, Micros(1));
    assert_eq!(tokens(&mut flights), [(0, Err(Failure::Unknown))]);
    assert_eq!(send(&mut flights, 1), [(1, 1)]);
}

#[test]
fn a_clock_that_goes_back_stands_still() {
    let mut flights = flights(NodeOptions { deadline: Micros(100), ..options() });
    flights.ask(asked("a", 1_000, 0));
    flights.ask(asked("b", 0, 1));
    assert_eq!(flights.poll_transmit(Micros(500)).unwrap().number, 0);
    assert_eq!(flights.poll_timeout(), Some(Micros(1_100)));
    assert_eq!(flights.poll_transmit(Micros(0)).map(|question| question.number), None);
    assert_eq!(tokens(&mut flights), [(1, Err(Failure::TooLate))], "it was asked long before");
}

#[test]
fn replies_that_answer_nothing_change_nothing() {
    let mut flights = flights(options());
    flights.ask(asked("a", 0, 0));
    flights.ask(asked("a", 0, 1));
    let question = flights.poll_transmit(Micros(0)).unwrap();
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
        assert_eq!(flights.handle_reply(bytes, Micros(0)), Err(ignored), "{ignored}");
        assert_eq!((answers(&mut flights), flights.waiting()), (vec![], 2));
    }
    assert_eq!(flights.handle_reply(&right, Micros(0)), Ok(()));
    assert_eq!(flights.handle_reply(&right, Micros(0)), Err(Ignored::Late(0)));
    assert_eq!(tokens(&mut flights), [(0, Ok(0)), (1, Ok(1))]);
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
        (Failure::Session("`cost`: found 0".into()), "`cost`: found 0"),
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
    let mut flights = flights(options());
    (0..3).for_each(|token| flights.ask(asked("a", 0, token)));
    assert_eq!(send(&mut flights, 0), [(0, 3)]);
    let failure = Failure::Refused("no".into());
    let reply = Reply::Failure(failure.clone()).write(Name { node: NODE, number: 0 });
    flights.handle_reply(&reply, Micros(0)).unwrap();
    let expected: Vec<_> = (0..3).map(|token| (token, Err(failure.clone()))).collect();
    assert_eq!(tokens(&mut flights), expected);
}

#[test]
fn the_local_part_hears_of_a_verdict_with_the_time_of_its_question() {
    let mut flights = flights(options());
    flights.ask(asked("a", 5, 0));
    flights.ask(asked("a", 6, 1));
    assert_eq!(send(&mut flights, 8), [(0, 2)]);
    let answers = vec![Ok(verdict(3)), Err(Failure::TooLate)];
    let reply = Reply::Answers(answers).write(Name { node: NODE, number: 0 });
    flights.handle_reply(&reply, Micros(9)).unwrap();
    let answer = flights.poll_answer().unwrap();
    let heard = answer.heard().unwrap();
    assert_eq!((heard.sent, heard.at, heard.verdict), (Micros(5), Micros(9), &verdict(3)));
    assert_eq!((heard.resolved.key(), heard.operation), ("a", &Operation::from(1)));
    assert!(flights.poll_answer().unwrap().heard().is_none());
}

#[test]
fn homes_take_turns_and_a_question_has_an_operation_at_least() {
    let most_operations = 0;
    let mut flights = flights(NodeOptions { most_operations, most_under_way: 2, ..options() });
    for (token, key) in ["a", "a", "b"].into_iter().enumerate() {
        flights.ask(asked(key, 0, token));
    }
    let sent = iter::from_fn(|| flights.poll_transmit(Micros(0)));
    let homes: Vec<String> = sent.map(|question| question.to.home().into()).collect();
    assert_eq!(homes, ["a", "b", "a"]);
}
