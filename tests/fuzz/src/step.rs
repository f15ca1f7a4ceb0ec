//! Steps, as the fuzzer draws them.

use arbitrary::Arbitrary;
use tidegate_gate::{Class, Draw, Id, Micros, Share};

use crate::{Amount, Parameters};

#[derive(Arbitrary, Clone, Debug)]
pub enum Step {
    Do(Time, What),
    /// An operation after the state has expired.
    AfterAll(Time, What),
    /// A request that another limit has refused.
    Refused(Time, Ask),
    /// Writes into the state. A write that the limits do not accept is undone.
    Foreign([(u8, Amount); 3]),
    /// An edit of the limits, which keeps the used units or their share.
    Edit {
        proportional: bool,
        limits: Box<[Parameters; 3]>,
    },
}

/// A time, relative to the last one.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Time {
    Ahead(Amount),
    Back(Amount),
    To(Amount),
    /// The time that the last refusal named, or the microsecond before.
    Retry {
        early: bool,
    },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum What {
    Decide(Ask),
    Peek(Ask),
    Refund(Amount),
    RefundOf(Granted, [Amount; 2]),
    Charge(Amount),
    Commit(Who, Amount),
    Heartbeat(Who),
    Count(Who, Amount),
    Release(Who),
    Budget(Who, Amount, Option<(Granted, Amount)>),
    Report(Option<Granted>, [Amount; 2]),
}

/// The time that an operation names.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Granted {
    /// The time of the last grant.
    Last,
    /// A time this much later than now.
    Later(Amount),
    At(Amount),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Ask {
    pub cost: Cost,
    pub who: Who,
    hold: Option<Amount>,
    class: u8,
    signal: Option<u32>,
    draw: u32,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Cost {
    Any(Amount),
    /// A cost this much below the largest one that can be granted.
    Most(u8),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Who {
    /// One of few identities, so that they repeat. Some are equal in one half.
    OfFew(u8),
    Any([u64; 2]),
}

impl Ask {
    /// For how long the request reserves its cost.
    pub fn hold(&self) -> Micros {
        Micros(self.hold.map_or(0, Amount::value))
    }

    /// Often the class that is never shed, or one next to it.
    pub fn class(&self) -> Class {
        match self.class {
            u8::MAX => Class::CRITICAL,
            254 => Class(u16::MAX - 1),
            class => Class(class.into()),
        }
    }

    pub fn signal(&self) -> Option<Share> {
        self.signal.and_then(|signal| Share::from_ppm(signal % 1_000_001))
    }

    pub fn draw(&self) -> Draw {
        Draw(self.draw)
    }
}

impl Who {
    pub fn id(self) -> Id {
        match self {
            Self::OfFew(which) if which % 2 == 0 => Id([u64::from(which % 32), 0]),
            Self::OfFew(which) => Id([0, u64::from(which % 32)]),
            Self::Any(words) => Id(words),
        }
    }
}
