//! Who asks whom.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;

/// Which authority decides what a node does not answer by itself. Every node has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// The node's own, as in hosts that share a store.
    Own,
    /// That of the first node, as in isolates in front of one host.
    First,
}

impl Topology {
    /// The node whose authority decides for this node.
    pub(super) const fn authority_of(self, node: usize) -> usize {
        match self {
            Self::Own => node,
            Self::First => 0,
        }
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own => "own",
            Self::First => "first",
        })
    }
}

impl FromStr for Topology {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Ok(match text {
            "own" => Self::Own,
            "first" => Self::First,
            _ => bail!("expected `own` or `first`, found `{text}`"),
        })
    }
}
