//! Generates a trace that goes where errors hide:
//!
//! - the microsecond before `retry_after`, and the one at it;
//! - the edges of windows and segments;
//! - costs above 1;
//! - a clock that goes back, jumps and returns;
//! - leases that are renewed, released or expire;
//! - reservations that are repeated, committed once, twice, late or never;
//! - refunds, reports, signals and classes.

use std::fmt::Write as _;
use std::sync::Arc;

use fastrand::Rng;
use serde_json::{Value, json};
use tidegate_gate::{
    Ask, Depth, KeyHasher, Kind, Limit, Limits, MAX_QUANTITY, Policies, Policy, Resolved, Table,
    Timestamp,
};

/// The number of keys of each policy.
const KEYS: usize = 12;
/// The edges of every window and segment, and the fill times, of the policies are multiples of this.
const EDGE_US: u64 = 500_000;
const LEASES: [&str; 4] = ["a", "b", "c", "d"];

/// Generates this many lines of newline-delimited JSON over all policies, the same for the same seed.
pub fn generate(policies: &Policies, lines: usize, seed: u64) -> String {
    let mut rng = Rng::with_seed(seed);
    let mut keys: Vec<Key> = Vec::new();
    for policy in policies.all() {
        keys.extend((0..KEYS).map(|number| Key {
            policy: Arc::clone(policy),
            // four teams of three users each
            name: format!("team-{}/key-{number}", number % 4),
            at: 1_431_857_103_000_000 + rng.u64(..EDGE_US),
            granted_at: 0,
            retry: None,
        }));
    }
    let table = |_| Table::new(1 << 20, KeyHasher::new(seed));
    let mut tables: Vec<_> = policies.all().iter().map(table).collect();
    let mut text = String::new();
    for _ in 0..lines {
        let place = rng.usize(..keys.len());
        let (key, table) = (&mut keys[place], &mut tables[place / KEYS]);
        let ask = key.next(&mut rng);
        let asked = Ask::parse(&ask.to_string()).expect("an operation");
        let asked = asked
            .resolve_any_cost(&key.policy, &key.name, &mut || None)
            .expect("a valid operation");
        let verdict = table.ask(asked.resolved(), Timestamp(key.at), &asked.operation());
        let verdict = asked.said(verdict.expect("room in the table"));
        let wait = verdict.decision.retry_after().0;
        key.retry = (wait > 0 && wait < MAX_QUANTITY).then(|| (key.at, wait, ask.clone()));
        if wait == 0 {
            key.granted_at = verdict.at.0;
        }
        let mut line = json!({ "t_us": key.at, "policy": key.policy.name(), "key": key.name });
        let fields = ask.get("check").unwrap_or(&ask).as_object().expect("an object").clone();
        line.as_object_mut().expect("an object").extend(fields);
        let _ = writeln!(text, "{line}");
    }
    text
}

struct Key {
    policy: Arc<Policy>,
    name: String,
    at: u64,
    granted_at: u64,
    /// The time of the last refusal, its `retry_after`, and the refused operation.
    retry: Option<(u64, u64, Value)>,
}

impl Key {
    /// Moves the key's clock and chooses the next operation.
    fn next(&mut self, rng: &mut Rng) -> Value {
        if let Some((at, wait, ask)) = self.retry.take()
            && rng.u8(..10) < 7
        {
            // the refused operation again, a microsecond before its time or at it
            self.at = at.saturating_add(wait).saturating_sub(rng.u64(..2)).min(MAX_QUANTITY);
            return ask;
        }
        let period = self.policy.limits().period().0;
        self.at = match rng.u8(..100) {
            0..30 => self.at,
            30..55 => self.at + rng.u64(..period / 4),
            55..75 => (self.at / EDGE_US + 1) * EDGE_US - rng.u64(..2), // an edge
            75..88 => self.at.saturating_sub(rng.u64(..period)),
            88..97 => self.at + rng.u64(..2 * period),
            97 => self.at + rng.u64(..1 << 40), // twelve days ahead
            98 => self.at.saturating_sub(rng.u64(..1 << 40)),
            _ => rng.choice([0, MAX_QUANTITY, 1_431_857_103_000_000]).unwrap_or(0),
        };
        self.at = self.at.min(MAX_QUANTITY);
        match rng.u8(..100) {
            0..4 => json!({ "peek": { "cost": rng.u64(..3) } }),
            4 => json!({ "reset": {} }),
            5 if self.counts_by_the_key() => {
                json!({ "block": { "for": rng.u64(..2) * rng.u64(..4 * EDGE_US) } })
            }
            5..50 if self.has(|limit| matches!(limit, Limit::Holding(_))) => {
                self.special(rng).unwrap_or_else(|| self.check(rng))
            }
            5..20 => self.special(rng).unwrap_or_else(|| self.check(rng)),
            _ => self.check(rng),
        }
    }

    fn check(&self, rng: &mut Rng) -> Value {
        let most = self.policy.limits().capacity().min(1 << 20);
        let beyond = u64::from(rng.u8(..50) == 0); // sometimes more than can ever be granted
        let cost = if rng.u8(..10) < 6 { 1 } else { rng.u64(..=most + beyond) };
        let mut check = json!({ "cost": cost });
        if self.has(|limit| limit.kind() == Kind::Lease) {
            check["lease"] = rng.choice(LEASES).into();
        }
        if self.has(|limit| matches!(limit, Limit::Fleet(_) | Limit::Utilization(_))) {
            check["class"] = rng.choice(["default", "critical"]).into();
        }
        if self.has(|limit| matches!(limit, Limit::Utilization(_))) && rng.bool() {
            check["signal_ppm"] = rng.u64(..=1_000_000).into();
        }
        if self.has(|limit| limit.kind() == Kind::Shed) {
            check["draw"] = rng.u32(..).into();
        }
        json!({ "check": check })
    }

    /// An operation for limits of some kinds only; `None` if the policy has no such limit.
    fn special(&self, rng: &mut Rng) -> Option<Value> {
        let lease = rng.choice(LEASES);
        let [some, more] = [rng.u64(..8), rng.u64(..8)];
        let granted_at = self.granted_at.saturating_sub(rng.u64(..2) * rng.u64(..EDGE_US));
        // units that come back under payers would not say to whom
        let refunds =
            self.has(|limit| limit.kind() == Kind::Rate) && !self.policy.limits().have_payers();
        let connections = self.has(|limit| matches!(limit, Limit::Connections(_)));
        let reserves = self.has(|limit| matches!(limit, Limit::Holding(_)));
        let choices = [
            (
                reserves,
                json!({ "reserve": {
                "id": lease, "cost": some + 1, "time_to_live": EDGE_US * (more + 1) - rng.u64(..2),
            } }),
            ),
            (reserves, json!({ "commit": { "id": lease, "actual": some } })),
            (refunds, json!({ "refund": { "units": some + 1 } })),
            (
                self.has(|limit| limit.kind() == Kind::Lease),
                json!({ "release": { "lease": lease } }),
            ),
            (self.has(|limit| limit.kind() == Kind::Lease), json!({ "renew": { "lease": lease } })),
            (connections, json!({ "renew": { "lease": lease, "count": some } })),
            (
                self.has(|limit| matches!(limit, Limit::Budget(_))),
                json!({ "budget": {
                "lease": lease, "wants": some, "granted_at_us": granted_at, "left": more,
            } }),
            ),
            (
                self.has(|limit| matches!(limit, Limit::Suppression(_))),
                json!({ "report": {
                "offered_at_us": self.at, "admitted": 100 * some, "suppressed": 100 * more,
            } }),
            ),
        ];
        let choices = choices.into_iter().filter(|(fits, _)| *fits).map(|(_, ask)| ask);
        rng.choice(choices.collect::<Vec<_>>())
    }

    /// Whether this key can be blocked.
    fn counts_by_the_key(&self) -> bool {
        let resolved = Resolved::new(&self.policy, &self.name).expect("a key");
        let depths = resolved.limits().into_iter().flat_map(Limits::iter).map(|each| each.depth);
        depths.max() == Some(Depth::Whole)
    }

    fn has(&self, is: impl Fn(&Limit) -> bool) -> bool {
        self.policy.limits().iter().any(|each| is(&each.limit))
    }
}
