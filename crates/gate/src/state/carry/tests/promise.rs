//! The promise of docs/policies.md over histories of requests, refunds, charges and edits.

use std::collections::BTreeMap;
use std::format;
use std::mem;
use std::string::String;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_core::Timestamp;

use super::account::{Account, SECOND, Spec};
use super::stored::Stored;
use crate::limit::{Grant, Operation, Request};
use crate::policy::Policy;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const KEYS: [&str; 3] = ["acme/ann", "acme/bob", "acme/vip"];

/// The limits of one rule in their order, by name.
type Limits = Vec<(&'static str, Spec)>;

/// What a rule counts by one part of the key.
type Record = (bool, String);

#[derive(Clone, Debug)]
enum Step {
    Check {
        key: usize,
        cost: u64,
    },
    /// Of the key's last grant: what it really cost.
    Correct {
        key: usize,
        actual: u64,
    },
    /// Of the policy's own limits, or of the override's.
    Edit {
        of_vip: bool,
        change: Change,
    },
    /// To the file before the last edit, as when nodes with either file take turns.
    Back,
    /// The override comes or goes.
    Override(bool),
    Proportional(bool),
}

#[derive(Clone, Debug)]
enum Change {
    Numbers(prop::sample::Index, Spec),
    Insert(prop::sample::Index, Spec),
    Remove(prop::sample::Index),
    Swap(prop::sample::Index, prop::sample::Index),
    Rename(prop::sample::Index, prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let (index, spec) = (any::<prop::sample::Index>, Spec::any);
    let change = prop_oneof![
        3 => (index(), spec()).prop_map(|(place, spec)| Change::Numbers(place, spec)),
        2 => (index(), spec()).prop_map(|(place, spec)| Change::Insert(place, spec)),
        1 => index().prop_map(Change::Remove),
        1 => (index(), index()).prop_map(|(one, other)| Change::Swap(one, other)),
        1 => (index(), index()).prop_map(|(place, name)| Change::Rename(place, name)),
    ];
    prop_oneof![
        12 => (0..3_usize, 1..13_u64).prop_map(|(key, cost)| Step::Check { key, cost }),
        4 => (0..3_usize, 0..20_u64).prop_map(|(key, actual)| Step::Correct { key, actual }),
        5 => (any::<bool>(), change).prop_map(|(of_vip, change)| Step::Edit { of_vip, change }),
        4 => Just(Step::Back),
        1 => any::<bool>().prop_map(Step::Override),
        1 => any::<bool>().prop_map(Step::Proportional),
    ]
}

/// Names stay unique, and at least one limit stays.
fn change(limits: &mut Limits, change: &Change) {
    let unused: Vec<_> =
        NAMES.into_iter().filter(|name| limits.iter().all(|(used, _)| used != name)).collect();
    match change {
        Change::Numbers(place, spec) => {
            let place = place.index(limits.len());
            limits[place].1 = *spec;
        }
        Change::Insert(place, spec) if !unused.is_empty() => {
            limits.insert(place.index(limits.len() + 1), (*place.get(&unused), *spec));
        }
        Change::Remove(place) if limits.len() > 1 => {
            limits.remove(place.index(limits.len()));
        }
        Change::Swap(one, other) => {
            let [one, other] = [one, other].map(|place| place.index(limits.len()));
            limits.swap(one, other);
        }
        Change::Rename(place, name) if !unused.is_empty() => {
            let place = place.index(limits.len());
            limits[place].0 = *name.get(&unused);
        }
        _ => {}
    }
}

/// Half of the names count by the organisation.
fn depth(name: &str) -> usize {
    if name < "c" { 2 } else { 1 }
}

struct World {
    base: Limits,
    vip: Limits,
    /// Both before the last edit.
    earlier: [Limits; 2],
    is_overridden: bool,
    is_proportional: bool,
    policy: Policy,
    stored: Stored,
    /// For each record, in order: the limits that wrote it last, and what they have granted.
    accounts: BTreeMap<Record, Vec<(&'static str, Account)>>,
    /// The records of the last operation whose limits could not count all that was used, as they were before it.
    left: BTreeMap<Record, Vec<(&'static str, Account)>>,
    /// When, and how much.
    granted: BTreeMap<&'static str, (u64, u64)>,
}

impl World {
    fn new(base: Limits, vip: Limits) -> Self {
        let policy = Policy::parse(
            "p",
            "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1s' }]",
        );
        let mut world = Self {
            earlier: [base.clone(), vip.clone()],
            base,
            vip,
            is_overridden: true,
            is_proportional: false,
            policy: policy.unwrap(),
            stored: Stored::default(),
            accounts: BTreeMap::new(),
            left: BTreeMap::new(),
            granted: BTreeMap::new(),
        };
        world.load();
        world
    }

    fn load(&mut self) {
        let text = |limits: &Limits| {
            let text = |(name, spec): &(&'static str, Spec)| {
                spec.text(name, if depth(name) == 1 { "depth = 1," } else { "" })
            };
            limits.iter().map(text).collect::<Vec<_>>().join(", ")
        };
        let rule = if self.is_proportional { "proportional" } else { "keep" };
        let mut file = format!("on_change = '{rule}'\nlimits = [{}]\n", text(&self.base));
        // whatever is edited, the organisation stays the partition of all states
        file += "overrides.other = { limits = [{ algorithm = 'fixed_window', limit = 1, period = '1s', \
                 depth = 1 }] }\n";
        if self.is_overridden {
            file += &format!("overrides.'acme/vip' = {{ limits = [{}] }}", text(&self.vip));
        }
        self.policy = Policy::parse("p", &file).unwrap();
    }

    /// What counts for a key, edited to the limits that hold now and moved to `now`.
    fn accounts(&mut self, key: &str, now: u64) -> Vec<&mut Account> {
        let of_vip = self.is_overridden && key == "acme/vip";
        let limits = if of_vip { self.vip.clone() } else { self.base.clone() };
        let mut records = Vec::new();
        self.left.clear();
        for (parts, own) in [(1, "acme"), (2, key)] {
            let limits = limits.iter().filter(|(name, _)| depth(name) == parts);
            let limits: Limits = limits.copied().collect();
            if !limits.is_empty() {
                let record = (of_vip, String::from(own));
                let old = self.accounts.get(&record);
                let (edited, exceeds) = edited(&limits, old, self.is_proportional, now);
                if let Some(old) = self.accounts.insert(record.clone(), edited)
                    && exceeds
                {
                    self.left.insert(record.clone(), old);
                }
                records.push(record);
            }
        }
        let all = self.accounts.iter_mut().filter(|(record, _)| records.contains(record));
        let all = all.flat_map(|(_, accounts)| accounts.iter_mut().map(|(_, account)| account));
        let mut all: Vec<_> = all.collect();
        all.iter_mut().for_each(|account| account.advance(now));
        all
    }

    fn step(&mut self, step: &Step, now: u64) -> Result<(), TestCaseError> {
        let at = Timestamp(now);
        match *step {
            Step::Check { key, cost } => {
                let key = KEYS[key];
                let mut accounts = self.accounts(key, now);
                let most = accounts.iter().map(|account| account.spec.capacity).min();
                let cost = cost.min(most.unwrap());
                let fits = |account: &&mut Account| account.used() + cost <= account.spec.capacity;
                let fits = accounts.iter().all(fits);
                if fits {
                    accounts.iter_mut().for_each(|account| account.add(cost));
                    self.granted.insert(key, (now, cost));
                } else {
                    self.accounts.extend(self.left.clone()); // a refusal leaves them
                }
                let decided = self.stored.operate(&self.policy, key, at, Request::of(cost));
                prop_assert_eq!(decided.decision.is_allowed(), fits, "{} for {}", cost, key);
            }
            Step::Correct { key, actual } => {
                let key = KEYS[key];
                let Some((granted_at, units)) = self.granted.remove(key) else { return Ok(()) };
                for account in self.accounts(key, now) {
                    match actual.checked_sub(units) {
                        Some(more) => account.add(more),
                        None => account.refund(units - actual, units, granted_at),
                    }
                }
                let grant = Grant { at: Timestamp(granted_at), units };
                let operation = match actual.checked_sub(units) {
                    Some(more) => Operation::Charge(more),
                    None => Operation::RefundOf(grant, units - actual),
                };
                self.stored.operate(&self.policy, key, at, operation);
            }
            Step::Edit { of_vip, change: ref what } => {
                self.earlier = [self.base.clone(), self.vip.clone()];
                change(if of_vip { &mut self.vip } else { &mut self.base }, what);
                self.load();
            }
            Step::Back => {
                let [base, vip] = &mut self.earlier;
                mem::swap(base, &mut self.base);
                mem::swap(vip, &mut self.vip);
                self.load();
            }
            Step::Override(is_overridden) => {
                self.is_overridden = is_overridden;
                self.load();
            }
            Step::Proportional(is_proportional) => {
                self.is_proportional = is_proportional;
                self.load();
            }
        }
        Ok(())
    }
}

/// Each limit goes on where the one of its name stood, or one that was renamed; else it is new, and
/// begins at the last request. Also returns whether a limit cannot count all that was used.
fn edited(
    limits: &Limits,
    old: Option<&Vec<(&'static str, Account)>>,
    proportional: bool,
    now: u64,
) -> (Vec<(&'static str, Account)>, bool) {
    let Some(old) = old else {
        let new = limits.iter().map(|(name, spec)| (*name, Account::new(*spec, now)));
        return (new.collect(), false);
    };
    let mut exceeds = false;
    let newest = old[0].1.now();
    let has = |limits: &[&'static str], name| limits.contains(&name);
    let names =
        |of: &[(&'static str, Account)]| of.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    let (were, are) = (names(old), limits.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let mut gone: Vec<&Account> =
        old.iter().filter(|(name, _)| !has(&are, name)).map(|(_, account)| account).collect();
    let each = limits.iter().map(|(name, spec)| {
        let source = if has(&were, name) {
            old.iter().find(|(was, _)| was == name).map(|(_, account)| account)
        } else {
            let renamed = gone.iter().position(|account| account.spec == *spec);
            renamed.map(|place| gone.remove(place))
        };
        exceeds |= source.is_some_and(|account| !proportional && account.exceeds(*spec, now));
        let account = source.map(|account| account.edited(*spec, proportional, now));
        (*name, account.unwrap_or_else(|| Account::new(*spec, newest)))
    });
    (each.collect(), exceeds)
}

proptest! {
    /// Every decision is the one that the promise gives: whatever is edited, no unit that was used is
    /// forgotten, and none is counted that was not.
    #[test]
    fn an_edit_forgets_nothing_that_was_used(
        specs in prop::collection::vec(Spec::any(), 4),
        steps in prop::collection::vec((prop_oneof![Just(0), 0..3 * SECOND], step()), 1..60),
    ) {
        let limits = |specs: &[Spec], names: [&'static str; 2]| {
            names.into_iter().zip(specs.iter().copied()).collect::<Limits>()
        };
        let mut world = World::new(limits(&specs[..2], ["a", "c"]), limits(&specs[2..], ["a", "c"]));
        let mut now = 1_000 * SECOND + 7;
        for (gap, step) in &steps {
            now += gap;
            world.step(step, now)?;
        }
    }
}
