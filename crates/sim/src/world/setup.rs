//! What a world is made of.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};

use super::draw::Draws;
use super::event::number;
use super::places::Places;

/// Comes between two editions of a policy. Other policies are replaced by the same text.
pub(super) const EDITED: &str = "\n# edited\n";

/// The policies that a world may have, by name.
pub(super) const POLICIES: [(&str, &str); 12] = [
    ("bucket", "limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '5/s' }]"),
    ("window", "limits = [{ algorithm = 'fixed_window', limit = 6, period = '2s' }]"),
    ("sliding", "limits = [{ algorithm = 'sliding_window', limit = 8, period = '3s', segments = 3 }]"),
    ("log", "limits = [{ algorithm = 'sliding_log', rates = ['4/2s', '2/200ms'] }]"),
    (
        "three",
        "limits = [{ algorithm = 'token_bucket', capacity = 4, rate = '4/s' },
                   { algorithm = 'fixed_window', limit = 9, period = '3s' },
                   { algorithm = 'sliding_log', rates = ['5/1s'] }]",
    ),
    (
        "depth",
        "limits = [{ algorithm = 'fixed_window', limit = 3, period = '1s' },
                   { algorithm = 'token_bucket', capacity = 6, rate = '3/s', depth = 1 }]",
    ),
    ("leases", "limits = [{ algorithm = 'concurrency', capacity = 2, time_to_live = '2s' }]"),
    (
        "penalty",
        "limits = [{ algorithm = 'fixed_window', limit = 2, period = '1s', depth = 1 },
                   { algorithm = 'penalty', refusals = 3, within = '2s', duration = '1s', max = '4s' }]",
    ),
    (
        "kept",
        "on_change = 'keep'
        limits = [{ algorithm = 'fixed_window', limit = 2, period = '1s' }]
# edited
        on_change = 'keep'
        limits = [{ algorithm = 'fixed_window', limit = 3, period = '3s' }]",
    ),
    (
        "scaled",
        "on_change = 'proportional'
        limits = [{ algorithm = 'token_bucket', capacity = 4, rate = '2/s' },
                  { algorithm = 'sliding_log', rates = ['5/1s'], depth = 1 }]
# edited
        on_change = 'proportional'
        limits = [{ algorithm = 'token_bucket', capacity = 8, rate = '1/s' },
                  { algorithm = 'sliding_log', rates = ['9/2s'], depth = 1 }]",
    ),
    ("empty", "limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '3/s', start = 'empty' }]"),
    (
        "denied",
        "limits = [{ algorithm = 'sliding_log', rates = ['3/1s'], count_denied = true }]",
    ),
];

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
    /// How far a clock may be off.
    pub skew: u64,
    /// [`Options::keep_longer`](tidegate_tier::authority::Options::keep_longer)
    pub keep_longer: u64,
    /// How long after it was sent a swap may still be executed.
    pub linger: u64,
    /// [`Options::patience`](tidegate_tier::authority::Options::patience)
    pub patience: u64,
    /// [`Options::most_wait`](tidegate_tier::authority::Options::most_wait)
    pub most_wait: u64,
    /// [`Options::most_waiting`](tidegate_tier::authority::Options::most_waiting)
    pub most_waiting: usize,
    /// [`Options::most_slices`](tidegate_tier::authority::Options::most_slices)
    pub most_slices: usize,
    /// [`Options::remembered`](tidegate_tier::authority::Options::remembered)
    pub remembered: usize,
    /// Whether the nodes tell their authority the time.
    pub tells_time: bool,
    /// Whether the clocks and the network are good enough for the bounds of the limits to hold exactly: an
    /// expired slice then equals a fresh one at every node, and no clock is off by a period.
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
        let mut policies: Vec<String> = Vec::new();
        for _ in 0..=draws.below(3) {
            let (name, _) = draws.one_of(&POLICIES);
            if !policies.iter().any(|other| other == name) {
                policies.push(name.into());
            }
        }
        let mut setup = Self {
            policies,
            keys: 1 + draws.index(3),
            start: 1_700_000_000_000_000 + draws.below(10_000_000),
            drifts_ppm: (0..=nodes).map(|_| drift(draws)).collect(),
            skew,
            keep_longer: 0,
            linger,
            patience: draws.one_of(&[0, 5_000, 200_000, 1_000_000_000]),
            most_wait: draws.one_of(&[1_000_000, 1_000_000_000]),
            most_waiting: draws.one_of(&[3, 16, 1_000_000]),
            most_slices: draws.one_of(&[0, 1, 3, 64]),
            remembered: draws.one_of(&[0, 700, 1_500, 1 << 20]),
            tells_time,
            is_bounded,
        };
        if is_bounded {
            // an operation is decided at a time that is up to half a period old, by a clock that is off, and
            // its swap is under way; the storage's clock is off too, by so much more or less than before
            let longest_wait = Places::new(&setup)?.longest_period() / 2;
            setup.keep_longer = 4 * skew + longest_wait + linger + 1_000;
        }
        Ok(setup)
    }

    /// The number of nodes.
    pub(super) const fn nodes(&self) -> usize {
        self.drifts_ppm.len().saturating_sub(1)
    }

    fn get(&mut self, name: &str, value: &str) -> anyhow::Result<()> {
        match name {
            "policies" => self.policies = value.split_whitespace().map(String::from).collect(),
            "keys" => self.keys = number(value)?,
            "start" => self.start = number(value)?,
            "drifts-ppm" => {
                self.drifts_ppm = value.split_whitespace().map(number).collect::<Result<_, _>>()?;
            }
            "skew" => self.skew = number(value)?,
            "keep-longer" => self.keep_longer = number(value)?,
            "linger" => self.linger = number(value)?,
            "patience" => self.patience = number(value)?,
            "most-wait" => self.most_wait = number(value)?,
            "most-waiting" => self.most_waiting = number(value)?,
            "most-slices" => self.most_slices = number(value)?,
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
        let drifts: Vec<String> = self.drifts_ppm.iter().map(i64::to_string).collect();
        writeln!(f, "policies: {}", self.policies.join(" "))?;
        writeln!(f, "keys: {}", self.keys)?;
        writeln!(f, "start: {}", self.start)?;
        writeln!(f, "drifts-ppm: {}", drifts.join(" "))?;
        writeln!(f, "skew: {}", self.skew)?;
        writeln!(f, "keep-longer: {}", self.keep_longer)?;
        writeln!(f, "linger: {}", self.linger)?;
        writeln!(f, "patience: {}", self.patience)?;
        writeln!(f, "most-wait: {}", self.most_wait)?;
        writeln!(f, "most-waiting: {}", self.most_waiting)?;
        writeln!(f, "most-slices: {}", self.most_slices)?;
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
            skew: 0,
            keep_longer: 10_000_000,
            linger: 100_000,
            patience: 1_000_000_000,
            most_wait: 1_000_000_000,
            most_waiting: 1_000_000,
            most_slices: 64,
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
