//! `fixed_window`: so many units in every aligned window.

use tidegate_core::lease::budget::Refundable;
use tidegate_core::window::fixed::{Config, State};
use tidegate_core::{Limiter, RateLimiter, Timestamp};

use super::Kind;
use super::algorithm::{Algorithm, Answer, asks_a_rate_limiter};
use crate::request::Request;

impl Algorithm for Config {
    asks_a_rate_limiter!(|_window, unused| unused.to_window());
}
