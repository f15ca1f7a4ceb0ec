//! A trace that goes where errors hide: the microsecond before and at `retry_after`, the edges of
//! windows and segments, costs above 1, and a clock that goes back, jumps and returns.

use std::fmt::Write as _;

use fastrand::Rng;
use tidegate_gate::{KeyHasher, MAX_QUANTITY, Policies, Table, Timestamp};

/// Keys of each policy.
const KEYS: usize = 12;
/// States of each policy, also of teams under each rule.
const STATES: usize = 4 * KEYS;
/// Edges of every window, segment and fill time of the policies are multiples of this.
const EDGE_US: u64 = 500_000;

/// So many lines of newline-delimited JSON over all policies; the same for the same seed.
pub fn generate(policies: &Policies, lines: usize, seed: u64) -> String {
    let mut rng = Rng::with_seed(seed);
    let mut keys: Vec<Key> = Vec::new();
    for (policy, shares) in policies.all().iter().map(|policy| policy.shares_states()).enumerate() {
        keys.extend((0..KEYS).map(|number| Key {
            policy,
            name: match shares {
                true => format!("team-{}/key-{number}", number % 4),
                false => format!("key-{number}"),
            },
            at: 1_431_857_103_000_000 + rng.u64(..EDGE_US),
            retry: None,
        }));
    }
    let mut tables = vec![Table::new(STATES, KeyHasher::new(seed)); policies.all().len()];
    let mut text = String::new();
    for _ in 0..lines {
        let place = rng.usize(..keys.len());
        let key = &mut keys[place];
        let policy = &policies.all()[key.policy];
        let cost = key.next(policy.limits().most_at_once(), policy.limits().period().0, &mut rng);
        let decision = tables[key.policy].decide(policy, &key.name, Timestamp(key.at), cost);
        let wait = decision.expect("a valid cost").retry_after().0;
        key.retry = (wait > 0).then_some((key.at, wait, cost));
        let (name, policy, at) = (&key.name, policy.name(), key.at);
        let _ = writeln!(
            text,
            "{{\"t_us\":{at},\"policy\":\"{policy}\",\"key\":\"{name}\",\"cost\":{cost}}}"
        );
    }
    text
}

struct Key {
    policy: usize,
    name: String,
    at: u64,
    /// When it was last refused, how long it is to wait, and what it wanted.
    retry: Option<(u64, u64, u64)>,
}

impl Key {
    /// Moves the key's clock and chooses a cost.
    fn next(&mut self, most: u64, period: u64, rng: &mut Rng) -> u64 {
        if let Some((at, wait, cost)) = self.retry
            && rng.u8(..10) < 7
        {
            // the same again, just before its time or at it
            self.at = (at + wait - rng.u64(..2)).min(MAX_QUANTITY);
            return cost;
        }
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
        if rng.u8(..10) < 6 { 1 } else { rng.u64(..=most) }
    }
}
