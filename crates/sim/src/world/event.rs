//! What happens in a world, one event a step. An event that finds nothing to happen to does nothing, so a
//! script from which events were removed is still a script.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};

use super::act::{Act, read_act};

/// An event. Some pick one of several things by an index, which counts modulo their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time passes, in µs.
    Advance(u64),
    /// A caller asks a node for an operation on a key.
    Ask {
        /// The node.
        node: usize,
        /// The key.
        key: usize,
        /// The operation.
        act: Act,
    },
    /// A node decides and sends a swap.
    Poll(usize),
    /// The storage executes a part of a swap that is under way to it: the records of one partition.
    Execute(usize),
    /// The storage executes a part of a swap again.
    Repeat(usize),
    /// The reply to a part arrives.
    Reply(usize),
    /// A part is lost on its way to the storage.
    LoseCall(usize),
    /// The reply to a part is lost.
    LoseReply(usize),
    /// A node waits no longer for a swap.
    Deadline(usize),
    /// A node gives up all operations that wait and are not under way.
    GiveUp(usize),
    /// From now on the storage refuses to write.
    Refuse,
    /// The storage writes again.
    Accept,
    /// A node gets the other revision of the policies.
    Reload(usize),
    /// The storage loses everything.
    Flush,
    /// Another program overwrites a record.
    Corrupt(usize),
    /// Somebody removes what other programs wrote.
    Repair,
    /// A node loses its memory.
    Crash(usize),
    /// A node stops, and goes on after so many µs.
    Stop(usize, u64),
    /// A caller that waits goes away.
    Leave(usize),
    /// A node's clock is set, by so many µs. The storage's clock follows the last node's.
    Set(usize, i64),
    /// Nothing fails until every operation is answered.
    Calm,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Advance(us) => write!(f, "advance {us}"),
            Self::Ask { node, key, act } => write!(f, "ask {node} {key} {act}"),
            Self::Poll(node) => write!(f, "poll {node}"),
            Self::Execute(index) => write!(f, "execute {index}"),
            Self::Repeat(index) => write!(f, "repeat {index}"),
            Self::Reply(index) => write!(f, "reply {index}"),
            Self::LoseCall(index) => write!(f, "lose-call {index}"),
            Self::LoseReply(index) => write!(f, "lose-reply {index}"),
            Self::Deadline(index) => write!(f, "deadline {index}"),
            Self::GiveUp(node) => write!(f, "give-up {node}"),
            Self::Refuse => f.write_str("refuse"),
            Self::Accept => f.write_str("accept"),
            Self::Reload(node) => write!(f, "reload {node}"),
            Self::Flush => f.write_str("flush"),
            Self::Corrupt(record) => write!(f, "corrupt {record}"),
            Self::Repair => f.write_str("repair"),
            Self::Crash(node) => write!(f, "crash {node}"),
            Self::Stop(node, span) => write!(f, "stop {node} {span}"),
            Self::Leave(index) => write!(f, "leave {index}"),
            Self::Set(clock, by) => write!(f, "set {clock} {by}"),
            Self::Calm => f.write_str("calm"),
        }
    }
}

impl FromStr for Event {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        Ok(match words[..] {
            ["advance", us] => Self::Advance(number(us)?),
            ["ask", node, key, ref act @ ..] => {
                Self::Ask { node: number(node)?, key: number(key)?, act: read_act(act)? }
            }
            ["poll", node] => Self::Poll(number(node)?),
            ["execute", index] => Self::Execute(number(index)?),
            ["repeat", index] => Self::Repeat(number(index)?),
            ["reply", index] => Self::Reply(number(index)?),
            ["lose-call", index] => Self::LoseCall(number(index)?),
            ["lose-reply", index] => Self::LoseReply(number(index)?),
            ["deadline", index] => Self::Deadline(number(index)?),
            ["give-up", node] => Self::GiveUp(number(node)?),
            ["refuse"] => Self::Refuse,
            ["accept"] => Self::Accept,
            ["reload", node] => Self::Reload(number(node)?),
            ["flush"] => Self::Flush,
            ["corrupt", record] => Self::Corrupt(number(record)?),
            ["repair"] => Self::Repair,
            ["crash", node] => Self::Crash(number(node)?),
            ["stop", node, span] => Self::Stop(number(node)?, number(span)?),
            ["leave", index] => Self::Leave(number(index)?),
            ["set", clock, by] => Self::Set(number(clock)?, number(by)?),
            ["calm"] => Self::Calm,
            _ => bail!("expected an event such as `poll 0`, found `{line}`"),
        })
    }
}

pub(super) fn number<N: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    text: &str,
) -> anyhow::Result<N> {
    text.parse().with_context(|| format!("expected a number, found `{text}`"))
}
