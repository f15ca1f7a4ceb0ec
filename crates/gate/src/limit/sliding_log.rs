//! `sliding_log`: so many units in every span of several rates, each remembered by its time.

use tidegate_core::lease::budget::Refundable;
use tidegate_core::window::log::{Config, Denied, State};
use tidegate_core::{Limiter, Micros, RateLimiter, Timestamp};

use super::algorithm::{Algorithm, Answer, asks_a_rate_limiter};
use super::{Kind, Limit};
use crate::request::Request;

impl Algorithm for Config {
    asks_a_rate_limiter!(|_log, unused| unused.to_window());

    fn remembers_refusals(&self) -> bool {
        self.denied() == Denied::Counted
    }

    fn note_refusal(
        &self,
        state: &mut State<&mut [u64]>,
        now: Timestamp,
        request: &Request,
    ) -> Micros {
        self.refused(state, now, request.cost)
    }
    fn of(limit: &Limit) -> Option<&Self> {
        match limit {
            Limit::SlidingLog(config) => Some(config),
            _ => None,
        }
    }

    fn adopt(
        &self,
        own: &mut State<&mut [u64]>,
        _: &Self,
        held: &State<&[u64]>,
        ratio: (u64, u64),
    ) -> bool {
        Self::adopt(self, own, held, ratio);
        true
    }
}
