//! What a world is made of.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};

use super::draw::Draws;
use super::event::number;
use super::places::Places;
use super::policies::POLICIES;
use super::topology::Topology;

/// The most by which a monotonic clock is too fast or too slow, in millionths.
const MOST_TICKS_PPM: i64 = 500;

/// The longest block, in µs.
pub(super) const LONGEST_BLOCK: u64 = 4_000_000;

/// The parameters of a world. Spans are in µs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The policies, by name.
    pub policies: Vec<String>,
    /// The number of keys of each policy.
    pub keys: usize,
    /// The time at which the world begins.
    pub start: u64,
    /// By how many millionths each node's clock is too fast. The last clock is the storage's.
    pub drifts_ppm: Vec<i64>,
    /// By how many millionths each node's monotonic clock is too fast; 0 for those that are left out.
    pub ticks_ppm: Vec<i64>,
    /// Who asks whom.
    pub topology: Topology,
    /// Whether each node asks its [`NodeCache`](tidegate_tier::NodeCache) first.
    pub has_locals: bool,
    /// [`Options::most_keys`](tidegate_tier::cache::Options::most_keys)
    pub most_keys: usize,
    /// How far a clock may be off.
    pub skew: u64,
    /// [`Options::ttl_margin`](tidegate_tier::authority::Options::ttl_margin)
    pub ttl_margin: u64,
    /// How long after it was sent a swap may still be executed.
    pub linger: u64,
    /// [`Options::patience`](tidegate_tier::authority::Options::patience)
    pub patience: u64,
    /// [`Options::most_wait`](tidegate_tier::authority::Options::most_wait)
    pub most_wait: u64,
    /// [`Options::most_waiting`](tidegate_tier::authority::Options::most_waiting)
    pub most_waiting: usize,
    /// [`Options::most_records`](tidegate_tier::authority::Options::most_records)
    pub most_records: usize,
    /// [`Options::remembered`](tidegate_tier::authority::Options::remembered)
    pub remembered: usize,
    /// Whether the nodes tell their authority the time.
    pub tells_time: bool,
    /// Whether the clocks and the network are good enough for the bounds of the limits to hold exactly: an
    /// expired record then equals a fresh one at every node, and no clock is off by a period.
    pub is_bounded: bool,
}

impl Setup {
    /// A world for a seed.
    pub(super) fn draw(draws: &mut Draws) -> anyhow::Result<Self> {
        let is_bounded = draws.below(4) > 0;
        let tells_time = is_bounded || draws.flip();
        let skew = match is_bounded {
            true => draws.one_of(&[0, 1_000, 200_000]),
            false => draws.one_of(&[0, 500_000, 20_000_000]),
        };
        let linger = draws.one_of(&[10_000, 100_000, 3_000_000]);
        let nodes = 1 + draws.below(3);
        let drift = |draws: &mut Draws| draws.one_of(&[0, 0, 200, -300, 20_000, -20_000]);
        // half of the worlds are those in which nodes answer by themselves
        let lets_nodes_answer = draws.flip();
        let known = POLICIES.iter().map(|(name, _)| *name);
        let known: Vec<&str> =
            known.filter(|name| !lets_nodes_answer || lets_answer(name)).collect();
        let mut policies: Vec<String> = Vec::new();
        for _ in 0..=draws.below(if lets_nodes_answer { 2 } else { 4 }) {
            let name = draws.one_of(&known);
            if !policies.iter().any(|other| other == name) {
                policies.push(name.into());
            }
        }
        let mut setup = Self {
            policies,
            keys: 1 + draws.index(3),
            start: 1_700_000_000_000_000 + draws.below(10_000_000),
            drifts_ppm: (0..=nodes).map(|_| drift(draws)).collect(),
            ticks_ppm: (0..nodes)
                .map(|_| draws.one_of(&[0, 0, MOST_TICKS_PPM, -500, 100]))
                .collect(),
            topology: draws.one_of(&[Topology::Own, Topology::Own, Topology::First]),
            has_locals: lets_nodes_answer || draws.flip(),
            most_keys: draws.one_of(&[0, 1, 2, 64, 64, 64]),
            skew,
            ttl_margin: 0,
            linger,
            patience: draws.one_of(&[0, 5_000, 200_000, 1_000_000_000]),
            most_wait: draws.one_of(&[1_000_000, 1_000_000_000]),
            most_waiting: draws.one_of(&[4, 32, 1_000_000, 1_000_000]),
            most_records: draws.one_of(&[0, 1, 3, 64]),
            remembered: draws.one_of(&[0, 700, 1_500, 1 << 20]),
            tells_time,
            is_bounded,
        };
        if lets_nodes_answer {
            (setup.patience, setup.most_waiting) = (setup.patience.max(200_000), 1_000);
        }
        if is_bounded {
            // an operation is decided at a time that is up to half a period old, by a clock that is off, and
            // its swap is under way; the storage's clock is off too, by so much more or less than before
            let period = Places::new(&setup)?.longest_period();
            setup.ttl_margin = 4 * skew + period / 2 + linger + 1_000;
            // how long a record is kept counts by a node's monotonic clock and by the storage's
            setup.ttl_margin +=
                setup.ticks_late(4 * (LONGEST_BLOCK + 2 * period + setup.ttl_margin));
        }
        Ok(setup)
    }

    /// Whether nodes may answer by themselves under every policy of this world.
    pub(super) fn lets_nodes_answer(&self) -> bool {
        self.has_locals && self.policies.iter().all(|name| lets_answer(name))
    }

    /// The number of nodes.
    pub(super) const fn nodes(&self) -> usize {
        self.drifts_ppm.len().saturating_sub(1)
    }

    /// By how much two monotonic clocks may differ after a span.
    pub(super) const fn ticks_late(&self, span: u64) -> u64 {
        span / 1_000_000 * 2 * MOST_TICKS_PPM.unsigned_abs() + 2 * MOST_TICKS_PPM.unsigned_abs()
    }

    fn get(&mut self, name: &str, value: &str) -> anyhow::Result<()> {
        match name {
            "policies" => self.policies = value.split_whitespace().map(String::from).collect(),
            "keys" => self.keys = number(value)?,
            "start" => self.start = number(value)?,
            "drifts-ppm" => self.drifts_ppm = numbers(value)?,
            "ticks-ppm" => self.ticks_ppm = numbers(value)?,
            "topology" => self.topology = value.parse()?,
            "has-locals" => self.has_locals = value.parse().context("expected true or false")?,
            "most-keys" => self.most_keys = number(value)?,
            "skew" => self.skew = number(value)?,
            "keep-longer" => self.ttl_margin = number(value)?,
            "linger" => self.linger = number(value)?,
            "patience" => self.patience = number(value)?,
            "most-wait" => self.most_wait = number(value)?,
            "most-waiting" => self.most_waiting = number(value)?,
            "most-records" => self.most_records = number(value)?,
            "remembered" => self.remembered = number(value)?,
            "tells-time" => self.tells_time = value.parse().context("expected true or false")?,
            "is-bounded" => self.is_bounded = value.parse().context("expected true or false")?,
            _ => bail!("expected a parameter such as `keys: 2`, found `{name}`"),
        }
        Ok(())
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = |all: &[i64]| all.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
        writeln!(f, "policies: {}", self.policies.join(" "))?;
        writeln!(f, "keys: {}", self.keys)?;
        writeln!(f, "start: {}", self.start)?;
        writeln!(f, "drifts-ppm: {}", written(&self.drifts_ppm))?;
        writeln!(f, "ticks-ppm: {}", written(&self.ticks_ppm))?;
        writeln!(f, "topology: {}", self.topology)?;
        writeln!(f, "has-locals: {}", self.has_locals)?;
        writeln!(f, "most-keys: {}", self.most_keys)?;
        writeln!(f, "skew: {}", self.skew)?;
        writeln!(f, "keep-longer: {}", self.ttl_margin)?;
        writeln!(f, "linger: {}", self.linger)?;
        writeln!(f, "patience: {}", self.patience)?;
        writeln!(f, "most-wait: {}", self.most_wait)?;
        writeln!(f, "most-waiting: {}", self.most_waiting)?;
        writeln!(f, "most-records: {}", self.most_records)?;
        writeln!(f, "remembered: {}", self.remembered)?;
        writeln!(f, "tells-time: {}", self.tells_time)?;
        writeln!(f, "is-bounded: {}", self.is_bounded)
    }
}

impl FromStr for Setup {
    type Err = anyhow::Error;

    /// Reads the lines with a colon. Parameters that are left out are those of a world without faults.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut setup = Self {
            policies: vec!["window".into()],
            keys: 1,
            start: 1_700_000_000_000_000,
            drifts_ppm: vec![0, 0],
            ticks_ppm: vec![],
            topology: Topology::Own,
            has_locals: true,
            most_keys: 64,
            skew: 0,
            ttl_margin: 10_000_000,
            linger: 100_000,
            patience: 1_000_000_000,
            most_wait: 1_000_000_000,
            most_waiting: 1_000_000,
            most_records: 64,
            remembered: 1 << 20,
            tells_time: true,
            is_bounded: true,
        };
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            setup.get(name.trim(), value.trim()).with_context(|| format!("`{name}`"))?;
        }
        Ok(setup)
    }
}

fn numbers(text: &str) -> anyhow::Result<Vec<i64>> {
    text.split_whitespace().map(number).collect()
}

fn lets_answer(policy: &str) -> bool {
    policy.starts_with("lent") || policy.starts_with("remembered")
}
