//! The bytes of questions and replies.

use std::format;
use std::string::ToString;
use std::vec;

use proptest::prelude::*;
use tidegate_gate::{
    Allowance, Budget, Class, Decision, Depth, Draw, Effect, Idempotency, Offered, Probability,
    Share, Unspent, fnv1a,
};

use super::message::{Content, Item, Name, Question, QuestionWriter, Reply};
use super::*;

const NAME: Name = Name { node: NODE, number: 258 };

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes with their checksum.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let checksum = fnv1a(bytes.iter().copied());
    bytes.iter().copied().chain(checksum.to_le_bytes()).collect()
}

fn write(asked: &[Item<'_>]) -> Vec<u8> {
    let mut question = QuestionWriter::new(NAME, "api");
    for asked in asked {
        assert!(question.add(asked, usize::MAX));
    }
    question.finish()
}

fn read(bytes: &[u8]) -> Result<(Name, Content<'_>), WireError> {
    let question = Question::read(bytes)?;
    Ok((question.name, question.content()?))
}

const ALLOW: Decision = Decision::Allow { limit: 500, remaining: 3, reset_after: Micros(127) };
const DENY: Decision =
    Decision::Deny { limit: 1, remaining: 0, retry_after: Micros(2), reset_after: Micros::MAX };

#[test]
fn the_bytes_of_a_question_are_golden() {
    let asked = [
        item("a/b", None, 1),
        item("a/b", Some(Timestamp(300)), Operation::Refund(u64::MAX)),
        item("a/c", None, Operation::Release(Id([0, 1]))),
        Item {
            idempotency: Some(Idempotency { id: Id([1, 2]), request: 3 }),
            ..item("a/c", None, Operation::Refund(1))
        },
    ];
    let bytes = write(&asked);
    let golden = [
        "01 01",                             // version, question
        "efcdab8967452301 0700000000000000", // node
        "0201000000000000",                  // number
        "03 617069",                         // policy
        "03 612f62 0a 02 02 01 00 01",       // a check that costs 1, without a signal
        "00 05 ac02 0a 00",                  // a refund on the same key at 300
        "03 612f63 06 06 01 02",             // a release
        "00 44 0a 02 02 03 04",              // a refund whose repeats are known
        "606fe7a2f7207a1f",                  // checksum
    ];
    assert_eq!(hex(&bytes), golden.concat().replace(' ', ""));
    let content = Content { policy: "api", operations: asked.into() };
    assert_eq!(read(&bytes), Ok((NAME, content)));
}

#[test]
fn the_bytes_of_a_reply_are_golden() {
    let allowance = Allowance { left: 9, granted_at: Timestamp(5), expires_at: Timestamp(6) };
    let verdict = |effect, factor| Verdict {
        at: Timestamp(1),
        decision: DENY,
        limits: vec![DENY, ALLOW],
        factor,
        effect,
        degraded: false,
    };
    let answers = [
        Ok(verdict(Effect::Decision, None)),
        Ok(verdict(Effect::Lease { live: true }, Probability::from_units(1 << 32))),
        Ok(verdict(Effect::Budget { returned: Some(false), allowance }, None)),
        Err(Failure::Transaction("no".into())),
        Err(Failure::Overloaded { most: 128 }),
        Err(Failure::TooLate),
    ];
    let reply = Reply::Answers(answers.into());
    let bytes = reply.write(NAME);
    let head = "02 efcdab8967452301 0700000000000000 0201000000000000";
    let said = "00 01 00 01 00 ffffffffffffff0f 02"; // time 1, a refusal
    let limits = "02 00 01 00 ffffffffffffff0f 02 01 f403 03 7f";
    let golden = [
        "01",
        head, //
        said,
        limits,
        "00 00", // no factor, no effect
        said,
        limits,
        "8180808010 02", // a factor of 2^32, a lease that was live
        said,
        limits,
        "00 04 09 05 06", // a budget whose holder was too late
        "01 02 6e6f",
        "03 8001",
        "04",               //
        "122fc7883669adb6", // checksum
    ];
    assert_eq!(hex(&bytes), golden.concat().replace(' ', ""));
    assert_eq!(Reply::read(&bytes), Ok((NAME, reply)));
    let failure = Reply::Failure(Failure::Unknown);
    let bytes = failure.write(NAME);
    let head = head.replacen("02", "03", 1);
    let golden = ["01", &head, "07", "2ce20e1fc1ab3f75"];
    assert_eq!(hex(&bytes), golden.concat().replace(' ', ""));
    assert_eq!(Reply::read(&bytes), Ok((NAME, failure)));
}

/// Numbers of all lengths.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), (0..64_u32, any::<u64>()).prop_map(|(bits, n)| n >> bits)]
}

fn decision() -> impl Strategy<Value = Decision> {
    let numbers = (number(), number(), number(), number());
    (any::<bool>(), numbers).prop_map(|(allows, (limit, remaining, retry, reset))| {
        let (retry_after, reset_after) = (Micros(retry), Micros(reset));
        match allows {
            true => Decision::Allow { limit, remaining, reset_after },
            false => Decision::Deny { limit, remaining, retry_after, reset_after },
        }
    })
}

fn effect() -> impl Strategy<Value = Effect> {
    let budget = (any::<Option<bool>>(), number(), number(), number());
    prop_oneof![
        Just(Effect::Decision),
        any::<bool>().prop_map(|live| Effect::Lease { live }),
        budget.prop_map(|(returned, left, granted_at, expires_at)| {
            let (granted_at, expires_at) = (Timestamp(granted_at), Timestamp(expires_at));
            Effect::Budget { returned, allowance: Allowance { left, granted_at, expires_at } }
        }),
        (number(), number(), any::<Option<u8>>()).prop_map(|(units, until, by)| {
            Effect::Reserved { units, until: Timestamp(until), by }
        }),
        (number(), any::<bool>(), any::<Option<u8>>())
            .prop_map(|(charged, late, by)| Effect::Committed { charged, late, by }),
        any::<u8>().prop_map(|by| Effect::Paid { by }),
        Just(Effect::OtherRequest),
        any::<u8>().prop_map(|part| Effect::Bound { part }),
        any::<u64>().prop_map(|left| Effect::Blocked { left: Micros(left) }),
        any::<(u8, Option<u8>)>().prop_map(|(limit, by)| Effect::Full { limit, by }),
    ]
}

fn answer() -> impl Strategy<Value = Result<Verdict, Failure>> {
    let limits = prop::collection::vec(decision(), 0..17);
    let factor =
        prop::option::of((0..=1_u64 << 32).prop_map(|n| Probability::from_units(n).unwrap()));
    let verdict = (number(), decision(), limits, factor, effect());
    prop_oneof![
        4 => verdict.prop_map(|(at, decision, limits, factor, effect)| {
            Ok(Verdict { at: Timestamp(at), decision, limits, factor, effect, degraded: false })
        }),
        1 => failure().prop_map(Err),
    ]
}

fn failure() -> impl Strategy<Value = Failure> {
    prop_oneof![
        any::<String>().prop_map(Failure::Transaction),
        any::<String>().prop_map(Failure::Refused),
        number().prop_map(|most| Failure::Overloaded { most }),
        Just(Failure::TooLate),
        Just(Failure::Contended),
        any::<String>().prop_map(Failure::Store),
        Just(Failure::Unknown),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let id = || (number(), number()).prop_map(|(high, low)| Id([high, low]));
    let signal =
        prop::option::of((0..=1_000_000_u32).prop_map(|ppm| Share::from_ppm(ppm).unwrap()));
    let request = (number(), prop::option::of(id()), any::<u16>(), signal, any::<u32>());
    let request = request.prop_map(|(cost, lease, class, signal, draw)| Request {
        cost,
        lease,
        hold: Micros(lease.map_or(0, |Id([_, low])| low % 3)),
        class: Class(class),
        signal,
        draw: Draw(draw),
    });
    let unspent = prop::option::of(
        (number(), number()).prop_map(|(at, left)| Unspent { granted_at: Timestamp(at), left }),
    );
    let time = || prop::option::of(number().prop_map(Timestamp));
    prop_oneof![
        (any::<bool>(), request).prop_map(|(peeks, request)| match peeks {
            true => Operation::Peek(request),
            false => Operation::Decide(request),
        }),
        number().prop_map(Operation::Refund),
        (id(), number()).prop_map(|(id, actual)| Operation::Commit(id, actual)),
        id().prop_map(Operation::Heartbeat),
        (id(), number()).prop_map(|(id, count)| Operation::Count(id, count)),
        id().prop_map(Operation::Release),
        (id(), number(), unspent).prop_map(|(holder, wants, unspent)| {
            Operation::Budget(Budget { holder, wants, unspent })
        }),
        (time(), number(), number()).prop_map(|(at, admitted, suppressed)| {
            Operation::Report(Offered { at, admitted, suppressed })
        }),
        prop::option::of(any::<u8>())
            .prop_map(|parts| { Operation::Reset(parts.map_or(Depth::Whole, Depth::Parts)) }),
        number().prop_map(|span| Operation::Block(Micros(span))),
    ]
}

proptest! {
    #[test]
    fn a_reply_survives_the_way_bit_for_bit(
        answers in prop::collection::vec(answer(), 0..6),
        failure in prop::option::of(failure()),
    ) {
        let reply = failure.map_or(Reply::Answers(answers), Reply::Failure);
        let bytes = reply.write(NAME);
        prop_assert_eq!(Reply::read(&bytes), Ok((NAME, reply)));
    }

    #[test]
    fn a_question_survives_the_way_bit_for_bit(
        asked in prop::collection::vec(
            ("[a-c]{0,2}é?", prop::option::of(number()), operation(), prop::option::of(any::<[u64; 3]>())), 1..9,
        ),
    ) {
        // an empty key is that of the operation before
        let mut key = "";
        let operations: Vec<_> = asked.iter().map(|(own, now, operation, known)| {
            key = if own.is_empty() { key } else { own };
            let idempotency = known.map(|[high, low, request]| Idempotency { id: Id([high, low]), request });
            Item { idempotency, ..item(key, now.map(Timestamp), *operation) }
        }).collect();
        let bytes = write(&operations);
        prop_assert_eq!(read(&bytes), Ok((NAME, Content { policy: "api", operations })));
    }

    #[test]
    fn any_bytes_are_an_error_or_survive_the_way_back(
        kind in 0_u8..4, bytes in prop::collection::vec(prop_oneof![0..10_u8, any::<u8>()], 0..120),
    ) {
        let plain = [&[1, kind], bytes.as_slice()].concat();
        prop_assert!(read(&plain).is_err() && Reply::read(&plain).is_err(), "no checksum");
        let sealed = sealed(&plain);
        if let Ok((name, content)) = read(&sealed) {
            let mut again = QuestionWriter::new(name, content.policy);
            content.operations.iter().for_each(|asked| assert!(again.add(asked, usize::MAX)));
            let again = again.finish();
            prop_assert!(again.len() <= sealed.len(), "the shortest form");
            prop_assert_eq!(read(&again), Ok((name, content)));
        }
        if let Ok((name, reply)) = Reply::read(&sealed) {
            prop_assert_eq!(reply.write(name), sealed);
        }
    }
}

#[test]
fn every_change_of_a_byte_and_every_length_is_noticed() {
    let question = write(&[item("a/b", None, 1)]);
    let reply = Reply::Answers(vec![Ok(Verdict::listed(NOW, DENY)), Err(Failure::TooLate)]);
    for bytes in [question, reply.write(NAME)] {
        for place in 0..bytes.len() {
            for change in 1..=u8::MAX {
                let mut bytes = bytes.clone();
                bytes[place] ^= change;
                assert!(read(&bytes).is_err() && Reply::read(&bytes).is_err());
            }
            assert!(read(&bytes[..place]).is_err() && Reply::read(&bytes[..place]).is_err());
            // a checksum does not hide that the content is cut
            let cut = sealed(&bytes[..place]);
            let is_whole = place == bytes.len() - 8;
            let cut = (read(&cut).is_ok(), Reply::read(&cut).is_ok());
            let whole = (read(&bytes).is_ok(), Reply::read(&bytes).is_ok());
            assert!(if is_whole { cut == whole } else { true }, "{place}");
        }
    }
}

#[test]
fn errors_say_what_was_expected_and_found() {
    let head = |kind: u8| [&[1, kind][..], &[0; 24]].concat();
    let question = |content: &[u8]| {
        let bytes = sealed(&[&head(1), content].concat());
        read(&bytes).unwrap_err().to_string()
    };
    let reply = |kind: u8, content: &[u8]| {
        let bytes = sealed(&[&head(kind), content].concat());
        Reply::read(&bytes).unwrap_err().to_string()
    };
    let too_large = [&[0x80; 9][..], &[2]].concat();
    for (found, expected) in [
        (read(&[]).unwrap_err().to_string(), "message: expected a version, found its end"),
        (read(&[2, 1]).unwrap_err().to_string(), "message: expected version 1, found 2"),
        (read(&[1, 1]).unwrap_err().to_string(), "message: expected a checksum, found its end"),
        (
            read(&[1, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap_err().to_string(),
            "message: expected the checksum af63bc4c8601b62c, found 0000000000000000",
        ),
        (reply(1, &[]), "message: expected a reply (2 or 3), found 1"),
        (
            read(&sealed(&[1, 2])).unwrap_err().to_string(),
            "message: expected a question (1), found 2",
        ),
        (
            read(&sealed(&[1, 1, 0])).unwrap_err().to_string(),
            "message: expected the id of a node, found its end",
        ),
        (question(&[]), "message: expected the name of a policy, found its end"),
        (question(&[2, 0x61]), "message: expected the name of a policy, found its end"),
        (
            question(&[2, 0x61, 0xff]),
            "message: expected the name of a policy as UTF-8, found other bytes after 1",
        ),
        (question(&[1, 0x61]), "message: expected a key, found its end"),
        (
            question(&too_large),
            "message: expected the name of a policy as a number of 64 bits in its shortest form, found another",
        ),
        (
            question(&[0x80, 0]),
            "message: expected the name of a policy as a number of 64 bits in its shortest form, found another",
        ),
        (
            question(&[1, 0x61, 1, 0x6b, 18]),
            "message: expected a number of words up to 8, twice, plus 1 for a time, plus 64 for the id of a request, found 18",
        ),
        (
            question(&[1, 0x61, 1, 0x6b, 4, 13, 1]),
            "message: expected the words of an operation, found 12",
        ),
        (question(&[1, 0x61, 1, 0x6b, 3]), "message: expected a time, found its end"),
        (reply(2, &[8]), "message: expected a verdict (0) or a failure (1 to 7), found 8"),
        (reply(3, &[0, 0, 1, 0, 0, 0, 0, 0, 0]), "message: expected a failure (1 to 7), found 0"),
        (reply(3, &[7, 7]), "message: expected its end, found 1 more bytes"),
        (reply(2, &[0, 0, 2, 0, 0, 0]), "message: expected a refusal (0) or a grant (1), found 2"),
        (
            reply(2, &[0, 0, 1, 0, 0, 0, 99]),
            "message: expected the number of limits, found its end",
        ),
        (
            reply(2, &[0, 0, 1, 0, 0, 0, 0, 0x82, 0x80, 0x80, 0x80, 0x10]),
            "message: expected a factor up to 2^32, or none, found 4294967297",
        ),
        (
            reply(2, &[0, 0, 1, 0, 0, 0, 0, 0, 14, 0, 0, 0]),
            "message: expected an effect (0 to 13), found 14",
        ),
        (
            reply(2, &[0, 0, 1, 0, 0, 0, 0, 0, 9, 0, 0, 0]),
            "message: expected an effect (0 to 13), found 9",
        ),
        (
            reply(2, &[0, 0, 1, 0, 0, 0, 0, 0, 7, 5, 0, 1]),
            "message: expected an effect (0 to 13), found 7",
        ),
        (
            reply(2, &[0, 0, 1, 0, 0, 0, 0, 0, 3, 1]),
            "message: expected a number of an effect, found its end",
        ),
    ] {
        assert_eq!(found, expected);
    }
}
