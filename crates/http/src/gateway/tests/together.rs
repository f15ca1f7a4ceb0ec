//! Random requests under two policies: what is granted, and what a refusal leaves behind.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_gate::{KeyHasher, Operation, Policies, Request, Resolved, Table, Timestamp, Verdict};

use crate::{Access, Check, Exchange, Head, Outcome, RevisionTag, Served, Server, Step};

/// A window of `start = "first"` is not among them: it begins at the first request, and goes on if the request's units come back.
const LIMITS: [&str; 7] = [
    "{ algorithm = 'token_bucket', capacity = 4, rate = '1/s' }",
    "{ algorithm = 'fixed_window', limit = 3, period = '3s' }",
    "{ algorithm = 'sliding_window', limit = 4, period = '4s', segments = 4 }",
    "{ algorithm = 'sliding_log', rates = ['3/2s', '5/9s'] }",
    "{ algorithm = 'calendar', limit = 4, period = 'day', timezone = 'UTC' }",
    "{ algorithm = 'token_bucket', capacity = 3, rate = '1/s' }, { algorithm = 'fixed_window', limit = 5, period = '9s' }",
    "{ algorithm = 'fixed_window', limit = 4, period = '9s' }, { algorithm = 'sliding_window', limit = 3, period = '2s' }",
];

const HOLD: &str = "reservations = { most = 1_000, remember = '1ms', time_to_live = '1h' }";

/// A store with a table for each policy.
#[derive(Default)]
struct Store(BTreeMap<String, Table>);

impl Store {
    fn ask(&mut self, resolved: &Resolved, now: Timestamp, operation: &Operation) -> Verdict {
        let name = resolved.policy().name().to_string();
        let new = || Table::new(1 << 20, KeyHasher::new(0));
        self.0.entry(name).or_insert_with(new).ask(resolved, now, operation).unwrap()
    }
}

struct World {
    policies: Arc<Policies>,
    store: Store,
    /// The same store, where each request that passed was alone. Its requests come in the order in which it decided on them.
    alone: Store,
    now: Timestamp,
    next: u64,
}

/// A request under way, and the checks that it was granted, with their times.
struct Underway {
    exchange: Exchange,
    granted: Vec<(Check, Timestamp)>,
}

impl World {
    fn new(first: usize, second: usize, reserves: bool) -> Self {
        let (metered, hold) = match reserves {
            true => ("actual = 1", HOLD),
            false => ("", ""),
        };
        let file = format!(
            "[[routes]]\nmatch = '/*'\npolicies = ['a', 'b']\nupstream = 'http://u'\n{metered}
             [policies.a]\nkey = ['header:a']\nlimits = [{}]\n{hold}
             [policies.b]\nkey = ['header:b']\nlimits = [{}]",
            LIMITS[first], LIMITS[second]
        );
        let policies = Policies::parse(&file).unwrap_or_else(|error| panic!("{error}")).into();
        let now = Timestamp(1_800_057_590_000_000); // ten seconds before midnight
        Self { policies, store: Store::default(), alone: Store::default(), now, next: 0 }
    }

    fn begin(&mut self, a: u8, b: u8) -> Underway {
        let header = |name: &str| Some(if name == "a" { a } else { b }.to_string());
        let head =
            Head { method: "GET", authority: "h", path: "/", header: &header, ..Head::default() };
        let (access, revision) = (&Access::OPEN, &RevisionTag::default());
        let server = Server { policies: &self.policies, access, revision, metrics: &String::new };
        let next = &mut self.next;
        let random = &mut || {
            *next += 1;
            Some(*next)
        };
        Underway { exchange: Exchange::new(&server, &head, random), granted: Vec::new() }
    }

    /// Does the next step; the end of the request if it has ended.
    fn step(&mut self, one: &mut Underway) -> Option<Served> {
        match one.exchange.step() {
            Step::Done(served) => Some(served),
            Step::Decide(checks) => {
                let checks = checks.to_vec();
                let mut outcomes = Vec::new();
                for check in checks {
                    let verdict = self.store.ask(check.resolved(), self.now, &check.operation());
                    let is_request = matches!(check.operation(), Operation::Decide(_));
                    if is_request && verdict.decision.is_allowed() {
                        one.granted.push((check, self.now));
                    }
                    outcomes.push(Outcome::Decided(verdict));
                }
                one.exchange.decided(outcomes);
                None
            }
            step => panic!("{step:?}"),
        }
    }

    fn peek(store: &mut Store, resolved: &Resolved, now: Timestamp) -> Verdict {
        store.ask(resolved, now, &Operation::Peek(Request::of(1)))
    }
}

proptest! {
    /// One request after another: a refusal leaves both policies as if the request had never come.
    #[test]
    fn a_refused_request_leaves_nothing_behind(
        first in 0..LIMITS.len(),
        second in 0..LIMITS.len(),
        reserves: bool,
        between in 0..9_000_u64,
        requests in prop::collection::vec((0..2_u8, 0..2_u8, 0..1_500_000_u64), 1..60),
    ) {
        let mut world = World::new(first, second, reserves);
        for (a, b, wait) in requests {
            world.now.0 += wait;
            let mut one = world.begin(a, b);
            let served = loop {
                if let Some(served) = world.step(&mut one) { break served }
                world.now.0 += between;
            };
            if let Served::Pass(_) = served {
                for (check, at) in &one.granted {
                    let alone = world.alone.ask(check.resolved(), *at, &check.operation());
                    prop_assert!(alone.decision.is_allowed());
                }
            }
            for (policy, key) in [("a", format!("header:a:{a}")), ("b", format!("header:b:{b}"))] {
                let resolved = Resolved::new(world.policies.get(policy).unwrap(), &key).unwrap();
                let found = World::peek(&mut world.store, &resolved, world.now);
                prop_assert_eq!(found, World::peek(&mut world.alone, &resolved, world.now));
            }
        }
    }

    /// Requests at the same moment, whose steps come in any order: what passes is within each policy, as if the policy stood
    /// alone.
    #[test]
    fn nothing_is_granted_beyond_a_policy(
        first in 0..LIMITS.len(),
        second in 0..LIMITS.len(),
        reserves: bool,
        steps in prop::collection::vec((0..5_usize, 0..2_u8, 0..2_u8, 0..700_000_u64), 1..120),
    ) {
        let mut world = World::new(first, second, reserves);
        let mut under_way: Vec<Underway> = Vec::new();
        let mut passed: Vec<(Check, Timestamp)> = Vec::new();
        let mut order: Vec<(Timestamp, usize)> = Vec::new();
        for (place, a, b, wait) in steps {
            world.now.0 += wait;
            if under_way.get(place).is_none() {
                let one = world.begin(a, b);
                under_way.push(one);
                continue;
            }
            if let Some(served) = world.step(&mut under_way[place]) {
                let one = under_way.remove(place);
                if let Served::Pass(_) = served {
                    for granted in one.granted {
                        order.push((granted.1, passed.len()));
                        passed.push(granted);
                    }
                }
            }
        }
        order.sort();
        for (at, place) in order {
            let (check, _) = &passed[place];
            let alone = world.alone.ask(check.resolved(), at, &check.operation());
            prop_assert!(alone.decision.is_allowed(), "{:?} at {:?}", check.resolved().key(), at);
        }
    }
}
