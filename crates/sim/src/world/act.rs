//! What callers ask for.

use std::fmt;

use anyhow::bail;
use tidegate_gate::Depth;

use super::parameter::number;

/// What a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Units.
    Take(u64),
    /// Units for a request with a class, a measured signal and random bits.
    Ranked {
        /// The units.
        units: u64,
        /// The class; the last class is the most important one.
        class: usize,
        /// The signal, in millionths.
        signal_ppm: u32,
        /// The random bits.
        draw: u32,
    },
    /// Whether units would be granted.
    Peek(u64),
    /// A lease of this number, or a connection of this owner.
    Acquire(u64),
    /// The renewal of a lease, or of an owner.
    Heartbeat(u64),
    /// The number of an owner's connections.
    Count(u64, u64),
    /// The release of a lease, or the end of one of an owner's connections.
    Release(u64),
    /// Units come back.
    Refund(u64),
    /// Units that the request of this number holds for so many µs, until it is known what it cost.
    Reserve {
        /// The number of the reservation.
        id: u64,
        /// The estimate.
        units: u64,
        /// For how long, in µs.
        span: u64,
    },
    /// What an earlier reservation has really cost that was granted: its index, and the units; 0 releases it. Its caller
    /// forgets it if the index is below 8.
    Finish(usize, u64),
    /// What a reservation of this number has really cost, whether it was ever granted or not.
    Commit(u64, u64),
    /// Units for a holder. The holder gives back some of its last units.
    Borrow {
        /// The holder.
        holder: u64,
        /// The units that it wants.
        wants: u64,
        /// The units of the last grant that it has not spent.
        left: u64,
    },
    /// The load of a reporter, in the part of this long ago.
    Report {
        /// The units that passed.
        admitted: u64,
        /// The units that did not pass.
        suppressed: u64,
        /// How long ago, in µs.
        age: u64,
    },
    /// The key's limits are cleared that count by this depth or by more of the key.
    Reset(Depth),
    /// The key is blocked for so many µs; 0 ends the block.
    Block(u64),
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Take(units) => write!(f, "take {units}"),
            Self::Ranked { units, class, signal_ppm, draw } => {
                write!(f, "ranked {units} {class} {signal_ppm} {draw}")
            }
            Self::Peek(units) => write!(f, "peek {units}"),
            Self::Acquire(lease) => write!(f, "acquire {lease}"),
            Self::Heartbeat(lease) => write!(f, "heartbeat {lease}"),
            Self::Count(owner, count) => write!(f, "count {owner} {count}"),
            Self::Release(lease) => write!(f, "release {lease}"),
            Self::Refund(units) => write!(f, "refund {units}"),
            Self::Reserve { id, units, span } => write!(f, "reserve {id} {units} {span}"),
            Self::Finish(index, actual) => write!(f, "finish {index} {actual}"),
            Self::Commit(id, actual) => write!(f, "commit {id} {actual}"),
            Self::Borrow { holder, wants, left } => write!(f, "borrow {holder} {wants} {left}"),
            Self::Report { admitted, suppressed, age } => {
                write!(f, "report {admitted} {suppressed} {age}")
            }
            Self::Reset(Depth::Whole) => f.write_str("reset"),
            Self::Reset(Depth::Parts(parts)) => write!(f, "reset {parts}"),
            Self::Block(span) => write!(f, "block {span}"),
        }
    }
}

pub(super) fn read_act(words: &[&str]) -> anyhow::Result<Act> {
    Ok(match *words {
        ["take", units] => Act::Take(number(units)?),
        ["ranked", units, class, signal, draw] => Act::Ranked {
            units: number(units)?,
            class: number(class)?,
            signal_ppm: number(signal)?,
            draw: number(draw)?,
        },
        ["peek", units] => Act::Peek(number(units)?),
        ["acquire", lease] => Act::Acquire(number(lease)?),
        ["heartbeat", lease] => Act::Heartbeat(number(lease)?),
        ["count", owner, count] => Act::Count(number(owner)?, number(count)?),
        ["release", lease] => Act::Release(number(lease)?),
        ["refund", units] => Act::Refund(number(units)?),
        ["reserve", id, units, span] => {
            Act::Reserve { id: number(id)?, units: number(units)?, span: number(span)? }
        }
        ["finish", index, actual] => Act::Finish(number(index)?, number(actual)?),
        ["commit", id, actual] => Act::Commit(number(id)?, number(actual)?),
        ["borrow", holder, wants, left] => {
            Act::Borrow { holder: number(holder)?, wants: number(wants)?, left: number(left)? }
        }
        ["report", admitted, suppressed, age] => Act::Report {
            admitted: number(admitted)?,
            suppressed: number(suppressed)?,
            age: number(age)?,
        },
        ["reset"] => Act::Reset(Depth::Whole),
        ["reset", parts] => Act::Reset(Depth::Parts(number(parts)?)),
        ["block", span] => Act::Block(number(span)?),
        _ => bail!("expected what is asked for, such as `take 1`, found `{}`", words.join(" ")),
    })
}
