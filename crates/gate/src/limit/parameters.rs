//! A limiter in numbers: for fingerprints, for states that outlive an edit of their policy, and for
//! who passes limits over a plain ABI.

use alloc::vec::Vec;

use tidegate_core::lease::{budget, concurrency, connections};
use tidegate_core::shed::suppression::Estimator;
use tidegate_core::shed::utilization::{Thresholds, Timing};
use tidegate_core::shed::{Share, fleet, penalty, suppression, utilization};
use tidegate_core::window::{fixed, log, sliding};
use tidegate_core::{ConfigError, Limiter, MAX_QUANTITY, Micros, Rate, RateLimiter, bucket};

use super::Limit;

/// Each limit as how many numbers follow, and its [`parameters`](Limit::parameters).
pub(crate) fn write<'a>(limits: impl IntoIterator<Item = &'a Limit>) -> Vec<u64> {
    let mut words = Vec::new();
    for limit in limits {
        let parameters = limit.parameters();
        words.push(wide(parameters.len()));
        words.extend(parameters);
    }
    words
}

/// What [`write`] wrote.
///
/// # Errors
/// [`ConfigError`] if it is anything else.
pub(crate) fn read(mut words: &[u64]) -> Result<Vec<Limit>, ConfigError> {
    let mut limits = Vec::new();
    while let Some((&length, rest)) = words.split_first() {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let unfit = invalid("parameters", wide(rest.len()));
        let (parameters, rest) = rest.split_at_checked(length).ok_or(unfit)?;
        limits.push(Limit::from_parameters(parameters)?);
        words = rest;
    }
    Ok(limits)
}

impl Limit {
    /// The configuration in numbers, to tell it from any other: first which algorithm it is.
    #[must_use]
    pub fn parameters(&self) -> Vec<u64> {
        match self {
            Self::TokenBucket(config) => {
                let (units, period) = config.rate();
                [1, config.capacity(), units, period.0, config.starts_empty().into()].into()
            }
            Self::FixedWindow(config) => [2, config.limit(), config.period().0].into(),
            Self::SlidingWindow(config) => {
                [3, config.limit(), config.period().0, wide(config.segments())].into()
            }
            Self::SlidingLog(config) => {
                let counted = u64::from(config.denied() == log::Denied::Counted);
                let windows =
                    config.windows().iter().flat_map(|window| [window.limit, window.period.0]);
                [4, config.min_gap().0, counted].into_iter().chain(windows).collect()
            }
            Self::Concurrency(config) => {
                [6, config.capacity(), config.period().0, wide(config.max_leases())].into()
            }
            Self::Connections(config) => {
                [7, config.limit(), config.period().0, wide(config.max_owners())].into()
            }
            Self::Budget(config) => {
                [11, config.most(), config.period().0, wide(config.max_holders())].into()
            }
            Self::Fleet(config) => {
                let leases = wide(config.max_leases());
                [8, config.capacity(), config.reserve(), config.period().0, leases].into()
            }
            Self::Utilization(config) => {
                let (thresholds, timing) = (config.thresholds(), config.timing());
                let [good, bad] = [thresholds.good, thresholds.bad].map(|it| it.ppm().into());
                let classes = config.classes().into();
                [9, good, bad, timing.delay.0, timing.full.0, classes].into()
            }
            Self::Suppression(config) => {
                let (units, period) = (config.limit().units(), config.limit().period().0);
                [10, units, period, estimator(config.estimator())].into()
            }
            Self::Penalty(config) => {
                let terms = config.terms();
                let [within, duration, max, forgive_after] =
                    [terms.within, terms.duration, terms.max, terms.forgive_after].map(|it| it.0);
                [5, terms.refusals, within, duration, max, forgive_after].into()
            }
        }
    }

    /// The limiter with these [`parameters`](Self::parameters).
    ///
    /// # Errors
    /// [`ConfigError`], also for an algorithm that does not exist.
    pub fn from_parameters(parameters: &[u64]) -> Result<Self, ConfigError> {
        match *parameters {
            [1, capacity, units, period, starts_empty @ (0 | 1)] => {
                let rate = Rate::new(units, Micros(period))?;
                let bucket = bucket::Config::new(capacity, rate)?;
                Ok(Self::TokenBucket(if starts_empty == 1 {
                    bucket.starting_empty()
                } else {
                    bucket
                }))
            }
            [2, limit, period] => fixed::Config::new(limit, Micros(period)).map(Self::FixedWindow),
            [3, limit, period, segments] => {
                sliding::Config::new(limit, Micros(period), segments).map(Self::SlidingWindow)
            }
            [4, min_gap, counted @ (0 | 1), ref windows @ ..] => {
                let (windows, []) = windows.as_chunks() else {
                    return Err(invalid("parameters", 4));
                };
                let window =
                    |&[limit, period]: &[u64; 2]| log::Window { limit, period: Micros(period) };
                let windows: Vec<log::Window> = windows.iter().map(window).collect();
                let denied =
                    if counted == 1 { log::Denied::Counted } else { log::Denied::Forgotten };
                log::Config::new(&windows, Micros(min_gap), denied).map(Self::SlidingLog)
            }
            [5, refusals, within, duration, max, forgive_after] => {
                let [within, duration, max, forgive_after] =
                    [within, duration, max, forgive_after].map(Micros);
                let terms = penalty::Terms { refusals, within, duration, max, forgive_after };
                penalty::Config::new(terms).map(Self::Penalty)
            }
            [6, capacity, time_to_live, leases] => {
                concurrency::Config::new(capacity, Micros(time_to_live), leases)
                    .map(Self::Concurrency)
            }
            [7, limit, expiry, owners] => {
                connections::Config::new(limit, Micros(expiry), owners).map(Self::Connections)
            }
            [8, capacity, reserve, time_to_live, leases] => {
                fleet::Config::new(capacity, reserve, Micros(time_to_live), leases).map(Self::Fleet)
            }
            [9, good, bad, delay, full, classes] => {
                let share = |found: u64| {
                    let share = u32::try_from(found).ok().and_then(Share::from_ppm);
                    share.ok_or_else(|| invalid("parameters", found))
                };
                let thresholds = Thresholds { good: share(good)?, bad: share(bad)? };
                let timing = Timing { delay: Micros(delay), full: Micros(full) };
                let classes = classes.try_into().map_err(|_| invalid("classes", classes))?;
                utilization::Config::new(thresholds, timing, classes).map(Self::Utilization)
            }
            [10, units, period, estimator] => {
                let estimator = match estimator {
                    NEWEST_PART => Estimator::NewestPart,
                    MODIFIED_MEAN => Estimator::ModifiedMean,
                    ramp => Estimator::LinearAdmitted {
                        ramp: ramp.try_into().map_err(|_| invalid("estimator", ramp))?,
                    },
                };
                let limit = Rate::new(units, Micros(period))?;
                suppression::Config::new(limit, estimator).map(Self::Suppression)
            }
            [11, most, time, holders] => {
                budget::Config::new(most, Micros(time), holders).map(Self::Budget)
            }
            [found, ..] => Err(invalid("algorithm", found)),
            [] => Err(invalid("parameters", 0)),
        }
    }
}

/// In numbers the estimators are these, or the ramp of a linear one.
const NEWEST_PART: u64 = 1 << 32;
const MODIFIED_MEAN: u64 = 2 << 32;

fn estimator(estimator: Estimator) -> u64 {
    match estimator {
        Estimator::LinearAdmitted { ramp } => ramp.into(),
        Estimator::ModifiedMean => MODIFIED_MEAN,
        _ => NEWEST_PART,
    }
}

const fn invalid(field: &'static str, found: u64) -> ConfigError {
    ConfigError::OutOfRange { field, found, least: 1, most: MAX_QUANTITY }
}

/// Of lengths in memory: they fit.
fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
