//! The authority's side.

use std::format;
use std::vec;

use super::message::{Name, QuestionWriter, Reply};
use super::*;

fn object() -> Object {
    Object::new(AuthorityOptions::default())
}

fn take(number: u64, keys: &[&str]) -> Vec<u8> {
    question(NODE, number, keys, Operation::from(1))
}

fn read(reply: &[u8]) -> Reply {
    Reply::read(reply).unwrap().1
}

fn failure(reply: &[u8]) -> Failure {
    match read(reply) {
        Reply::Failure(failure) => failure,
        Reply::Answers(answers) => panic!("{answers:?}"),
    }
}

/// The number of grants in a reply.
fn granted(reply: &[u8]) -> usize {
    match read(reply) {
        Reply::Answers(answers) => {
            answers.iter().flatten().filter(|verdict| verdict.decision.is_allowed()).count()
        }
        Reply::Failure(failure) => panic!("{failure}"),
    }
}

#[test]
fn a_question_that_comes_again_gets_the_same_reply() {
    let mut object = object();
    let asks = take(3, &["a/1", "a/2", "a/1"]);
    // while it is under way
    object.handle(1, &asks).unwrap();
    object.handle(2, &asks).unwrap();
    assert_eq!(object.replies(), []);
    object.decide();
    object.handle(3, &asks).unwrap();
    let replies = object.replies();
    let to: Vec<usize> = replies.iter().map(|(to, _)| *to).collect();
    assert_eq!(to, [1, 2, 3]);
    assert!(replies.iter().all(|(_, reply)| *reply == replies[0].1));
    assert_eq!(granted(&replies[0].1), 3);
    // and later, also after others
    object.at = Micros(1_000_000);
    assert_eq!(granted(&object.call(&take(4, &["a/1"]))), 1);
    assert_eq!(object.call(&asks), replies[0].1);
    assert_eq!((object.taken("a/1"), object.taken("a/2")), (3, 1));
}

#[test]
fn the_answers_are_in_the_order_of_the_operations_whatever_order_they_come_in() {
    let mut object = object();
    object.policies =
        Policies::parse(&POLICIES.replace("[policies.one]", "deny = ['a/3']\n[policies.one]"))
            .unwrap();
    // the authority answers a listed key and a cost that is too high at once
    let mut question = QuestionWriter::new(Name { node: NODE, number: 0 }, "api");
    for (key, cost) in [("a/1", 1), ("a/3", 1), ("a/2", 2_000_000), ("a/2", 1)] {
        let (now, operation) = (Some(Timestamp(NOW.0 + 5)), Operation::from(cost));
        assert!(question.add(&item(key, now, operation), usize::MAX));
    }
    let Reply::Answers(answers) = read(&object.call(&question.finish())) else { panic!() };
    let allowed: Vec<_> = answers
        .iter()
        .map(|answer| answer.as_ref().map(|verdict| (verdict.decision.is_allowed(), verdict.at.0)))
        .collect();
    let text = "a cost of 2000000 can never be granted: the most at once is 1000000";
    let error = Failure::Transaction(text.into());
    let at = NOW.0 + 5;
    assert_eq!(allowed, [Ok((true, at)), Ok((false, at)), Err(&error), Ok((true, at))]);
}

#[test]
fn a_question_without_a_time_of_its_own_is_decided_at_the_time_of_the_authority() {
    let mut object = object();
    object.at = Micros(77);
    let Reply::Answers(answers) = read(&object.call(&take(0, &["a/1"]))) else { panic!() };
    assert_eq!(answers[0].as_ref().unwrap().at, object.now());
}

#[test]
fn a_question_that_is_refused_takes_nothing() {
    let options =
        AuthorityOptions { most_bytes: 200, most_operations: 3, ..AuthorityOptions::default() };
    let mut object = Object::new(options);
    let of_policy = |policy: &str, keys: &[&str]| {
        let number = if policy == "shared" { 6 } else { 5 };
        let mut question = QuestionWriter::new(Name { node: NODE, number }, policy);
        for key in keys {
            assert!(question.add(&item(key, None, 1), usize::MAX));
        }
        question.finish()
    };
    let key = "k".repeat(150);
    let long = of_policy("api", &["a/1", &key]);
    let text = format!("question: expected at most 200 bytes, found {}", long.len());
    for (question, text) in [
        (
            of_policy("other", &["a/1"]),
            "`policy`: expected a policy of the authority, found \"other\"",
        ),
        (
            of_policy("api", &["a/1", "ip:x"]),
            "`key`: expected an address such as 192.0.2.7 or 2001:db8::7 after `ip:`, found \"ip:x\"",
        ),
        (of_policy("api", &[""]), "`key`: expected 1 to 512 bytes, found 0"),
        (
            of_policy("api", &["a/1", "a/2", "b/1"]),
            "question: expected keys of \"a\", found a key of \"b\"",
        ),
        (of_policy("api", &["a/1"; 4]), "question: expected at most 3 operations, found 4"),
        (long, &text),
    ] {
        let mut fresh = Object::new(options);
        assert_eq!(failure(&fresh.call(&question)), Failure::Refused(text.into()));
        assert_eq!(fresh.call(&question), fresh.call(&question));
        assert_eq!((fresh.swaps, fresh.store.len()), (0, 0));
        // another question of that number, which a mistake of the node must not mix up
        let reply = fresh.call(&take(5, &["a/1"]));
        let text =
            "`number`: expected a new number for a new question, found one of another question";
        assert_eq!(failure(&reply), Failure::Refused(text.into()));
    }
    assert_eq!(granted(&object.call(&of_policy("api", &["a/1"; 3]))), 3);
    assert_eq!(granted(&object.call(&of_policy("shared", &["a", "b", "c"]))), 3, "of one object");
}

#[test]
fn bytes_that_are_no_question_take_nothing_and_their_sender_comes_back() {
    let mut object = object();
    let mut corrupt = take(0, &["a/1"]);
    corrupt[40] ^= 4;
    assert!(matches!(object.handle(7, &corrupt), Err((7, WireError::Checksum { .. }))));
    let reply = Reply::Failure(Failure::TooLate).write(Name { node: NODE, number: 0 });
    assert!(matches!(object.handle(8, &reply), Err((8, WireError::Number { .. }))));
    let mut content = super::message::QuestionWriter::new(Name { node: NODE, number: 0 }, "api");
    content.add(&item("a", None, 1), 0);
    let empty = content.finish();
    assert!(matches!(object.handle(9, &empty), Err((9, WireError::Ended { .. }))));
    assert_eq!((object.replies(), object.inbox.bytes()), (vec![], 0));
}

#[test]
fn a_question_that_another_one_on_its_partition_has_overtaken_is_not_begun() {
    let mut object = object();
    assert_eq!(granted(&object.call(&take(5, &["a/1"]))), 1);
    assert_eq!(failure(&object.call(&take(4, &["a/2"]))), Failure::TooLate);
    assert_eq!(granted(&object.call(&take(3, &["b/1"]))), 1, "another partition");
    let other = question(Id([5, 5]), 4, &["a/1"], 1.into());
    assert_eq!(granted(&object.call(&other)), 1, "another node");
    // a question that was refused overtakes nothing
    assert_eq!(failure(&object.call(&take(2, &["b/1"]))), Failure::TooLate);
    let different = take(9, &["c/1", "d/1"]);
    assert!(matches!(failure(&object.call(&different)), Failure::Refused(_)));
    assert_eq!(granted(&object.call(&take(8, &["c/1"]))), 1);
    assert_eq!((object.taken("a/1"), object.taken("a/2"), object.taken("b/1")), (2, 0, 1));

    let options = AuthorityOptions { keeps_order: false, ..AuthorityOptions::default() };
    let mut object = Object::new(options);
    assert_eq!(granted(&object.call(&take(5, &["a/1"]))), 1);
    assert_eq!(granted(&object.call(&take(4, &["a/2"]))), 1, "order does not matter here");
}

#[test]
fn a_question_has_at_most_its_bytes() {
    let asked = take(0, &["a/1"]);
    for (most_bytes, is_taken) in [(asked.len(), true), (asked.len() - 1, false)] {
        let mut object =
            Object::new(AuthorityOptions { most_bytes, ..AuthorityOptions::default() });
        let reply = object.call(&asked);
        assert_eq!(matches!(read(&reply), Reply::Answers(_)), is_taken, "{most_bytes}");
    }
}

#[test]
fn a_reply_is_remembered_for_its_time_and_then_closed() {
    let time = Micros(1_000);
    let options = AuthorityOptions { time, ..AuthorityOptions::default() };
    let mut object = Object::new(options);
    let first = object.call(&take(7, &["a/1"]));
    object.at = Micros(999);
    assert_eq!(object.call(&take(7, &["a/1"])), first);
    object.at = Micros(1_000);
    // the node is still known, so nothing up to this number is taken
    assert_eq!(granted(&object.call(&take(8, &["b/1"]))), 1);
    assert_eq!(failure(&object.call(&take(7, &["a/1"]))), Failure::Unknown);
    assert_eq!(failure(&object.call(&take(0, &["c/1"]))), Failure::Unknown);
    object.at = Micros(1_999);
    assert_eq!(failure(&object.call(&take(7, &["a/1"]))), Failure::Unknown);
    assert!(object.inbox.bytes() > 0);
    // a node that has been silent for that time is forgotten
    object.at = Micros(2_999);
    let other = question(Id([5, 5]), 0, &["d/1"], 1.into());
    let alone = Object::new(options).inbox.bytes();
    assert_eq!((granted(&object.call(&other)), alone), (1, 0));
    let mut fresh = Object::new(options);
    fresh.call(&other);
    assert_eq!(object.inbox.bytes(), fresh.inbox.bytes());
    assert_eq!(object.taken("a/1"), 1);
}

#[test]
fn what_is_forgotten_for_want_of_memory_is_closed() {
    let mut object = Object::new(AuthorityOptions { bytes: 4_096, ..AuthorityOptions::default() });
    let keys: Vec<String> = (0..100).map(|key| format!("k{key}")).collect();
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(granted(&object.call(&take(wide(number), &[key]))), 1, "{key}");
        assert!(object.inbox.bytes() <= 4_096);
    }
    let mut known = 0;
    for (number, key) in keys.iter().enumerate() {
        match read(&object.call(&take(wide(number), &[key]))) {
            Reply::Answers(_) => known += 1,
            Reply::Failure(failure) => {
                assert_eq!((failure, known), (Failure::Unknown, 0), "the oldest are forgotten");
            }
        }
    }
    assert!((5..50).contains(&known), "{known}");
    assert_eq!(object.swaps, 100, "nothing is taken again");
    assert_eq!(granted(&object.call(&take(100, &["k0"]))), 1);
}

#[test]
fn when_nothing_can_be_forgotten_new_questions_are_refused() {
    let options = AuthorityOptions { bytes: 4_096, ..AuthorityOptions::default() };
    let overloaded = Failure::Overloaded { most: 4_096 };
    // all is under way
    let mut object = Object::new(options);
    let mut number = 0;
    while object.replies().is_empty() {
        object.handle(number, &take(wide(number), &[&format!("k{number}")])).unwrap();
        number += 1;
        assert!(object.inbox.bytes() <= 4_096);
    }
    assert!(number > 3, "{number}");
    object.handle(number, &take(wide(number), &["last"])).unwrap();
    let replies = object.replies();
    assert_eq!((replies[0].0, failure(&replies[0].1)), (number, overloaded.clone()));
    // copies of a question that is under way wait while there is room
    let copies = (1..).find(|copy| {
        object.handle(*copy + 1_000, &take(0, &["k0"])).unwrap();
        assert!(object.inbox.bytes() <= 4_096);
        !object.replies().is_empty()
    });
    assert!(copies.is_some_and(|copies| copies < 512));
    object.decide();
    assert_eq!(object.replies().len(), number - 1 + copies.unwrap() - 1);
    assert!(object.inbox.bytes() <= 4_096);
    assert_eq!(granted(&object.call(&take(wide(number), &["last"]))), 1, "there is room again");

    // a node's numbers are kept until it is silent
    let mut object = Object::new(options);
    let node = |number: u64| question(Id([1, number]), 0, &[&format!("k{number}")], 1.into());
    let is_full = |reply: &[u8]| matches!(read(reply), Reply::Failure(Failure::Overloaded { .. }));
    let nodes = (0..100).find(|number| is_full(&object.call(&node(*number)))).unwrap();
    assert!(nodes > 9, "{nodes}");
    object.at = Micros(60_000_000 - 1);
    assert_eq!(failure(&object.call(&node(0))), Failure::Unknown);
    assert!(is_full(&object.call(&node(nodes))));
    object.at = Micros(60_000_000);
    // all but the first node have been silent
    assert_eq!(granted(&object.call(&node(nodes))), 1);
    assert_eq!(failure(&object.call(&node(0))), Failure::Unknown);
}

#[test]
fn every_failure_of_the_authority_has_its_name_on_the_wire() {
    let ask = |object: &mut Object| object.handle(0, &take(0, &["a/1"])).unwrap();
    let answer = |object: &mut Object| match object.replies().as_slice() {
        [(0, reply)] => match read(reply) {
            Reply::Answers(answers) => answers[0].clone().unwrap_err(),
            Reply::Failure(failure) => panic!("{failure}"),
        },
        replies => panic!("{replies:?}"),
    };
    let times = |at: u64| (Some(NOW), Micros(at));

    let mut failed = object();
    ask(&mut failed);
    let swap = failed.authority.poll_swap(times(0), |_| false).unwrap();
    failed.authority.handle(swap, [SwapOutcome::Failed("no disk")], times(0));
    assert_eq!(answer(&mut failed), Failure::Store("no disk".into()));

    let mut late = object();
    ask(&mut late);
    assert!(late.authority.poll_swap(times(10_000_001), |_| false).is_none());
    assert_eq!(answer(&mut late), Failure::TooLate);

    let mut full = object();
    let options = authority::Options { most_waiting: 0, ..authority::Options::default() };
    full.authority = Authority::new(options);
    ask(&mut full);
    assert_eq!(answer(&mut full), Failure::Overloaded { most: 0 });

    let mut foreign = object();
    ask(&mut foreign);
    let swap = foreign.authority.poll_swap(times(0), |_| false).unwrap();
    let found = vec![Some(vec![9]); foreign.authority.records(&swap, 0).count()];
    foreign.authority.handle(swap, [SwapOutcome::Found(found)], times(0));
    let text = "stored state: expected version 4, found 9";
    assert_eq!(
        answer(&mut foreign),
        Failure::Transaction(text.into()),
        "without the name of the record"
    );

    let mut contended = object();
    ask(&mut contended);
    for at in [0, 1_000_001] {
        let swap = contended.authority.poll_swap(times(0), |_| false).unwrap();
        let found = vec![None; contended.authority.records(&swap, 0).count()];
        contended.authority.handle(swap, [SwapOutcome::Found(found)], times(at));
    }
    assert_eq!(answer(&mut contended), Failure::Contended);
}
