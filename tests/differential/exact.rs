//! The rule of GCRA in whole numbers. A token weighs p, and u of that flow off each microsecond,
//! the rate being u tokens in p µs: nothing is divided, so nothing is rounded.

use crate::Rate;

/// Granted, or the first microsecond from now at which it will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// None if granted.
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
    /// When all that was granted will have flowed off, in 1/u µs.
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

    /// What the rule says; takes nothing.
    pub fn peek(&self, now: u64, cost: u32) -> Answer {
        let too_much = self.after(now, cost) - self.now(now) - self.capacity * self.period;
        if too_much <= 0 {
            return Answer { wait: None };
        }
        let wait = (too_much + self.units - 1) / self.units; // up: a microsecond sooner is too soon
        Answer { wait: Some(u64::try_from(wait).unwrap()) }
    }

    /// Takes, whether there is room or not.
    pub fn take(&mut self, now: u64, cost: u32) {
        self.theoretical_arrival = self.after(now, cost);
        self.granted += u64::from(cost);
    }

    /// Tokens granted in all.
    pub const fn granted(&self) -> u64 {
        self.granted
    }

    fn after(&self, now: u64, cost: u32) -> i128 {
        self.theoretical_arrival.max(self.now(now)) + i128::from(cost) * self.period
    }

    fn now(&self, now: u64) -> i128 {
        i128::from(now) * self.units
    }
}
