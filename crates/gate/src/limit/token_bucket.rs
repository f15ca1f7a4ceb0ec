//! `token_bucket`: bursts up to a capacity, refilled at a rate.

use tidegate_core::bucket::{Config, State};
use tidegate_core::lease::budget::Refundable;
use tidegate_core::{Limiter, RateLimiter, Timestamp};

use super::Kind;
use super::algorithm::{Algorithm, Answer, asks_a_rate_limiter};
use crate::request::Request;

impl Algorithm for Config {
    asks_a_rate_limiter!(|bucket, unused| unused.to_bucket(bucket));
}
