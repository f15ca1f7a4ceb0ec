//! What a world is made of.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};
use tidegate_gate::Micros;
use tidegate_tier::authority;

use super::clock::{Clock, Ticks};
use super::parameter::Parameter;
use super::topology::Topology;

macro_rules! setup {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $usual:expr,)*) => {
        /// The parameters of a world. Spans are in µs. A topology uses those that concern it.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Setup {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Default for Setup {
            /// A world without faults.
            fn default() -> Self {
                Self { $($field: $usual,)* }
            }
        }

        impl Setup {
            fn set(&mut self, name: &str, value: &str) -> anyhow::Result<()> {
                match name {
                    $(stringify!($field) => self.$field = Parameter::read(value)?,)*
                    _ => bail!("expected a parameter such as `keys: 2`, found `{name}`"),
                }
                Ok(())
            }
        }

        impl fmt::Display for Setup {
            /// Writes the parameters that differ from those of a world without faults.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let usual = Self::default();
                $(if self.$field != usual.$field {
                    writeln!(f, "{}: {}", stringify!($field), self.$field.write())?;
                })*
                Ok(())
            }
        }
    };
}

setup! {
    /// Who asks whom.
    topology: Topology = Topology::Hosts,
    /// The policies, by name.
    policies: Vec<String> = vec!["window".into()],
    /// The number of keys of each policy.
    keys: usize = 1,
    /// The number of nodes.
    nodes: usize = 1,
    /// The number of objects. Each owns some partitions.
    objects: usize = 1,
    /// The time at which the world begins.
    start: u64 = 1_700_000_000_000_000,
    /// By how many millionths each clock is too fast; 0 for those that are left out. Hosts: the clocks of the nodes, and
    /// then that of the storage. Objects: their clocks.
    drifts_ppm: Vec<i64> = vec![],
    /// By how much each of these clocks is ahead when the world begins, in µs; 0 for those that are left out.
    ahead: Vec<i64> = vec![],
    /// By how many millionths each node's monotonic clock is too fast; 0 for those that are left out.
    ticks_ppm: Vec<i64> = vec![],
    /// Whether all hosts ask the authority of the first one, as isolates in front of one host do, and not their own.
    asks_first: bool = false,
    /// Whether each node asks its [`NodeCache`](tidegate_tier::NodeCache) first.
    has_caches: bool = true,
    /// [`cache::Options::most_keys`](tidegate_tier::cache::Options::most_keys)
    most_keys: usize = 64,
    /// How far a clock may be off.
    skew: u64 = 0,
    /// [`Options::ttl_margin`](tidegate_tier::authority::Options::ttl_margin)
    ttl_margin: u64 = 10_000_000,
    /// How long a message may be under way; after this span, a swap that was sent is no longer executed.
    linger: u64 = 100_000,
    /// [`Options::patience`](tidegate_tier::authority::Options::patience)
    patience: u64 = 1_000_000_000,
    /// [`Options::most_wait`](tidegate_tier::authority::Options::most_wait)
    most_wait: u64 = 1_000_000_000,
    /// [`Options::most_waiting`](tidegate_tier::authority::Options::most_waiting)
    most_waiting: usize = 1_000_000,
    /// [`Options::most_records`](tidegate_tier::authority::Options::most_records)
    most_records: usize = 64,
    /// [`Options::remembered`](tidegate_tier::authority::Options::remembered)
    remembered: usize = 1 << 20,
    /// Whether nodes have a timer, and report when it is time. The others report when they are asked.
    has_timers: bool = false,
    /// Whether callers of accounts that nodes report on ask for no more than the limit.
    is_within: bool = false,
    /// Whether the nodes tell their authority the time.
    tells_time: bool = true,
    /// Whether the clocks and the network are good enough for the bounds of the limits to hold exactly: an
    /// expired record then equals a fresh one at every node, and no clock is off by a period.
    is_bounded: bool = true,
    /// [`Options::is_only_writer`](tidegate_tier::authority::Options::is_only_writer), of an object
    is_only_writer: bool = true,
    /// [`NodeOptions::deadline`](tidegate_tier::wire::NodeOptions::deadline)
    deadline: u64 = 1_000_000,
    /// [`NodeOptions::most`](tidegate_tier::wire::NodeOptions::most)
    most: usize = 1_000,
    /// [`NodeOptions::most_of_a_group`](tidegate_tier::wire::NodeOptions::most_of_a_group)
    most_of_a_group: usize = 1 << 12,
    /// [`NodeOptions::most_under_way`](tidegate_tier::wire::NodeOptions::most_under_way)
    most_under_way: usize = 1,
    /// [`NodeOptions::most_operations`](tidegate_tier::wire::NodeOptions::most_operations)
    most_operations: usize = 64,
    /// [`NodeOptions::most_bytes`](tidegate_tier::wire::NodeOptions::most_bytes)
    most_bytes: usize = 10_000,
    /// [`AuthorityOptions::bytes`](tidegate_tier::wire::AuthorityOptions::bytes)
    bytes: usize = 1_000_000,
}

impl Setup {
    /// Whether nodes may answer by themselves under every policy of this world.
    pub(super) fn lets_nodes_answer(&self) -> bool {
        self.has_caches && self.policies.iter().all(|name| lets_answer(name))
    }

    /// The options of an authority.
    pub(super) fn authority(&self, is_only_writer: bool) -> authority::Options {
        authority::Options {
            store: 0,
            shares: None,
            remembered: self.remembered,
            is_only_writer,
            most_waiting: self.most_waiting,
            most_records: self.most_records,
            ttl_margin: Micros(self.ttl_margin),
            patience: Micros(self.patience),
            most_wait: Micros(self.most_wait),
            seed: self.start,
        }
    }

    /// A clock by its number.
    pub(super) fn clock(&self, number: usize) -> Clock {
        let of = |all: &[i64]| all.get(number).copied().unwrap_or(0);
        let mut clock = Clock::new(of(&self.drifts_ppm), self.skew);
        clock.set(of(&self.ahead));
        clock
    }

    /// The monotonic clock of a node that starts now.
    pub(super) fn ticks(&self, node: usize, now: u64) -> Ticks {
        Ticks { from: now, ppm: self.ticks_ppm.get(node).copied().unwrap_or(0) }
    }
}

impl FromStr for Setup {
    type Err = anyhow::Error;

    /// Reads the lines with a colon. Parameters that are left out are those of a world without faults.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut setup = Self::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            setup.set(name.trim(), value.trim()).with_context(|| format!("`{name}`"))?;
        }
        Ok(setup)
    }
}

/// Whether nodes may answer by themselves under a policy.
pub(super) fn lets_answer(policy: &str) -> bool {
    policy.starts_with("lent") || policy.starts_with("remembered")
}
