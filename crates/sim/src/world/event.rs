//! What happens in a world, one event a step. An event that finds nothing to happen to does nothing, and so does one that
//! does not concern the topology. So a script from which events were removed is still a script.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;

use super::act::{Act, read_act};
use super::parameter::number;

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
    /// The network repeats a message, or the storage executes a part of a swap again.
    Repeat(message: usize) = "repeat",
    /// A message is lost.
    Lose(message: usize) = "lose",
    /// A message is lost, and the node learns that no reply will come.
    Break(message: usize) = "break",
    /// A byte of a message changes.
    Corrupt(message: usize, place: usize) = "corrupt",
    /// A host or an object decides what waits, and sends a swap.
    Poll(authority: usize) = "poll",
    /// The storage executes a swap that is under way to it. At hosts: a part of it, which has the records of one partition.
    Execute(swap: usize) = "execute",
    /// The host or the object learns what came of a swap.
    Reply(swap: usize) = "reply",
    /// A part of a swap is lost on its way to the storage.
    LoseCall(part: usize) = "lose-call",
    /// The reply to a part of a swap is lost.
    LoseReply(part: usize) = "lose-reply",
    /// A host waits no longer for a swap.
    Deadline(swap: usize) = "deadline",
    /// The object is told that a swap failed. Storage wrote it if it had got to it.
    Fail(swap: usize) = "fail",
    /// A host gives up all operations that wait and are not under way.
    GiveUp(node: usize) = "give-up",
    /// From now on a storage refuses to write; in an outage it answers nobody.
    Refuse(storage: usize) = "refuse",
    /// A storage writes again, or answers again.
    Accept(storage: usize) = "accept",
    /// A host or an object loses its memory. Of an object's swaps under way, those are written whose bit is set.
    Crash(authority: usize, written: u64) = "crash",
    /// An object starts again with the other revision of its policies, after it has written.
    Edit(object: usize) = "edit",
    /// The storage deletes a state that has expired.
    Expire(record: usize) = "expire",
    /// The storage loses everything.
    Flush() = "flush",
    /// Another program overwrites a record.
    Overwrite(record: usize) = "overwrite",
    /// Somebody removes what other programs wrote.
    Repair() = "repair",
    /// A node starts again, under another id.
    Restart(node: usize) = "restart",
    /// A node gets the other revision of the policies.
    Reload(node: usize) = "reload",
    /// A node stops, and goes on after so many µs.
    Stop(node: usize, span: u64) = "stop",
    /// A caller that waits goes away.
    Leave(caller: usize) = "leave",
    /// The clock of a host or an object is set, by so many µs. The storage's clock follows the last host's.
    Set(clock: usize, by: i64) = "set",
    /// Nothing fails until every operation is answered.
    Calm() = "calm",
}
