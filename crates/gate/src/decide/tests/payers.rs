//! Limits of which one pays: every history of four requests on small limits, random ones, and reservations beside limits that stand
//! apart.

use std::format;
use std::string::{String, ToString};
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_core::{CostExceedsCapacity, Decision, Micros, Timestamp};

use crate::decide::{Effect, Limits, Verdict};
use crate::limit::{Grant, KnownFor, Limit, Operation, OperationError, Request};
use crate::policy::Policy;
use crate::table::Table;
use crate::{Ask, Bounded, CheckForm, Id, KeyHasher};

const PLAN: &str = "limits = [
  { name = 'burst', algorithm = 'token_bucket', capacity = 6, rate = '1/s' },
  { name = 'plan', algorithm = 'fixed_window', limit = 4, period = '10s', payer = true },
  { name = 'credits', algorithm = 'token_bucket', capacity = 5, rate = '1/8s', payer = true },
  { name = 'overage', algorithm = 'sliding_window', limit = 2, period = '6s', segments = 2, payer = true },
]";

/// The same, all of which can grant any cost up to 6.
const LARGE: &str = "limits = [
  { name = 'burst', algorithm = 'token_bucket', capacity = 9, rate = '1/s' },
  { name = 'plan', algorithm = 'fixed_window', limit = 6, period = '10s', payer = true },
  { name = 'credits', algorithm = 'token_bucket', capacity = 7, rate = '1/4s', payer = true },
  { name = 'overage', algorithm = 'sliding_log', rates = ['8/6s'], payer = true },
]
reservations = { most = 5, time_to_live = '8s', remember = '3s' }";

const SECOND: u64 = 1_000_000;
const START: u64 = 1_700_000_000 * SECOND;

fn limits(text: &str) -> Limits {
    Policy::parse("p", text).unwrap_or_else(|error| panic!("{error}: {text}")).limits().clone()
}

fn error(text: &str) -> String {
    Policy::parse("p", text).unwrap_err().message
}

/// Limits that stand apart: one state each, asked one after another, as the page says.
#[derive(Clone)]
struct Apart {
    each: Vec<(Limit, bool, Vec<u64>)>,
    period: Micros,
    newest: Timestamp,
}

/// What a naive replay says: whether the request passes, who pays, and how long it waits.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    allowed: bool,
    payer: Option<usize>,
    retry_after: Micros,
    remaining: u64,
}

impl Apart {
    fn of(limits: &Limits) -> Self {
        let each = limits.iter().map(|named| {
            (named.limit.clone(), named.payer.is_some(), vec![0; named.limit.words()])
        });
        Self { each: each.collect(), period: limits.period(), newest: Timestamp(0) }
    }

    fn at(&mut self, now: Timestamp) -> Timestamp {
        now.taken_after(self.newest, self.period)
    }

    /// The waits of each limit for a cost; a payer that can never grant it waits for ever.
    fn waits(&self, now: Timestamp, request: &Request) -> Vec<Micros> {
        let wait = |(limit, payer, words): &(Limit, bool, Vec<u64>)| match limit
            .peek(words, now, request)
        {
            Ok(said) => said.retry_after(),
            Err(_) if *payer => Micros::MAX,
            Err(error) => panic!("{error}"),
        };
        self.each.iter().map(wait).collect()
    }

    fn remaining(&self, now: Timestamp) -> u64 {
        let left = |(limit, _, words): &(Limit, bool, Vec<u64>)| {
            limit.peek(words, now, &Request::of(0)).unwrap().remaining()
        };
        let of = |pays: bool| self.each.iter().filter(move |each| each.1 == pays).map(left);
        of(false).min().unwrap_or(u64::MAX).min(of(true).max().unwrap())
    }

    fn decide(&mut self, now: Timestamp, request: &Request) -> Said {
        let now = self.at(now);
        let waits = self.waits(now, request);
        let pays: Vec<bool> = self.each.iter().map(|(_, payer, _)| *payer).collect();
        let of = |pays_too: bool| {
            waits
                .iter()
                .zip(&pays)
                .filter(move |(_, pays)| **pays == pays_too)
                .map(|(wait, _)| *wait)
        };
        let retry_after = of(false).max().unwrap_or_default().max(of(true).min().unwrap());
        let payer = (0..pays.len()).find(|place| pays[*place] && waits[*place] == Micros::ZERO);
        let allowed = retry_after == Micros::ZERO;
        if request.cost > 0 {
            self.newest = now;
            for (place, (limit, payer_too, words)) in self.each.iter_mut().enumerate() {
                if allowed && (!*payer_too || Some(place) == payer) {
                    assert!(limit.decide(words, now, request).unwrap().is_allowed());
                } else {
                    limit.advance(words, now);
                }
            }
        }
        let payer = payer.filter(|_| allowed && request.cost > 0);
        Said { allowed, payer, retry_after, remaining: self.remaining(now) }
    }

    fn words(&self) -> Vec<u64> {
        self.each.iter().flat_map(|(_, _, words)| words.clone()).collect()
    }
}

fn said(verdict: &Verdict) -> Said {
    Said {
        allowed: verdict.decision.is_allowed(),
        payer: verdict.effect.payer(),
        retry_after: verdict.decision.retry_after(),
        remaining: verdict.decision.remaining(),
    }
}

fn at(micros: u64) -> Timestamp {
    Timestamp(START + micros)
}

/// Checks a request against the naive replay, its peek before it, and the exactness of its wait.
fn check(limits: &Limits, words: &mut Vec<u64>, apart: &mut Apart, now: Timestamp, cost: u64) {
    let request = Request::of(cost);
    let before = words.clone();
    let peeked = limits.operate(words, now, &Operation::Peek(request)).unwrap();
    assert_eq!(*words, before, "a peek changes nothing");
    let mut unexplained = words.clone();
    let decision = limits.decide(&mut unexplained, now, &request).unwrap();
    let verdict = limits.operate(words, now, &request.into()).unwrap();
    assert_eq!((verdict.decision, &unexplained), (decision, &*words));
    assert_eq!(peeked, verdict);
    let expected = apart.decide(now, &request);
    assert_eq!(said(&verdict), expected, "{cost} at {now:?}: {verdict:?}");
    assert_eq!(*words, apart.words(), "{cost} at {now:?}");
    if cost > 0 && !expected.allowed {
        let taken = verdict.at;
        let passes = |wait: u64| {
            let decision = limits.decide(&mut words.clone(), Timestamp(taken.0 + wait), &request);
            decision.unwrap().is_allowed()
        };
        assert!(!passes(expected.retry_after.0 - 1), "refused until its end");
        assert!(passes(expected.retry_after.0), "granted at its end");
    }
}

#[test]
fn every_history_of_four_requests_is_that_of_a_naive_replay() {
    let limits = limits(PLAN);
    let spans = [0, 1_999_999, 5 * SECOND, 11 * SECOND];
    let steps: Vec<(u64, u64)> =
        spans.into_iter().flat_map(|span| (1..=5).map(move |cost| (span, cost))).collect();
    let fresh = (vec![0; limits.words()], Apart::of(&limits), 0_u64);
    let mut histories = vec![fresh];
    for _ in 0..4 {
        let mut longer = Vec::new();
        for (words, apart, now) in &histories {
            for (span, cost) in &steps {
                let (mut words, mut apart, now) = (words.clone(), apart.clone(), now + span);
                check(&limits, &mut words, &mut apart, at(now), *cost);
                longer.push((words, apart, now));
            }
        }
        longer.sort_unstable_by(|one, other| (&one.0, one.2).cmp(&(&other.0, other.2)));
        longer.dedup_by(|one, other| (&one.0, one.2) == (&other.0, other.2)); // equal from here on
        histories = longer;
    }
    assert!(histories.len() > 1_000, "{}", histories.len());
}

#[test]
fn each_payer_pays_in_its_turn_and_no_other_is_charged() {
    let limits = limits(PLAN);
    let mut words = vec![0; limits.words()];
    let names = ["plan", "credits", "overage"];
    for (second, cost, payer, left) in [
        (0, 3, Some("plan"), [1, 5, 2]),
        (0, 2, Some("credits"), [1, 3, 2]), // the plan has no room for all of it
        (0, 1, Some("plan"), [0, 3, 2]),
        (0, 1, None, [0, 3, 2]), // the burst refuses, and nobody pays
        (3, 2, Some("credits"), [0, 1, 2]),
        (3, 0, None, [0, 1, 2]),
        (5, 2, Some("overage"), [0, 1, 0]),
    ] {
        let verdict = limits.operate(&mut words, at(second * SECOND), &cost.into()).unwrap();
        let paid_by = limits.paid_by(&verdict).map(|named| named.name.as_str());
        assert_eq!(paid_by, payer, "{cost} at {second} s");
        let looked = limits.operate(&mut words, at(second * SECOND), &Operation::from(0)).unwrap();
        let found: Vec<u64> = looked.limits[1..].iter().map(Decision::remaining).collect();
        assert_eq!(found, left, "{cost} at {second} s: {names:?}");
    }
}

#[test]
fn the_order_is_that_of_the_file_whatever_part_of_the_key_counts() {
    let text = "limits = [
      { name = 'plan', algorithm = 'fixed_window', limit = 2, period = '10s', payer = true },
      { name = 'org', algorithm = 'fixed_window', limit = 9, period = '10s', depth = 1, payer = true },
      { name = 'more', algorithm = 'fixed_window', limit = 9, period = '10s', payer = true },
    ]";
    for limits in
        [limits(text), Policy::of_parameters(&limits(text).parameters()).unwrap().limits().clone()]
    {
        let mut words = vec![0; limits.words()];
        // the limits themselves stand in the order of the parts of the key
        for (cost, payer) in [(2, 1), (9, 0), (9, 2)] {
            let verdict = limits.operate(&mut words, at(0), &cost.into()).unwrap();
            assert_eq!(verdict.effect, Effect::Paid { by: payer });
        }
        assert_eq!(limits.parameters(), self::limits(text).parameters());
    }
    let policy = Policy::parse("p", text).unwrap();
    let mut table = Table::new(1 << 20, KeyHasher::new(7));
    let mut paid = |key: &str| {
        let verdict = table.operate(&policy, key, at(0), 2).unwrap();
        policy.limits().paid_by(&verdict).unwrap().name.clone()
    };
    let payers: Vec<String> = ["acme/a", "acme/b", "acme/a", "acme/b"].map(&mut paid).into();
    assert_eq!(payers, ["plan", "plan", "org", "org"]);
}

#[test]
fn a_cost_is_too_high_only_if_it_is_for_each_payer() {
    let text = PLAN.replace("capacity = 6", "capacity = 9");
    let limits = limits(&text);
    let fresh = vec![0; limits.words()];
    assert_eq!(limits.capacity(), 5);
    let mut words = fresh.clone();
    let verdict = limits.operate(&mut words, at(0), &5_u64.into()).unwrap();
    assert_eq!(limits.paid_by(&verdict).unwrap().name, "credits");
    assert_eq!(verdict.limits[1].retry_after(), Micros::MAX, "the plan can never grant it");
    let refused = limits.operate(&mut words, at(0), &4_u64.into()).unwrap();
    assert!(refused.decision.is_allowed(), "the plan pays");
    let refused = limits.operate(&mut words, at(0), &5_u64.into()).unwrap().decision;
    assert_eq!(
        refused.retry_after(),
        Micros(40 * SECOND),
        "only the credits can ever pay, at 1 in 8 s"
    );
    let before = words.clone();
    for operation in [Operation::from(6), Operation::Peek(Request::of(6))] {
        let error = limits.operate(&mut words, at(0), &operation).unwrap_err();
        let expected = CostExceedsCapacity { cost: 6, capacity: 5 };
        assert_eq!((error, &words), (OperationError::Cost(expected), &before));
    }
    let low = self::limits(PLAN).operate(&mut fresh.clone(), at(0), &7_u64.into()).unwrap_err();
    assert_eq!(
        low,
        OperationError::Cost(CostExceedsCapacity { cost: 7, capacity: 6 }),
        "the burst"
    );
}

#[test]
fn units_without_a_payer_come_back_to_nobody() {
    let limits = limits(PLAN);
    let mut words = vec![0; limits.words()];
    let _ = limits.operate(&mut words, at(0), &2_u64.into()).unwrap();
    let before = words.clone();
    let grant = Grant { at: at(0), units: 2 };
    for operation in [Operation::Refund(1), Operation::RefundOf(grant, 1), Operation::Charge(1)] {
        let error = limits.operate(&mut words, at(5), &operation).unwrap_err();
        assert_eq!((error, &words), (OperationError::UnknownPayer, &before));
    }
    let policy = std::sync::Arc::new(Policy::parse("p", PLAN).unwrap());
    let refund = Ask::parse(r#"{"refund":{"units":1}}"#).unwrap();
    let error = refund.resolve(&policy, "k", &mut || None).unwrap_err();
    let expected =
        "`policy`: expected a policy without payers, because units that come back do not say";
    assert!(error.to_string().starts_with(expected), "{error}");
    let mut table = Table::new(1 << 20, KeyHasher::new(7));
    assert!(table.set_used(&policy, "k", at(0), 3).is_err());
}

#[test]
fn a_key_is_listed_as_limited_only_if_no_payer_has_room() {
    let text = PLAN.replace("capacity = 6, rate = '1/s'", "capacity = 99, rate = '1/s'");
    let policy = Policy::parse("p", &text).unwrap();
    let mut table = Table::new(1 << 20, KeyHasher::new(7));
    let mut take = |cost: u64| {
        assert!(table.operate(&policy, "k", at(0), cost).unwrap().decision.is_allowed());
        table.limited(&policy, at(0), 0).0
    };
    assert_eq!((take(4), take(5)), (vec![], vec![]));
    let limited = take(2);
    assert_eq!(limited.len(), 1);
    assert_eq!(limited[0].limit.as_deref(), Some("overage"), "it pays again before the others");
    let depths = text.replace("limit = 4, period = '10s'", "limit = 4, period = '10s', depth = 1");
    let policy = Policy::parse("p", &depths).unwrap();
    let mut table = Table::new(1 << 20, KeyHasher::new(7));
    for cost in [4, 5, 2] {
        assert!(table.operate(&policy, "acme/k", at(0), cost).unwrap().decision.is_allowed());
    }
    assert_eq!(table.limited(&policy, at(0), 0).0, [], "no part of the key has all payers");
}

#[test]
fn an_explanation_names_the_payer() {
    let policy = Arc::new(Policy::parse("p", PLAN).unwrap());
    let mut table = Table::new(1 << 20, KeyHasher::new(7));
    let explained = |table: &mut Table, at, cost| {
        let form = CheckForm { cost: Bounded::new(cost), ..CheckForm::default() };
        let asked = Ask::Explain(form).resolve(&policy, "k", &mut || None).unwrap();
        let verdict = table.ask(asked.resolved(), at, &asked.operation()).unwrap();
        (asked.explain(&verdict).unwrap(), verdict)
    };
    let _ = table.operate(&policy, "k", at(0), 4).unwrap();
    let (passing, verdict) = explained(&mut table, at(0), 2);
    assert_eq!(policy.limits().paid_by(&verdict).unwrap().name, "credits");
    assert!(
        passing.text.starts_with("The request passes and `credits` pays. "),
        "{}",
        passing.text
    );
    let _ = table.operate(&policy, "k", at(0), 2).unwrap();
    let (refused, _) = explained(&mut table, at(9 * SECOND), 5);
    assert_eq!(refused.limit.as_deref(), Some("credits"), "{}", refused.text);
}

#[test]
fn limits_that_cannot_pay_are_refused_when_the_file_is_read() {
    let pays = "algorithm = 'fixed_window', limit = 2, period = '1m', payer = true";
    let one = format!("{{ name = 'a', {pays} }}");
    let with = |other: &str| {
        format!("limits = [{one}, {{ name = 'b', {other} }}, {{ name = 'c', {pays} }}]")
    };
    for (text, expected) in [
        (
            format!("limits = [{{ {pays} }}]"),
            "expected two limits that pay, or more, or none; found only one, `fixed_window`",
        ),
        (
            format!(
                "limits = [{one}, {{ algorithm = 'token_bucket', capacity = 2, rate = '1/s' }}]"
            ),
            "expected two limits that pay, or more, or none; found only one, `a`",
        ),
        (with(&format!("{pays}, shadow = true")), "expected a limit that is not in shadow"),
        (
            with("algorithm = 'concurrency', capacity = 2, time_to_live = '1m', payer = true"),
            "expected a limit on units over time, found `b`, a `concurrency`",
        ),
        (
            with("algorithm = 'sliding_log', rates = ['2/m'], count_denied = true, payer = true"),
            "expected a limit that counts no refusals",
        ),
        (
            with("algorithm = 'budget', most = 2, time = '1s'"),
            "expected no budget beside it, because the holder of a budget does not know who pays; found `b`",
        ),
        (with(pays) + "\nlocal = { most = 1, time = '1s' }", "found `local`"),
        (
            with(pays) + "\npersist_ahead = { most = 1 }",
            "`persist_ahead`: expected no `payer`, because after a crash another limit would pay than before; found `a`",
        ),
        (
            with(pays) + "\ncost = 3",
            "`cost`: expected at most 2, the most that these limits grant at once; found 3",
        ),
    ] {
        let message = error(&text);
        assert!(message.contains(expected), "{text}: {message}");
    }
    let own = "limits = [{ algorithm = 'fixed_window', limit = 2, period = '1m' }]";
    let own = format!("{own}\noverrides = {{ 'vip' = {{ {} }} }}", with(pays));
    let policy = Policy::parse("p", &own).unwrap();
    assert!(policy.overrides()[0].1.have_payers() && !policy.limits().have_payers());
    assert!(policy.is_soft(), "the answers say more than a decision");
    let call = Policy::parse("p", own.split('\n').next().unwrap()).unwrap();
    let message = call.with_limits(&with(pays)).unwrap_err().message;
    assert!(message.starts_with("`payer`: expected no limit of a call that pays"), "{message}");
}

#[test]
fn a_state_does_not_depend_on_who_pays() {
    let plain = PLAN.replace(", payer = true", "");
    let [pays, plain] = [PLAN, &plain].map(limits);
    let [one, other] = [&pays, &plain].map(|limits| &limits.records()[0]);
    assert_eq!((one.identity(), one.fingerprint()), (other.identity(), other.fingerprint()));
    assert_ne!(pays.parameters(), plain.parameters(), "but the guest must know");
    let with_three = pays.parameters();
    assert_eq!(Policy::of_parameters(&with_three).unwrap().limits().parameters(), with_three);
    assert!(Policy::of_parameters(&[1, 201]).is_err(), "a payer that is nothing");
    assert!(Policy::of_parameters(&[6, 201, 1, 2, 3, 1_000_000, 0]).is_err(), "a payer alone");
}

mod held;

proptest! {
    #[test]
    fn random_histories_are_those_of_a_naive_replay(
        steps in proptest::collection::vec((0..9 * SECOND, any::<bool>(), 0..6_u64), 1..60),
    ) {
        let limits = limits(PLAN);
        let (mut words, mut apart) = (vec![0; limits.words()], Apart::of(&limits));
        let mut now = 100 * SECOND;
        for (by, ahead, cost) in steps {
            now = if ahead { now + by } else { now.saturating_sub(by / 8) };
            check(&limits, &mut words, &mut apart, at(now), cost);
        }
    }
}
