//! What is asked, as it is drawn.

use arbitrary::Arbitrary;
use tidegate_gate::{Class, Draw, Id, Share};

use crate::{Amount, Parameters};

#[derive(Arbitrary, Clone, Debug)]
pub enum Step {
    Do(Time, What),
    /// Once the state's time to live is over.
    AfterAll(Time, What),
    /// Another limit has refused.
    Refused(Time, Ask),
    /// Writes into the state; what no decisions of the policy can have left is undone.
    Foreign([(u8, Amount); 3]),
    /// The limits are edited; what was used is kept in units, or as a share.
    Edit {
        proportional: bool,
        limits: Box<[Parameters; 3]>,
    },
}

/// From the last time.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Time {
    Ahead(Amount),
    Back(Amount),
    To(Amount),
    /// To just before, or at, the moment that the last refusal named.
    Retry {
        early: bool,
    },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum What {
    Decide(Ask),
    Peek(Ask),
    Refund(Amount),
    Settle(Granted, [Amount; 2]),
    Heartbeat(Who),
    Count(Who, Amount),
    Release(Who),
    Budget(Who, Amount, Option<(Granted, Amount)>),
    Report(Option<Granted>, [Amount; 2]),
}

/// A time that is named.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Granted {
    /// That of the last grant.
    Last,
    /// So much later than now.
    Later(Amount),
    At(Amount),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Ask {
    pub cost: Cost,
    pub who: Who,
    class: u8,
    signal: Option<u32>,
    draw: u32,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Cost {
    Any(Amount),
    /// As much below the most that can be granted.
    Most(u8),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Who {
    /// Few, so that they meet again; alike in one half or the other.
    OfFew(u8),
    Any([u64; 2]),
}

impl Ask {
    /// Often the one that is never shed, or next to it.
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
