//! `sliding_window`: so many units in a window of weighted segments.

use tidegate_core::lease::budget::Refundable;
use tidegate_core::window::sliding::{Config, State};
use tidegate_core::{Limiter, RateLimiter, Timestamp};

use super::Kind;
use super::algorithm::{Algorithm, Answer, asks_a_rate_limiter};
use crate::request::Request;

impl Algorithm for Config {
    asks_a_rate_limiter!(|_window, unused| unused.to_window());
}
