//! The other crates, with the time as an argument.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::Duration;

use governor::clock::{Clock as _, FakeRelativeClock};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use ratelimit::{Builder, Clock, Ratelimiter, TryWaitError};

use crate::exact::Answer;
use crate::{Rate, SECOND};

pub trait Other {
    /// Decides at a time in µs that never goes back.
    fn decide(&mut self, now: u64, cost: u32) -> Answer;
}

pub struct Governor {
    clock: FakeRelativeClock,
    now: u64,
    limiter: RateLimiter<NotKeyed, InMemoryState, FakeRelativeClock, NoOpMiddleware<Nanos>>,
}

impl Governor {
    pub fn new(rate: Rate) -> Self {
        let units = NonZeroU32::new(rate.units).unwrap();
        let quota = match rate.period_us / SECOND {
            1 => Quota::per_second(units),
            60 => Quota::per_minute(units),
            3_600 => Quota::per_hour(units),
            other => panic!("governor knows no rate per {other} s"),
        };
        let quota = quota.allow_burst(NonZeroU32::new(rate.capacity).unwrap());
        let clock = FakeRelativeClock::default();
        let limiter = RateLimiter::direct_with_clock(quota, clock.clone());
        Self { clock, now: 0, limiter }
    }
}

impl Other for Governor {
    fn decide(&mut self, now: u64, cost: u32) -> Answer {
        self.clock.advance(Duration::from_micros(now - self.now));
        self.now = now;
        let decision = self.limiter.check_n(NonZeroU32::new(cost).unwrap()).unwrap();
        let wait = decision.err().map(|until| until.wait_time_from(self.clock.now()));
        Answer { wait: wait.map(micros) }
    }
}

pub struct Ratelimit {
    now: Given,
    limiter: Ratelimiter<Given>,
}

#[derive(Clone, Default)]
struct Given(Rc<Cell<u64>>);

impl Clock for Given {
    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.0.get())
    }
}

impl Ratelimit {
    pub fn new(rate: Rate) -> Self {
        let now = Given::default();
        let limiter = Builder::with_clock(rate.units.into(), now.clone())
            .period(Duration::from_micros(rate.period_us))
            .max_tokens(rate.capacity.into())
            .initial_available(rate.capacity.into()) // it would start empty
            .build();
        Self { now, limiter: limiter.unwrap() }
    }
}

impl Other for Ratelimit {
    fn decide(&mut self, now: u64, cost: u32) -> Answer {
        self.now.0.set(now);
        match self.limiter.try_wait_n(cost.into()) {
            Ok(()) => Answer { wait: None },
            Err(TryWaitError::Insufficient(wait)) => Answer { wait: Some(micros(wait)) },
            Err(error) => panic!("{error}"),
        }
    }
}

/// Microseconds, rounded up as a caller who waits must.
fn micros(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000)).unwrap()
}
