//! What happens in a world of objects, one event a step. An event that finds nothing to happen to does nothing.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;

use super::super::act::{Act, read_act};
use super::super::event::number;

macro_rules! events {
    ($($(#[$doc:meta])* $event:ident($($part:ident: $kind:ty),*) = $word:literal,)*) => {
        /// An event. Some pick one of several things by an index, which counts modulo their number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Event {
            /// A caller asks a node for an operation on a key.
            Ask {
                /// The node.
                node: usize,
                /// The key.
                key: usize,
                /// The operation.
                act: Act,
            },
            $($(#[$doc])* $event($($kind),*),)*
        }

        impl fmt::Display for Event {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::Ask { node, key, act } => write!(f, "ask {node} {key} {act}"),
                    $(Self::$event($($part),*) => {
                        f.write_str($word)?;
                        $(write!(f, " {}", $part)?;)*
                        Ok(())
                    })*
                }
            }
        }

        impl FromStr for Event {
            type Err = anyhow::Error;

            fn from_str(line: &str) -> anyhow::Result<Self> {
                let words: Vec<&str> = line.split_whitespace().collect();
                Ok(match words[..] {
                    ["ask", node, key, ref act @ ..] => {
                        Self::Ask { node: number(node)?, key: number(key)?, act: read_act(act)? }
                    }
                    $([$word, $($part),*] => Self::$event($(number($part)?),*),)*
                    _ => bail!("expected an event such as `poll 0`, found `{line}`"),
                })
            }
        }
    };
}

events! {
    /// Time passes, in µs.
    Advance(us: u64) = "advance",
    /// A node sends its questions.
    Send(node: usize) = "send",
    /// A message arrives.
    Deliver(message: usize) = "deliver",
    /// The network repeats a message.
    Repeat(message: usize) = "repeat",
    /// A message is lost.
    Lose(message: usize) = "lose",
    /// A message is lost, and the node learns that no reply will come.
    Break(message: usize) = "break",
    /// A byte of a message changes.
    Corrupt(message: usize, place: usize) = "corrupt",
    /// An object decides what waits, and writes.
    Poll(object: usize) = "poll",
    /// Storage writes a swap that is under way.
    Execute(swap: usize) = "execute",
    /// The object learns what came of a swap.
    Finish(swap: usize) = "finish",
    /// The object is told that a swap failed. Storage wrote it if it had got to it.
    Fail(swap: usize) = "fail",
    /// From now on the storage of an object refuses to write.
    Refuse(object: usize) = "refuse",
    /// The storage of an object writes again.
    Accept(object: usize) = "accept",
    /// An object loses its memory. Of its swaps under way, those are written whose bit is set.
    Crash(object: usize, written: u64) = "crash",
    /// An object starts again with the other revision of its policies, after it has written.
    Edit(object: usize) = "edit",
    /// Storage deletes a state that has expired.
    Expire(record: usize) = "expire",
    /// A node starts again, under another id.
    Restart(node: usize) = "restart",
    /// A node starts again with the other revision of the policies.
    Reload(node: usize) = "reload",
    /// A node stops, and goes on after so many µs.
    Stop(node: usize, span: u64) = "stop",
    /// The clock of an object is set, by so many µs.
    Set(object: usize, by: i64) = "set",
    /// Nothing fails until every operation is answered.
    Calm() = "calm",
}
