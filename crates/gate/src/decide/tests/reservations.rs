//! Reservations: on several limits, beside leases, blocks and edits, and through stored bytes.

use std::collections::BTreeMap;
use std::format;
use std::string::{String, ToString};
use std::sync::Arc;
use std::vec::Vec;

use tidegate_core::{Micros, Timestamp};

use crate::decide::{Effect, Verdict};
use crate::policy::{Policy, Resolved};
use crate::state::{Due, Transaction};
use crate::{Ask, AskError, KeyHasher, Operation, Table};

const SECOND: u64 = 1_000_000;
const START: u64 = 1_700_000_000 * SECOND;

const TOKENS: &str =
    "limits = [{ algorithm = 'token_bucket', capacity = 60_000, rate = '60000/m' }]";

/// The keys of a policy in a store of bytes.
struct Keys {
    policy: Arc<Policy>,
    store: BTreeMap<String, Vec<u8>>,
}

impl Keys {
    fn new(policy: &str, reservations: &str) -> Self {
        let policy = format!("{policy}\nreservations = {{ {reservations} }}");
        Self { policy: Arc::new(Policy::parse("p", &policy).unwrap()), store: BTreeMap::new() }
    }

    /// Asks at a second, and reads the stored bytes again for each question.
    fn ask(&mut self, second: u64, key: &str, json: &str) -> Result<Verdict, String> {
        let ask = Ask::parse(json).unwrap();
        let asked = ask.resolve(&self.policy, key, &mut || Some(second));
        let asked = asked.map_err(|error| error.to_string())?;
        let mut transaction = Transaction::of_only_writer();
        let joined = transaction.join(asked.resolved());
        transaction.load(
            transaction.names().map(|name| self.store.get(name).cloned()).collect::<Vec<_>>(),
        );
        let now = Timestamp(START + second * SECOND);
        let answered = transaction.operate(&joined, now, &asked.operation());
        let answered = answered.map_err(|error| error.to_string())?;
        for write in transaction.writes() {
            self.store.insert(write.name.into(), write.bytes.into());
        }
        Ok(asked.said(answered.verdict))
    }

    fn remaining(&mut self, second: u64, key: &str) -> u64 {
        self.ask(second, key, r#"{"peek":{}}"#).unwrap().decision.remaining()
    }
}

fn committed(charged: u64, late: bool) -> Effect {
    Effect::Committed { charged, late, by: None }
}

#[test]
fn calls_side_by_side_leave_what_they_used() {
    let mut keys = Keys::new(TOKENS, "most = 8");
    for id in ["a", "b", "c"] {
        let json = format!(r#"{{"reserve":{{"cost":20000,"id":"{id}"}}}}"#);
        let verdict = keys.ask(0, "k", &json).unwrap();
        let until = Timestamp(START + 300 * SECOND);
        assert_eq!(verdict.effect, Effect::Reserved { units: 20_000, until, by: None });
    }
    assert_eq!(keys.remaining(0, "k"), 0);
    for id in ["a", "b", "c"] {
        let json = format!(r#"{{"commit":{{"id":"{id}","actual":500}}}}"#);
        assert_eq!(keys.ask(20, "k", &json).unwrap().effect, committed(500, false));
    }
    assert_eq!(keys.remaining(20, "k"), 60_000, "1,500 flow in within 20 s");
}

#[test]
fn a_refund_gives_back_nothing_that_is_held_and_nothing_of_a_grant_ahead() {
    let mut keys = Keys::new(TOKENS, "most = 8");
    let refund = |keys: &mut Keys, json: &str| {
        keys.ask(0, "k", &format!(r#"{{"refund":{json}}}"#)).unwrap().decision.remaining()
    };
    for id in ["a", "b"] {
        let json = format!(r#"{{"reserve":{{"cost":20000,"id":"{id}"}}}}"#);
        assert!(keys.ask(0, "k", &json).unwrap().decision.is_allowed());
    }
    assert_eq!(refund(&mut keys, r#"{"units":60000}"#), 20_000, "all that is taken is held");
    assert_eq!(
        keys.ask(0, "k", r#"{"check":{"cost":5000}}"#).unwrap().decision.remaining(),
        15_000
    );
    let of = |at: u64| format!(r#"{{"units":3000,"granted":5000,"granted_at_us":{at}}}"#);
    let now = START;
    assert_eq!(refund(&mut keys, &of(now + 1)), 15_000);
    assert_eq!(refund(&mut keys, &of((1 << 53) - 1)), 15_000);
    assert_eq!(refund(&mut keys, &of(now)), 18_000);
    assert_eq!(refund(&mut keys, &of(now)), 20_000, "2,000 are used and not held");
    for id in ["a", "b"] {
        let json = format!(r#"{{"commit":{{"id":"{id}","actual":20000}}}}"#);
        assert_eq!(keys.ask(0, "k", &json).unwrap().effect, committed(20_000, false));
    }
    assert_eq!(keys.remaining(0, "k"), 20_000);
}

#[test]
fn a_reservation_takes_all_limits_or_none_and_counts_for_all_keys_of_a_part() {
    let policy = "limits = [
        { algorithm = 'fixed_window', name = 'org', limit = 100, period = '1h', depth = 1 },
        { algorithm = 'sliding_window', name = 'user', limit = 60, period = '1m', segments = 6 },
    ]";
    let mut keys = Keys::new(policy, "most = 4");
    let left = |verdict: &Verdict| -> Vec<u64> {
        verdict.limits.iter().map(|limit| limit.remaining()).collect()
    };
    let taken = keys.ask(0, "acme/a", r#"{"reserve":{"cost":50,"id":"1"}}"#).unwrap();
    assert_eq!(left(&taken), [50, 10]);
    let refused = keys.ask(0, "acme/a", r#"{"reserve":{"cost":20,"id":"2"}}"#).unwrap();
    assert!(!refused.decision.is_allowed());
    assert_eq!((left(&refused), refused.effect), ([50, 10].into(), Effect::Decision));
    // another key of the same part has reservations of its own under the same ids
    let other = keys.ask(0, "acme/b", r#"{"reserve":{"cost":50,"id":"1"}}"#).unwrap();
    assert_eq!(left(&other), [0, 10]);
    let said = keys.ask(1, "acme/a", r#"{"commit":{"id":"1","actual":5}}"#).unwrap();
    assert_eq!((left(&said), said.effect), ([45, 55].into(), committed(5, false)));
    assert_eq!(keys.remaining(1, "acme/b"), 10);
}

#[test]
fn a_repeated_call_takes_nothing_and_a_commit_counts_once() {
    let mut keys = Keys::new(TOKENS, "remember = '10s'");
    let reserve = r#"{"reserve":{"cost":1000,"id":"x","time_to_live":5000000}}"#;
    let first = keys.ask(0, "k", reserve).unwrap();
    assert_eq!(keys.ask(0, "k", reserve).unwrap(), first);
    let commit = |keys: &mut Keys, second, actual| {
        let json = format!(r#"{{"commit":{{"id":"x","actual":{actual}}}}}"#);
        keys.ask(second, "k", &json).unwrap().effect
    };
    assert_eq!(commit(&mut keys, 1, 3_000), committed(3_000, false), "more than the estimate");
    for _ in 0..10 {
        assert_eq!(commit(&mut keys, 1, 7), committed(3_000, false));
    }
    assert_eq!(keys.remaining(1, "k"), 58_000, "1,000 have come back");
    let again = keys.ask(1, "k", reserve).unwrap().decision;
    assert_eq!(again.retry_after(), Micros(10 * SECOND), "until the key forgets the id");
    assert!(keys.ask(11, "k", reserve).unwrap().decision.is_allowed(), "the key has forgotten it");
    assert_eq!(commit(&mut keys, 16, 10), committed(10, true), "its end has come");
    assert_eq!(keys.remaining(16, "k"), 59_990);
}

/// Its lease has ended, and another has the place; a limit in shadow has refused it.
#[test]
fn a_repeated_reservation_needs_no_lease_and_is_charged_to_no_limit_that_refused_it() {
    let limits = "limits = [
        { algorithm = 'fixed_window', name = 'units', limit = 10, period = '1h' },
        { algorithm = 'fixed_window', name = 'trial', limit = 4, period = '1h', shadow = true },
        { algorithm = 'concurrency', name = 'places', capacity = 1, time_to_live = '2s' },
    ]";
    let mut keys = Keys::new(limits, "time_to_live = '1m'");
    let left = |said: &Verdict| -> Vec<u64> {
        said.limits.iter().map(|decision| decision.remaining()).collect()
    };
    let reserve = |id, cost| format!(r#"{{"reserve":{{"cost":{cost},"id":"{id}"}}}}"#);
    let first = keys.ask(0, "k", &reserve("a", 5)).unwrap();
    assert_eq!((first.decision.is_allowed(), left(&first)), (true, [5, 4, 0].into()));
    assert!(keys.ask(3, "k", &reserve("b", 1)).unwrap().decision.is_allowed());
    for cost in [5, 3] {
        let again = keys.ask(3, "k", &reserve("a", cost)).unwrap();
        assert_eq!((again.decision.is_allowed(), left(&again)), (true, [4, 3, 0].into()), "{cost}");
        assert_eq!(again.effect, first.effect);
    }
}

#[test]
fn a_refusal_for_want_of_a_place_says_when_there_is_one() {
    let mut keys = Keys::new(TOKENS, "most = 2, time_to_live = '4s', remember = '2s'");
    for id in [1, 2] {
        let json = format!(r#"{{"reserve":{{"cost":1,"id":"{id}"}}}}"#);
        assert!(keys.ask(0, "k", &json).unwrap().decision.is_allowed());
    }
    let third = r#"{"reserve":{"cost":1,"id":"3"}}"#;
    let Verdict { decision: refused, effect, .. } = keys.ask(0, "k", third).unwrap();
    assert_eq!((refused.retry_after(), refused.remaining()), (Micros(6 * SECOND), 59_998));
    assert_eq!(effect, Effect::Full { limit: 0, by: None });
    let repeated = keys.ask(0, "k", r#"{"reserve":{"cost":1,"id":"1"}}"#).unwrap();
    assert!(repeated.decision.is_allowed(), "it has its place");
    let ended = keys.ask(5, "k", r#"{"reserve":{"cost":1,"id":"1"}}"#).unwrap();
    assert!(!ended.decision.is_allowed(), "its place is remembered");
    assert_eq!(ended.effect, Effect::Decision, "it is refused for its id");
    assert!(keys.ask(0, "k", r#"{"check":{"cost":5}}"#).unwrap().decision.is_allowed());
    assert!(!keys.ask(5, "k", third).unwrap().decision.is_allowed());
    assert!(keys.ask(6, "k", third).unwrap().decision.is_allowed());
}

#[test]
fn most_counts_the_reservations_of_all_keys_that_a_limit_counts_together() {
    let one = |depth| {
        format!("[{{ algorithm = 'fixed_window', limit = 9, period = '1h', depth = {depth} }}]")
    };
    let policy =
        format!("limits = {}\noverrides = {{ 'acme/vip' = {{ limits = {} }} }}", one(1), one(1));
    let mut keys = Keys::new(&policy, "most = 1");
    let mut reserve = |key| keys.ask(0, key, r#"{"reserve":{"cost":1,"id":"x"}}"#).unwrap().effect;
    assert!(matches!(reserve("acme/a"), Effect::Reserved { .. }));
    assert_eq!(reserve("acme/b"), Effect::Full { limit: 0, by: None });
    assert!(matches!(reserve("acme/vip"), Effect::Reserved { .. }), "an override counts apart");
    assert!(matches!(reserve("other/a"), Effect::Reserved { .. }));
}

#[test]
fn an_explanation_says_whether_a_reservation_would_find_a_place() {
    let policy = Arc::new(
        Policy::parse(
            "p",
            "limits = [
                { algorithm = 'fixed_window', name = 'user', limit = 9, period = '1h' },
                { algorithm = 'fixed_window', name = 'org', limit = 90, period = '1h', depth = 1 },
                { algorithm = 'fixed_window', name = 'trial', limit = 1, period = '1h', shadow = true },
            ]
            reservations = { most = 2, time_to_live = '4s', remember = '2s' }",
        )
        .unwrap(),
    );
    let mut table = Table::new(1 << 20, KeyHasher::new(7));
    let mut ask = |second: u64, key: &str, json: &str| {
        let asked = Ask::parse(json).unwrap().resolve(&policy, key, &mut || Some(7)).unwrap();
        let now = Timestamp(START + second * SECOND);
        let verdict = table.ask(asked.resolved(), now, &asked.operation()).unwrap();
        (verdict.effect, asked.explain(&verdict).map(|why| why.text).unwrap_or_default())
    };
    let mut reserve =
        |key: &str, id: u64| ask(0, key, &format!(r#"{{"reserve":{{"cost":1,"id":"{id}"}}}}"#)).0;
    let full = |limit| Effect::Full { limit, by: None };
    assert!(matches!(reserve("acme/a", 1), Effect::Reserved { .. }));
    assert!(matches!(reserve("acme/b", 2), Effect::Reserved { .. }));
    let place_of_org =
        policy.limits().iter().position(|named| named.name == "org").unwrap().try_into().unwrap();
    assert_eq!(reserve("acme/a", 3), full(place_of_org), "all keys of a part share its places");
    let mut explain = |second, key: &str, cost: u64| {
        ask(second, key, &format!(r#"{{"explain":{{"cost":{cost}}}}}"#))
    };
    let (effect, text) = explain(0, "acme/a", 2);
    assert_eq!(effect, full(place_of_org));
    let no_place = "A reservation would find no place: all 2 of `org` are taken.";
    assert!(text.starts_with("The request passes") && text.ends_with(no_place), "{text}");
    let (effect, text) = explain(0, "acme/a", 9);
    assert_eq!(effect, Effect::Decision, "a check is refused, too");
    assert!(text.starts_with("`user` refuses"), "{text}");
    for (second, key) in [(0, "other/a"), (6, "acme/a")] {
        let (effect, text) = explain(second, key, 1);
        assert!(effect == Effect::Decision && !text.contains("place"), "{key}: {text}");
    }
}

#[test]
fn an_estimate_above_the_largest_share_is_cut() {
    let mut keys = Keys::new(TOKENS, "largest_share = '12.5%'");
    let cut = keys.ask(0, "k", r#"{"reserve":{"cost":64000,"id":"x"}}"#).unwrap();
    assert!(matches!(cut.effect, Effect::Reserved { units: 7_500, .. }));
    let mut whole = Keys::new(TOKENS, "");
    let error = whole.ask(0, "k", r#"{"reserve":{"cost":64000}}"#).unwrap_err();
    assert!(error.contains("64000"), "{error}");
}

#[test]
fn a_commit_gives_the_place_of_a_lease_back() {
    let policy = "limits = [
        { algorithm = 'fixed_window', limit = 100, period = '1h' },
        { algorithm = 'concurrency', capacity = 1, time_to_live = '1m' },
    ]";
    let mut keys = Keys::new(policy, "");
    let mut allowed =
        |second, json: &str| keys.ask(second, "k", json).unwrap().decision.is_allowed();
    assert!(allowed(0, r#"{"reserve":{"cost":10,"id":"call"}}"#));
    assert!(!allowed(0, r#"{"reserve":{"cost":10,"id":"other"}}"#));
    assert!(allowed(1, r#"{"commit":{"id":"call","actual":3}}"#));
    assert!(allowed(1, r#"{"reserve":{"cost":10,"id":"other"}}"#));
    assert_eq!(keys.remaining(1, "k"), 87);
}

#[test]
fn a_blocked_key_reserves_nothing_and_still_commits() {
    let mut keys = Keys::new(TOKENS, "");
    keys.ask(0, "k", r#"{"reserve":{"cost":9000,"id":"x"}}"#).unwrap();
    keys.ask(0, "k", r#"{"block":{"for":9000000}}"#).unwrap();
    let refused = keys.ask(1, "k", r#"{"reserve":{"cost":1,"id":"y"}}"#).unwrap();
    assert!(!refused.decision.is_allowed());
    let said = keys.ask(1, "k", r#"{"commit":{"id":"x","actual":10}}"#).unwrap();
    assert_eq!(said.effect, committed(10, false));
    assert_eq!(keys.remaining(9, "k"), 60_000);
}

/// Two reservations of 30 are live when the limits are edited. One costs 35, and the other one 5.
#[test]
fn reservations_live_through_an_edit_that_keeps_what_was_used() {
    let fixed = |limit, period: &str| {
        format!("{{ algorithm = 'fixed_window', limit = {limit}, period = '{period}' }}")
    };
    let sliding =
        |limit| format!("{{ algorithm = 'sliding_window', limit = {limit}, period = '2h' }}");
    let log = |limit| format!("{{ algorithm = 'sliding_log', rates = ['{limit}/h'] }}");
    let bucket = |limit, rate: &str| {
        format!("{{ algorithm = 'token_bucket', capacity = {limit}, rate = '{rate}' }}")
    };
    // at 1/h a second brings nothing back, and at 60/m one unit
    for (old, new, at_once, after_both, is_live) in [
        (fixed(100, "1h"), fixed(80, "1h"), 20, 40, true),
        (fixed(100, "1h"), fixed(200, "2h"), 140, 160, true),
        (fixed(100, "1h"), sliding(80), 20, 40, true),
        (sliding(100), fixed(80, "1h"), 20, 40, true),
        (log(100), log(80), 20, 40, true),
        (log(100), fixed(80, "1h"), 20, 40, true),
        (bucket(100, "1/h"), bucket(80, "1/d"), 20, 40, true),
        (bucket(100, "1/h"), bucket(80, "60/m"), 20, 40, true),
        (bucket(100, "1/h"), fixed(80, "1h"), 20, 15, false),
        (fixed(100, "1h"), bucket(80, "1/h"), 20, 15, false),
        (bucket(100, "1/h"), bucket(20, "1/h"), 0, 0, false), // its debt is 20 at most
        (bucket(100, "1/h"), bucket(30, "1/h"), 0, 0, true),
        (bucket(100, "1/h"), bucket(29, "1/h"), 0, 0, false),
        (fixed(100, "1h"), fixed(30, "1h"), 0, 0, true),
        (fixed(100, "1h"), fixed(29, "1h"), 0, 0, false),
    ] {
        let with = |limit: &str| Keys::new(&format!("on_change = 'keep'\nlimits = [{limit}]"), "");
        let mut keys = with(&old);
        for id in [1, 2] {
            keys.ask(0, "k", &format!(r#"{{"reserve":{{"cost":30,"id":"{id}"}}}}"#)).unwrap();
        }
        keys.policy = with(&new).policy;
        assert_eq!(keys.remaining(0, "k"), at_once, "{old} to {new}");
        let more = keys.ask(0, "k", r#"{"commit":{"id":"1","actual":35}}"#).unwrap();
        assert_eq!(more.effect, committed(35, !is_live), "{old} to {new}");
        let less = keys.ask(0, "k", r#"{"commit":{"id":"2","actual":5}}"#).unwrap();
        assert_eq!(less.effect, committed(if is_live { 5 } else { 30 }, !is_live));
        assert_eq!(less.decision.remaining(), after_both, "{old} to {new}");
    }
}

#[test]
fn what_is_stored_ahead_never_answers_for_a_reservation() {
    let policy = format!("persist_ahead = {{ most = 1000 }}\n{TOKENS}\nreservations = {{}}");
    let policy = Arc::new(Policy::parse("p", &policy).unwrap());
    let key = Resolved::new(&policy, "k").unwrap();
    let mut transaction = Transaction::of_only_writer();
    let joined = transaction.join(&key);
    transaction.load([None]);
    let mut due = |json: &str| -> Vec<Due> {
        let asked = Ask::parse(json).unwrap().resolve(&policy, "k", &mut || None).unwrap();
        transaction.operate(&joined, Timestamp(START), &asked.operation()).unwrap();
        let due = transaction.writes().map(|write| write.due).collect();
        transaction.stored(|_| Micros::ZERO);
        due
    };
    let check = r#"{"check":{"cost":1}}"#;
    assert_eq!(due(check), [Due::BeforeAnswer]);
    assert_eq!(due(check), [], "it was stored ahead");
    assert_eq!(due(r#"{"reserve":{"cost":1,"id":"x"}}"#), [Due::BeforeAnswer]);
    assert_eq!(due(check), [Due::BeforeAnswer], "nothing is ahead while units are held");
    let refused = r#"{"reserve":{"cost":60000,"id":"y"}}"#;
    assert_eq!(due(refused), [], "a refusal takes nothing, so it need not be stored");
    assert_eq!(due(r#"{"commit":{"id":"x","actual":0}}"#), [Due::BeforeAnswer]);
}

#[test]
fn what_no_reservation_can_be_is_an_error() {
    let mut plain =
        Keys { policy: Arc::new(Policy::parse("p", TOKENS).unwrap()), store: BTreeMap::new() };
    for json in [r#"{"reserve":{"cost":1}}"#, r#"{"commit":{"id":"x","actual":1}}"#] {
        let error = plain.ask(0, "k", json).unwrap_err();
        let expected = "`policy`: expected a policy with `reservations`, found \"p\"";
        assert!(error.starts_with(expected), "{error}");
    }
    let mut keys = Keys::new(TOKENS, "");
    for (json, expected) in [
        (
            r#"{"reserve":{"cost":0}}"#,
            "`cost`: expected at least 1, found 0; a peek reserves nothing",
        ),
        (r#"{"reserve":{"cost":1,"id":""}}"#, "`id`: expected 1 to "),
        (r#"{"commit":{"id":"","actual":1}}"#, "`id`: expected 1 to "),
    ] {
        let error = keys.ask(0, "k", json).unwrap_err();
        assert!(error.starts_with(expected), "{json}: {error}");
    }
    let nameless = Ask::parse(r#"{"reserve":{"cost":1}}"#).unwrap();
    assert_eq!(nameless.resolve(&keys.policy, "k", &mut || None), Err(AskError::NoRandomness));
    let named = Ask::parse(r#"{"reserve":{"cost":1}}"#).unwrap();
    let named = named.resolve(&keys.policy, "k", &mut || Some(7)).unwrap();
    assert_eq!(named.lease(), Some("00000000000000070000000000000007"));
    assert!(matches!(named.operation(), Operation::Decide(request) if request.reserves()));
}

#[test]
fn a_policy_says_how_it_reserves() {
    let policy = |rest: &str| Policy::parse("p", &format!("{TOKENS}\nreservations = {rest}"));
    let words = policy("{ largest_share = '25%', on_expiry = 'charge' }").unwrap();
    assert_eq!(
        words.describe_reservations().unwrap(),
        "each limit has room for 100 reservations of the keys that it counts together, each for up to 5 m; if nobody commits one, \
         its units stay charged; a commit is remembered for 10 s, and takes a place until then; an estimate above 25% of a limit is cut to it"
    );
    for (rest, expected) in [
        ("{ most = 0 }", "reservations.most: expected a whole number from 1 to 1000, found"),
        ("{ most = 1001 }", "reservations.most: expected a whole number from 1 to 1000, found"),
        ("{ largest_share = '0%' }", "expected a share above \"0%\", found the string"),
        ("{ on_expiry = 'keep' }", "expected `release` or `charge`"),
        ("{ ttl = '5s' }", "expected"),
        ("5", "expected"),
    ] {
        let error = policy(rest).unwrap_err().to_string();
        assert!(error.contains(expected), "{rest}: {error}");
    }
    let leases = "limits = [{ algorithm = 'concurrency', capacity = 5, time_to_live = '1s' }]\nreservations = {}";
    let error = Policy::parse("p", leases).unwrap_err().to_string();
    assert!(error.contains("expected a limit on units over time beside it, found none"), "{error}");
}

#[test]
fn an_edit_of_the_terms_is_one_of_the_limits_and_one_of_the_largest_share_is_none() {
    let identity = |rest: &str| {
        let text = format!("on_change = 'reset'\n{TOKENS}\nreservations = {rest}");
        let policy = Policy::parse("p", &text).unwrap();
        let identities = policy.limits().records().iter().map(|record| record.identity());
        identities.collect::<alloc::vec::Vec<_>>()
    };
    let own = identity("{}");
    assert_eq!(identity("{ largest_share = '25%' }"), own);
    for edit in ["most = 5", "time_to_live = '1m'", "remember = '1m'", "on_expiry = 'charge'"] {
        assert_ne!(identity(&format!("{{ {edit} }}")), own, "{edit}");
    }
}

/// Fuzzing found the whole distance as the wait: the log alone does not know that the hold ends, and its unit with it.
#[test]
fn a_refusal_beside_others_waits_no_longer_than_until_the_hold_ends() {
    let limits = "limits = [{ algorithm = 'sliding_log', rates = ['5/1m'], min_gap = '30s' },
                            { algorithm = 'fixed_window', limit = 9, period = '1d' }]";
    let mut keys = Keys::new(limits, "most = 8, time_to_live = '10s'");
    let reserved = keys.ask(0, "k", r#"{"reserve":{"cost":1,"id":"a"}}"#).unwrap();
    assert!(reserved.decision.is_allowed());
    let refused = keys.ask(4, "k", r#"{"check":{"cost":1}}"#).unwrap();
    assert_eq!(refused.decision.retry_after(), Micros(6 * SECOND));
    assert!(!keys.ask(9, "k", r#"{"check":{"cost":1}}"#).unwrap().decision.is_allowed());
    assert!(keys.ask(10, "k", r#"{"check":{"cost":1}}"#).unwrap().decision.is_allowed());
}
