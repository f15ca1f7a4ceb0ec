//! The rule of GCRA in whole numbers. For a rate of u tokens in p µs, a token weighs p, and u flow off each
//! microsecond. Nothing is divided, so nothing is rounded.

use crate::Rate;

/// The answer to a request: granted, or the wait until the first microsecond at which it would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// `None` if the request is granted.
    pub wait: Option<u64>,
}

impl Answer {
    pub const fn is_granted(self) -> bool {
        self.wait.is_none()
    }
}

pub struct Exact {
    capacity: i128,
    units: i128,
    period: i128,
    /// The time at which all granted tokens have flowed off, in 1/u µs.
    theoretical_arrival: i128,
    granted: u64,
}

impl Exact {
    pub fn new(rate: Rate) -> Self {
        Self {
            capacity: rate.capacity.into(),
            units: rate.units.into(),
            period: rate.period_us.into(),
            theoretical_arrival: 0,
            granted: 0,
        }
    }

    pub fn decide(&mut self, now: u64, cost: u32) -> Answer {
        let answer = self.peek(now, cost);
        if answer.is_granted() {
            self.take(now, cost);
        }
        answer
    }

    /// The answer of the rule. It takes nothing.
    pub fn peek(&self, now: u64, cost: u32) -> Answer {
        let wait = u64::try_from(self.first_at(cost) - i128::from(now)).unwrap_or_default();
        Answer { wait: (wait > 0).then_some(wait) }
    }

    /// The distance between now and the first microsecond with room, in either direction.
    pub fn off_by(&self, now: u64, cost: u32) -> u64 {
        u64::try_from((self.first_at(cost) - i128::from(now)).abs()).unwrap()
    }

    /// The first microsecond with room for the cost. A cost is at most the capacity, so a full bucket always has
    /// room.
    fn first_at(&self, cost: u32) -> i128 {
        let too_much = self.theoretical_arrival + (i128::from(cost) - self.capacity) * self.period;
        -(-too_much).div_euclid(self.units) // rounded up, because a microsecond earlier has no room
    }

    /// Takes the cost, with or without room.
    pub fn take(&mut self, now: u64, cost: u32) {
        let now = i128::from(now) * self.units;
        self.theoretical_arrival =
            self.theoretical_arrival.max(now) + i128::from(cost) * self.period;
        self.granted += u64::from(cost);
    }

    /// The number of tokens granted in all.
    pub const fn granted(&self) -> u64 {
        self.granted
    }
}
