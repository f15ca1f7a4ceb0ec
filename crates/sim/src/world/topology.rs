//! Who asks whom.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result};

use super::parameter::Parameter;

/// Which nodes and authorities a world has, and where their states are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Hosts, each with an authority, share a store that compares and swaps.
    Hosts,
    /// Nodes ask one table in memory, over the network.
    Table,
    /// Isolates ask objects, as in the Worker. Each object is the only writer of its own storage.
    Objects,
    /// Nodes ask one authority by [`wire`](tidegate_tier::wire) alone. Others may write into its store.
    Wire,
    /// Hosts share a store that goes away, and each goes on by its share of the limits.
    Outage,
}

impl Topology {
    /// All topologies and their names.
    pub const ALL: [(Self, &str); 5] = [
        (Self::Hosts, "hosts"),
        (Self::Table, "table"),
        (Self::Objects, "objects"),
        (Self::Wire, "wire"),
        (Self::Outage, "outage"),
    ];
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(topology, _)| topology == self);
        f.write_str(name.map_or("", |(_, name)| name))
    }
}

impl FromStr for Topology {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text);
        let names = || Self::ALL.map(|(_, name)| format!("`{name}`")).join(", ");
        Ok(found.with_context(|| format!("expected one of {}, found `{text}`", names()))?.0)
    }
}

impl Parameter for Topology {
    fn read(text: &str) -> Result<Self> {
        text.parse()
    }

    fn write(&self) -> String {
        self.to_string()
    }
}
