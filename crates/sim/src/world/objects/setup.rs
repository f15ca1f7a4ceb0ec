//! What a world of objects is made of.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};

use super::super::draw::Draws;
use super::super::event::number;
use super::super::places::Places;
use super::policies::all;

/// The most by which a clock of a bounded world is off, in µs.
const MOST_SKEW: u64 = 200_000;

macro_rules! setup {
    ($($(#[$doc:meta])* $field:ident: $default:expr,)*) => {
        /// The parameters of a world of objects. Spans are in µs.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Setup {
            /// The policies, by name.
            pub policies: Vec<String>,
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Setup {
            fn get(&mut self, name: &str, value: &str) -> anyhow::Result<()> {
                match name {
                    "policies" => {
                        self.policies = value.split_whitespace().map(String::from).collect();
                    }
                    $(stringify!($field) => self.$field = number(value)?,)*
                    _ => bail!("expected a parameter such as `keys: 2`, found `{name}`"),
                }
                Ok(())
            }
        }

        impl fmt::Display for Setup {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                writeln!(f, "policies: {}", self.policies.join(" "))?;
                $(writeln!(f, "{}: {}", stringify!($field), self.$field)?;)*
                Ok(())
            }
        }

        impl Default for Setup {
            /// A world without faults.
            fn default() -> Self {
                Self { policies: vec!["ahead".into()], $($field: $default,)* }
            }
        }
    };
}

setup! {
    /// The number of objects. Each owns some partitions.
    objects: 1,
    /// The number of nodes.
    nodes: 1,
    /// The number of keys of each policy.
    keys: 1,
    /// The time at which the world begins.
    start: 1_700_000_000_000_000,
    /// By how many millionths the clock of the first object is too fast. The second's is as much too slow.
    drift_ppm: 0,
    /// By how many millionths the monotonic clock of the first node is too fast. The second's is as much too slow.
    ticks_ppm: 0,
    /// How far a clock may be off.
    skew: 0,
    /// [`Options::ttl_margin`](tidegate_tier::authority::Options::ttl_margin)
    ttl_margin: 10_000_000,
    /// How long a message may be under way.
    linger: 1_000_000,
    /// [`NodeOptions::deadline`](tidegate_tier::wire::NodeOptions::deadline)
    deadline: 1_000_000,
    /// [`NodeOptions::most`](tidegate_tier::wire::NodeOptions::most)
    most: 1_000,
    /// [`NodeOptions::most_under_way`](tidegate_tier::wire::NodeOptions::most_under_way)
    most_under_way: 1,
    /// [`NodeOptions::most_operations`](tidegate_tier::wire::NodeOptions::most_operations)
    most_operations: 64,
    /// [`NodeOptions::most_bytes`](tidegate_tier::wire::NodeOptions::most_bytes)
    most_bytes: 10_000,
    /// [`local::Options::most_keys`](tidegate_tier::cache::Options::most_keys)
    most_keys: 64,
    /// [`AuthorityOptions::bytes`](tidegate_tier::wire::AuthorityOptions::bytes)
    bytes: 1_000_000,
    /// [`Options::most_waiting`](tidegate_tier::authority::Options::most_waiting)
    most_waiting: 1_000,
    /// [`Options::most_records`](tidegate_tier::authority::Options::most_records)
    most_records: 64,
    /// [`Options::most_wait`](tidegate_tier::authority::Options::most_wait)
    most_wait: 1_000_000_000,
    /// [`Options::patience`](tidegate_tier::authority::Options::patience)
    patience: 1_000_000_000,
    /// [`Options::remembered`](tidegate_tier::authority::Options::remembered)
    remembered: 1_000_000,
}

impl Setup {
    /// A world for a seed.
    pub(super) fn draw(draws: &mut Draws) -> anyhow::Result<Self> {
        let known: Vec<&str> = all().map(|(name, _)| name).collect();
        let ahead: Vec<&str> =
            known.iter().copied().filter(|name| name.starts_with("ahead")).collect();
        let mut policies: Vec<String> = Vec::new();
        for _ in 0..=draws.below(3) {
            let name = if draws.below(3) > 0 { draws.one_of(&ahead) } else { draws.one_of(&known) };
            if !policies.iter().any(|other| other == name) {
                policies.push(name.into());
            }
        }
        let mut setup = Self {
            policies,
            objects: 1 + draws.below(2),
            nodes: 1 + draws.below(3),
            keys: 1 + draws.below(3),
            start: 1_700_000_000_000_000 + draws.below(10_000_000),
            drift_ppm: draws.one_of(&[0, 0, 200, 20_000]),
            ticks_ppm: draws.one_of(&[0, 500]),
            skew: draws.one_of(&[0, 1_000, MOST_SKEW, MOST_SKEW, 20_000_000]),
            ttl_margin: 0,
            linger: draws.one_of(&[10_000, 100_000, 3_000_000]),
            deadline: draws.one_of(&[20_000, 1_000_000, 1_000_000, 10_000_000]),
            most: draws.one_of(&[4, 1_000, 1_000]),
            most_under_way: draws.one_of(&[1, 3, 8]),
            // the world sees an answer once all of its question have one
            most_operations: 1,
            most_bytes: draws.one_of(&[80, 10_000, 10_000]),
            most_keys: draws.one_of(&[0, 1, 64, 64]),
            bytes: draws.one_of(&[2_000, 1_000_000, 1_000_000]),
            most_waiting: draws.one_of(&[3, 1_000, 1_000]),
            most_records: draws.one_of(&[1, 3, 64]),
            most_wait: draws.one_of(&[100_000, 1_000_000_000, 1_000_000_000]),
            patience: draws.one_of(&[200_000, 1_000_000_000]),
            remembered: draws.one_of(&[0, 900, 1_000_000, 1_000_000]),
        };
        if setup.is_bounded() {
            let places = setup.places()?;
            // operations are decided at a time that is up to half a period old, by a clock that is off, and
            // a clock that drifts is slower by so much over the life of a state
            let period = places.longest_period();
            setup.ttl_margin = 4 * setup.skew + period + setup.linger + 1_000;
        }
        Ok(setup)
    }

    pub(super) fn places(&self) -> anyhow::Result<Places> {
        let all: Vec<_> = all().collect();
        Places::of(&self.policies, usize::try_from(self.keys)?, &all)
    }

    /// Whether no clock is off by so much that a state may expire early.
    pub(super) const fn is_bounded(&self) -> bool {
        self.skew <= MOST_SKEW
    }
}

impl FromStr for Setup {
    type Err = anyhow::Error;

    /// Reads the lines with a colon. Parameters that are left out are those of a world without faults.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut setup = Self::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            setup.get(name.trim(), value.trim()).with_context(|| format!("`{name}`"))?;
        }
        Ok(setup)
    }
}
