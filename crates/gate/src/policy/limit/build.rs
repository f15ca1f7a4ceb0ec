//! Which fields each algorithm has, and the limiter that they make.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tidegate_core::lease::{self, budget, concurrency, connections};
use tidegate_core::shed::suppression::Estimator;
use tidegate_core::shed::utilization::{Thresholds, Timing};
use tidegate_core::shed::{Share, fleet, penalty, suppression, utilization};
use tidegate_core::window::{fixed, log, sliding};
use tidegate_core::{ConfigError, Micros, bucket};

use super::{Algorithm, EstimatorForm, LimitForm, Start};
use crate::limit::Limit;
use crate::policy::units::{Percent, Span};

/// How many server processes one key's connections are usually spread over at most.
const DEFAULT_MAX_OWNERS: u64 = 64;
/// How many nodes one key's units are usually spent by at most.
const DEFAULT_MAX_HOLDERS: u64 = 64;
/// 1 + 2: at three times the limit everything is refused, as in the source.
const DEFAULT_RAMP: u64 = 2;

impl LimitForm {
    pub(super) fn limit(&self) -> Result<Limit, String> {
        match required("algorithm", self.algorithm)? {
            Algorithm::TokenBucket => self.token_bucket(),
            Algorithm::FixedWindow => self.fixed_window(),
            Algorithm::SlidingWindow => self.sliding_window(),
            Algorithm::SlidingLog => self.sliding_log(),
            Algorithm::Concurrency => self.concurrency(),
            Algorithm::Connections => self.connections(),
            Algorithm::Budget => self.budget(),
            Algorithm::FleetUsage => self.fleet_usage(),
            Algorithm::Utilization => self.utilization(),
            Algorithm::Suppression => self.suppression(),
            Algorithm::Penalty => self.penalty(),
        }
    }

    fn token_bucket(&self) -> Result<Limit, String> {
        self.has_no_other("token_bucket", &["capacity", "rate", "start"])?;
        let capacity = required("capacity", self.capacity)?.0;
        let rate = required("rate", self.rate)?.0;
        let bucket = bucket::Config::new(capacity, rate).map_err(text)?;
        Ok(Limit::TokenBucket(match self.start {
            Some(Start::Empty) => bucket.starting_empty(),
            Some(Start::Full) | None => bucket,
        }))
    }

    fn fixed_window(&self) -> Result<Limit, String> {
        self.has_no_other("fixed_window", &["limit", "period"])?;
        let limit = required("limit", self.limit)?.0;
        let period = required("period", self.period)?.0;
        fixed::Config::new(limit, period).map(Limit::FixedWindow).map_err(text)
    }

    fn sliding_window(&self) -> Result<Limit, String> {
        self.has_no_other("sliding_window", &["limit", "period", "segments"])?;
        let limit = required("limit", self.limit)?.0;
        let period = required("period", self.period)?.0;
        let segments = self.segments.map_or(1, |segments| segments.0);
        sliding::Config::new(limit, period, segments).map(Limit::SlidingWindow).map_err(text)
    }

    fn sliding_log(&self) -> Result<Limit, String> {
        self.has_no_other("sliding_log", &["rates", "min_gap", "count_denied"])?;
        let rates = required("rates", self.rates.as_ref())?;
        let windows: Vec<log::Window> = rates.iter().map(|window| window.0).collect();
        let min_gap = self.min_gap.map_or(Micros::ZERO, |span| span.0);
        let counted = self.count_denied.unwrap_or(false);
        let denied = if counted { log::Denied::Counted } else { log::Denied::Forgotten };
        log::Config::new(&windows, min_gap, denied).map(Limit::SlidingLog).map_err(text)
    }

    fn concurrency(&self) -> Result<Limit, String> {
        self.has_no_other("concurrency", &["capacity", "time_to_live", "max_leases"])?;
        let capacity = required("capacity", self.capacity)?.0;
        let time_to_live = required("time_to_live", self.time_to_live)?.0;
        let leases = self.max_leases(capacity);
        concurrency::Config::new(capacity, time_to_live, leases)
            .map(Limit::Concurrency)
            .map_err(text)
    }

    fn connections(&self) -> Result<Limit, String> {
        self.has_no_other("connections", &["limit", "expiry", "max_owners"])?;
        let limit = required("limit", self.limit)?.0;
        let expiry = self.expiry.map_or(connections::DEFAULT_EXPIRY, |span| span.0);
        let owners = self.max_owners.map_or(DEFAULT_MAX_OWNERS, |owners| owners.0);
        connections::Config::new(limit, expiry, owners).map(Limit::Connections).map_err(text)
    }

    fn budget(&self) -> Result<Limit, String> {
        self.has_no_other("budget", &["most", "time", "max_holders"])?;
        let most = required("most", self.most)?.0;
        let time = required("time", self.time)?.0;
        let holders = self.max_holders.map_or(DEFAULT_MAX_HOLDERS, |holders| holders.0);
        budget::Config::new(most, time, holders).map(Limit::Budget).map_err(text)
    }

    fn fleet_usage(&self) -> Result<Limit, String> {
        let fields = &["capacity", "reserve", "time_to_live", "max_leases"];
        self.has_no_other("fleet_usage", fields)?;
        let capacity = required("capacity", self.capacity)?.0;
        let reserve = required("reserve", self.reserve)?.0;
        let time_to_live = required("time_to_live", self.time_to_live)?.0;
        let (leases, reserve) = (self.max_leases(capacity), reserve.ppm().into());
        fleet::Config::with_share(capacity, reserve, time_to_live, leases)
            .map(Limit::Fleet)
            .map_err(text)
    }

    /// As many as there can be, unless that is more than a state may have.
    fn max_leases(&self, capacity: u64) -> u64 {
        self.max_leases.map_or(capacity.min(lease::MAX_ENTRIES), |leases| leases.0)
    }

    /// How many classes there are is the policy's matter.
    fn utilization(&self) -> Result<Limit, String> {
        self.has_no_other("utilization", &["good", "bad", "delay", "full"])?;
        let thresholds = Thresholds {
            good: self.good.map_or(Thresholds::DEFAULT.good, |share| share.0),
            bad: self.bad.map_or(Thresholds::DEFAULT.bad, |share| share.0),
        };
        let timing = Timing {
            delay: self.delay.map_or(Timing::DEFAULT.delay, |span| span.0),
            full: self.full.map_or(Timing::DEFAULT.full, |span| span.0),
        };
        utilization::Config::new(thresholds, timing, 1).map(Limit::Utilization).map_err(text)
    }

    fn suppression(&self) -> Result<Limit, String> {
        self.has_no_other("suppression", &["rate", "estimator", "ramp"])?;
        let rate = required("rate", self.rate)?.0;
        let estimator = match (self.estimator, self.ramp) {
            (Some(EstimatorForm::LinearAdmitted), ramp) => {
                let ramp = ramp.map_or(DEFAULT_RAMP, |ramp| ramp.0);
                let ramp = ramp
                    .try_into()
                    .map_err(|_| format!("`ramp`: found {ramp}, allowed are 1 to {}", u16::MAX))?;
                Estimator::LinearAdmitted { ramp }
            }
            (_, Some(_)) => {
                return Err("found `ramp`, which `linear_admitted` alone has".to_string());
            }
            (Some(EstimatorForm::ModifiedMean), None) => Estimator::ModifiedMean,
            (Some(EstimatorForm::NewestPart) | None, None) => Estimator::NewestPart,
        };
        suppression::Config::new(rate, estimator).map(Limit::Suppression).map_err(text)
    }

    fn penalty(&self) -> Result<Limit, String> {
        let fields = &["refusals", "within", "duration", "max", "forgive_after"];
        self.has_no_other("penalty", fields)?;
        let duration = required("duration", self.duration)?.0;
        let terms = penalty::Terms {
            refusals: required("refusals", self.refusals)?.0,
            within: required("within", self.within)?.0,
            duration,
            max: self.max.map_or(duration, |span| span.0),
            forgive_after: self.forgive_after.map_or(duration, |span| span.0),
        };
        penalty::Config::new(terms).map(Limit::Penalty).map_err(text)
    }

    fn has_no_other(&self, algorithm: &str, allowed: &[&str]) -> Result<(), String> {
        match self.given().find(|field| !allowed.contains(field)) {
            Some(field) => Err(format!(
                "found `{field}`, which `{algorithm}` does not have; allowed are `{}`",
                allowed.join("`, `")
            )),
            None => Ok(()),
        }
    }
}

/// What is wrong, with quantities as the file has them rather than in µs and millionths.
fn text(error: ConfigError) -> String {
    match error {
        ConfigError::OutOfRange { field, found, least, most } => {
            let [found, least, most] = [found, least, most].map(|it| as_written(field, it));
            format!("`{field}`: found {found}, allowed are {least} to {most}")
        }
        ConfigError::ScaleTooFine { field, found, nearest } => {
            let [found, nearest] = [found, nearest].map(|it| as_written(field, it));
            format!(
                "`{field}`: found {found}, which exact 64-bit arithmetic cannot hold beside the \
                 other values; the largest that fits is {nearest}"
            )
        }
        ConfigError::UnevenSegments { period, segments, nearest } => {
            let [period, nearest] = [period, nearest].map(Span);
            format!(
                "`segments`: {segments} do not divide a period of {period} into whole \
                 microseconds; the nearest period that they do divide is {nearest}"
            )
        }
        ConfigError::UnorderedThresholds { good_ppm, bad_ppm } => {
            let [good, bad] = [good_ppm, bad_ppm].map(|ppm| as_written("good", ppm.into()));
            format!("`good`: found {good} beside `bad` {bad}, must be 0% < good ≤ bad < 100%")
        }
        other => other.to_string(),
    }
}

fn as_written(field: &str, value: u64) -> String {
    match field {
        "reserve" | "good" | "bad" => {
            let share = u32::try_from(value).ok().and_then(Share::from_ppm);
            share.map_or_else(|| value.to_string(), |share| Percent(share).to_string())
        }
        "period" | "min_gap" | "time_to_live" | "expiry" | "time" | "delay" | "full" | "within"
        | "duration" | "max" | "forgive_after" => Span(Micros(value)).to_string(),
        _ => value.to_string(),
    }
}

fn required<T>(field: &str, value: Option<T>) -> Result<T, String> {
    value.ok_or_else(|| format!("missing field `{field}`"))
}
