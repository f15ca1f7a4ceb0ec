//! Limits that callers give with their requests.

mod in_turns;

use std::format;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;

use tidegate_core::lease::Id;
use tidegate_core::{Micros, Timestamp};

use super::super::{CallLimits, Table};
use super::table;
use crate::key::Depth;
use crate::limit::{Operation, Request};
use crate::policy::Policy;

const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

fn policy(text: &str) -> Arc<Policy> {
    Arc::new(Policy::parse("p", text).unwrap())
}

fn of(limit: u64) -> String {
    format!(
        "{{\"limits\":[{{\"algorithm\":\"fixed_window\",\"limit\":{limit},\"period\":\"1h\"}}]}}"
    )
}

fn limits<'a>(each: impl IntoIterator<Item = &'a str>) -> String {
    let each: Vec<_> = each.into_iter().collect();
    format!("{{\"limits\":[{}]}}", each.join(","))
}

/// A limiter whose callers give limits.
struct Called {
    table: Table,
    call_limits: CallLimits,
    policy: Arc<Policy>,
}

impl Called {
    fn new(text: &str) -> Self {
        Self { table: table(), call_limits: CallLimits::default(), policy: policy(text) }
    }

    /// The policy with the limits of `text`, or its own without a text.
    fn under(&mut self, text: &str) -> Arc<Policy> {
        if text.is_empty() {
            return Arc::clone(&self.policy);
        }
        if let Some(apart) = self.table.counting_apart(&self.policy).unwrap() {
            (self.table, self.policy) = apart;
        }
        self.call_limits.policy(&mut self.table, &self.policy, text, NOW).unwrap()
    }

    /// Whether a request on the key passes, and what is left after it.
    fn ask(&mut self, text: &str, cost: u64) -> (bool, u64) {
        let policy = self.under(text);
        let said = self.table.decide(&policy, "k", NOW, cost).unwrap();
        (said.is_allowed(), said.remaining())
    }

    fn operate(&mut self, text: &str, operation: Operation) {
        let policy = self.under(text);
        self.table.operate(&policy, "k", NOW, operation).unwrap();
    }
}

const FIVE: &str =
    "deny = ['bad']\nlimits = [{ algorithm = 'fixed_window', limit = 5, period = '1h' }]";

#[test]
fn a_call_may_change_the_number_of_a_limit_and_the_count_goes_on() {
    let mut called = Called::new(FIVE);
    assert_eq!(called.ask("", 4), (true, 1));
    assert_eq!(called.ask(&of(9), 3), (true, 2));
    assert_eq!(called.ask(&of(9), 3), (false, 2));
    assert_eq!(called.ask("", 1), (false, 0));
    assert_eq!(called.ask(&of(8), 1), (true, 0));
    assert_eq!(called.ask(&of(1), 1), (false, 0), "a count that is too large for this limit");
    assert_eq!(called.ask(&of(9), 1), (true, 0), "of which nothing was lost");
    assert_eq!(called.table.len(), 1, "one count, under whichever number");
    let nine = called.under(&of(9));
    assert!(!called.table.decide(&nine, "bad", NOW, 1).unwrap().is_allowed(), "lists stay");
}

#[test]
fn a_bucket_goes_on_with_the_share_that_is_spent() {
    let of = |capacity: u64, rate: &str| {
        limits([&*format!(
            "{{\"algorithm\":\"token_bucket\",\"capacity\":{capacity},\"rate\":\"{rate}\"}}"
        )])
    };
    let mut called = Called::new(&of(10, "1/s"));
    assert_eq!(called.ask("", 4), (true, 6));
    assert_eq!(called.ask(&of(100, "10/s"), 0), (true, 60), "it also fills in 10 s");
    assert_eq!(called.ask(&of(100, "10/s"), 10), (true, 50));
    assert_eq!(called.ask("", 0), (true, 5));
    assert_eq!(
        called.ask(&of(10, "2/s"), 0),
        (true, 10),
        "it fills in 5 s, so it is another count"
    );
}

/// Otherwise refused requests would make others wait a microsecond longer.
#[test]
fn a_refusal_or_peek_under_another_capacity_takes_nothing() {
    let of = |capacity: u64, rate: &str| {
        limits([&*format!(
            "{{\"algorithm\":\"token_bucket\",\"capacity\":{capacity},\"rate\":\"{rate}\"}}"
        )])
    };
    let (small, large) = (of(3, "1/s"), of(7, "7/3s"));
    let mut called = Called::new(FIVE);
    assert_eq!(called.ask(&large, 1), (true, 6));
    for _ in 0..9 {
        assert!(!called.ask(&small, 3).0);
        assert_eq!(called.ask(&small, 0), (true, 2), "nor does a peek");
        called.operate(&small, Operation::Peek(Request::of(1)));
    }
    assert_eq!(called.ask(&large, 6), (true, 0));
    let mut called = Called::new(FIVE);
    assert_eq!(called.ask(&small, 1), (true, 2));
    assert_eq!(called.ask(&large, 0), (true, 4), "a third of 7 is spent");
}

/// An answer names a limit without a name, and a caller may write this name.
#[test]
fn a_limit_without_a_name_counts_with_those_that_have_its_default_name() {
    for name in ["p", "limit-1", "limit-2"] {
        let mut called = Called::new(FIVE);
        assert_eq!(called.ask("", 3), (true, 2));
        assert_eq!(called.ask(&named(name, 5), 2), (true, 0), "{name}");
        assert!(!called.ask("", 1).0);
    }
}

#[test]
fn a_dump_of_a_policy_that_keeps_states_is_read_after_an_edit() {
    for (old, new, left) in [
        ("'fixed_window', limit = 5", "'fixed_window', limit = 10", 6),
        ("'fixed_window', limit = 5", "'sliding_window', limit = 9", 5),
    ] {
        let keeping = |limit: &str| {
            format!("on_change = 'keep'\nlimits = [{{ algorithm = {limit}, period = '1h' }}]")
        };
        let mut called = Called::new(&keeping(old));
        called.ask("", 3);
        called.ask(&of(100), 1);
        let dump = called.table.dump(&called.policy, &called.call_limits).unwrap();
        let (table, call_limits, policy) = table().restored(&policy(&keeping(new)), &dump).unwrap();
        assert_eq!(Called { table, call_limits, policy }.ask("", 0), (true, left), "{new}");
    }
}

/// A window of an hour under this name.
fn named(name: &str, limit: u64) -> String {
    of(limit).replace("\"limit\"", &format!("\"name\":\"{name}\",\"limit\""))
}

#[test]
fn limits_of_another_name_algorithm_or_period_are_other_counts() {
    let mut called = Called::new(FIVE);
    assert_eq!(called.ask("", 5), (true, 0));
    let others = [
        named("x", 5),
        of(5).replace("1h", "2h"),
        of(5).replace("fixed", "sliding"),
        of(5).replace("\"limit\"", "\"start\":\"first\",\"limit\""),
        of(5).replace("\"limit\"", "\"depth\":1,\"limit\""),
    ];
    for other in &others {
        assert_eq!(called.ask(other, 3), (true, 2), "{other}");
    }
    for other in &others {
        assert_eq!(called.ask(other, 3), (false, 2), "{other}");
        assert_eq!(called.ask("", 1), (false, 0));
    }
}

#[test]
fn a_limit_has_one_count_in_whichever_lists_it_stands() {
    let limit = |name: &str, limit: u64, period: &str| {
        format!(
            "{{\"algorithm\":\"fixed_window\",\"name\":\"{name}\",\"limit\":{limit},\"period\":\"{period}\"}}"
        )
    };
    let (hour, day) = (limit("hour", 5, "1h"), limit("day", 3, "1d"));
    let both = limits([&*hour, &day]);
    let [hour, day] = [hour, day].map(|limit| limits([&*limit]));
    let mut called = Called::new(&hour);
    assert_eq!(called.ask(&both, 2), (true, 1), "{both}");
    assert_eq!(called.ask(&day, 1), (true, 0));
    assert_eq!(called.ask("", 3), (true, 0));
    for text in ["", &*hour, &day, &both] {
        assert!(!called.ask(text, 1).0, "{text}");
    }
    assert_eq!(called.table.len(), 2);
}

/// Otherwise a caller whose requests are refused could keep others from being asked under their limits.
#[test]
fn refusals_under_other_limits_take_no_room() {
    let mut called = Called::new(FIVE);
    called.operate("", Operation::Block(Micros(9_000_000)));
    for limit in 1_000..3_500 {
        assert!(!called.ask(&of(limit), 1).0);
    }
    assert_eq!(called.table.len(), 2, "the block and the count");
    let own = called.under(&of(7));
    assert!(called.table.decide(&own, "other", NOW, 1).unwrap().is_allowed());
}

#[test]
fn a_peek_under_other_limits_changes_nothing() {
    let mut called = Called::new(FIVE);
    called.ask("", 5);
    called.under(&of(9)); // from now on each limit counts apart
    let before = called.table.dump(&called.policy, &called.call_limits);
    assert_eq!(called.ask(&of(1), 0), (true, 0));
    assert_eq!(called.ask(&of(9), 0), (true, 4));
    assert_eq!(called.ask(&named("x", 9), 0), (true, 9));
    assert_eq!(called.table.dump(&called.policy, &called.call_limits), before);
}

#[test]
fn a_block_holds_under_all_limits_and_ends_under_all() {
    for (blocks, ends) in
        [("", of(9)), ("", named("x", 9)), (&*of(9), String::new()), (&named("x", 9), of(3))]
    {
        let mut called = Called::new(FIVE);
        called.ask(&of(9), 1);
        let all = [String::new(), of(9), named("x", 9), named("y", 9)];
        called.operate(blocks, Operation::Block(Micros(10)));
        for text in &all {
            assert!(!called.ask(text, 1).0, "{text}");
        }
        called.operate(&ends, Operation::Block(Micros(0)));
        for text in &all {
            assert!(called.ask(text, 1).0, "{text}");
        }
    }
}

#[test]
fn a_sweep_keeps_what_counts() {
    let mut called = Called::new(FIVE);
    called.ask(&of(9), 1);
    called.operate("", Operation::Block(Micros(10)));
    called.table.sweep(NOW);
    assert_eq!(called.table.len(), 2);
    called.table.sweep(NOW.saturating_add(Micros(7_200_000_000)));
    assert_eq!(called.table.len(), 0);
}

#[test]
fn a_reset_forgets_all_counts_of_the_key() {
    let mut called = Called::new(FIVE);
    for text in
        ["", &of(9), &named("x", 9), &named("y", 9).replace("\"limit\"", "\"depth\":1,\"limit\"")]
    {
        called.ask(text, 3);
        let own = called.under(text);
        assert!(called.table.decide(&own, "other", NOW, 3).unwrap().is_allowed());
    }
    called.operate("", Operation::Reset(Depth::Parts(0)));
    assert_eq!([called.ask("", 5), called.ask(&named("x", 9), 9)], [(true, 0); 2]);
    assert_eq!(
        called.ask(&named("y", 9).replace("\"limit\"", "\"depth\":1,\"limit\""), 9),
        (true, 0)
    );
    let policy = Arc::clone(&called.policy);
    assert!(!called.table.decide(&policy, "other", NOW, 1).unwrap().is_allowed());
}

#[test]
fn a_shared_count_goes_on_too() {
    let mut called = Called::new(
        "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1h', depth = 1 }]",
    );
    let policy = Arc::clone(&called.policy);
    assert!(called.table.decide(&policy, "acme/ann", NOW, 5).unwrap().is_allowed());
    let other = called.under(&of(7).replace("\"limit\"", "\"depth\":1,\"limit\""));
    assert_eq!(called.table.decide(&other, "acme/bob", NOW, 1).unwrap().remaining(), 1);
    let policy = Arc::clone(&called.policy);
    assert!(!called.table.decide(&policy, "acme/ann", NOW, 1).unwrap().is_allowed());
}

/// What the policy's own limits, overrides and lists have counted until a caller first gives limits.
#[test]
fn the_first_call_with_limits_loses_nothing() {
    let several = "
        overrides = { 'vip*' = { limits = [{ algorithm = 'fixed_window', limit = 9, period = '1h' },
                                           { algorithm = 'concurrency', capacity = 40, time_to_live = '1m' }] } }
        limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/s', depth = 1 },
                  { algorithm = 'sliding_log', rates = ['9/m'] },
                  { algorithm = 'concurrency', capacity = 40, time_to_live = '1m' }]";
    let mut called = Called::new(several);
    let keys = ["a/1", "a/2", "b/1", "vip/1", "vip/2", "fresh"];
    for (number, key) in (1..).zip(&keys[..5]) {
        let request = Request { lease: Some(Id([number, 1])), ..Request::of(number) };
        called.table.operate(&called.policy, key, NOW, request).unwrap();
    }
    called.table.operate(&called.policy, "a/2", NOW, Operation::Block(Micros(5))).unwrap();
    let later = NOW.saturating_add(Micros(700_001));
    let look = |called: &mut Called| {
        [NOW, later]
            .map(|at| keys.map(|key| called.table.operate(&called.policy, key, at, 0).unwrap()))
    };
    let before = look(&mut called);
    called.under(&of(9));
    assert_eq!(look(&mut called), before);
}

#[test]
fn an_edit_finds_a_limit_by_its_name_or_by_its_numbers() {
    let own = |name: &str, limit: u64| {
        let named = format!("name = '{name}', algorithm = 'fixed_window', limit = {limit}");
        format!("on_change = 'keep'\nlimits = [{{ {named}, period = '1h' }}]")
    };
    for (new, left) in [(own("a", 9), 6), (own("b", 5), 2), (own("b", 9), 9)] {
        let mut called = Called::new(&own("a", 5));
        called.ask("", 3);
        called.under(&of(9));
        let mut edited = table();
        let new = called.call_limits.edited(policy(&new)).1.counting_apart();
        for carried in called.table.close().into_carried(&called.policy, &new, Timestamp::EPOCH) {
            assert!(edited.adopt(carried));
        }
        let said = edited.decide(&new, "k", NOW, 0).unwrap();
        assert_eq!(said.remaining(), left);
    }
}

#[test]
fn an_edit_keeps_callers_counts_and_does_with_its_own_what_it_says() {
    for (rule, left_of_four) in [("reset", 4), ("keep", 0)] {
        let own = |limit: u64| {
            format!("on_change = '{rule}'\n{}", FIVE.replace("= 5", &format!("= {limit}")))
        };
        let mut called = Called::new(&own(5));
        assert_eq!(called.ask(&of(9), 6), (true, 3));
        assert_eq!(called.ask(&named("x", 9), 6), (true, 3));
        let before = Arc::clone(&called.policy);
        called.table.operate(&before, "blocked", NOW, Operation::Block(Micros(9))).unwrap();
        let mut edited = table();
        let (call_limits, new) = called.call_limits.edited(policy(&own(4)));
        for carried in called.table.close().into_carried(&called.policy, &new, Timestamp::EPOCH) {
            assert!(edited.adopt(carried));
        }
        let mut called = Called { table: edited, call_limits, policy: new };
        assert_eq!(called.ask(&named("x", 9), 0), (true, 3), "{rule}");
        assert_eq!(called.ask("", 0), (true, left_of_four), "{rule}");
        let dump = called.table.dump(&called.policy, &called.call_limits).unwrap();
        let (table, call_limits, policy) = table().restored(&policy(&own(4)), &dump).unwrap();
        let mut restored = Called { table, call_limits, policy };
        assert_eq!(restored.ask(&named("x", 9), 0), (true, 3), "{rule}, after a dump");
        assert_eq!(
            called.table.decide(&called.policy, "blocked", NOW, 1).unwrap().is_allowed(),
            rule == "reset"
        );
    }
}
