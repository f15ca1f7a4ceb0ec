//! A policy in words, every quantity exact.

#[cfg(test)]
mod tests;

use std::fmt::Display;

use tidegate::gate::{
    Denied, Depth, Estimator, KeySource, Kind, Limit, Limiter, Limits, Micros, OnChange, OnError,
    Part, Placement, Policy, RateLimiter, Share, Window, blob,
};

pub(super) fn describe(policy: &Policy) -> String {
    let description = policy.description().unwrap_or("no description");
    let mut text = format!("{}: {description}\n", policy.name());
    text += &limits(policy.limits(), "  ");
    for (pattern, own) in policy.overrides() {
        let stored = stored(policy, own);
        text += &format!("  {pattern} instead, stored as {stored}:\n{}", limits(own, "    "));
    }
    for (word, list) in [("never pass", policy.denied()), ("always pass", policy.allowed())] {
        if !list.is_empty() {
            text += &format!("  {word}: {}\n", joined(list, ", "));
        }
    }
    let sources = policy.key_sources().iter().map(|source| match source {
        KeySource::Header(name) => format!("header {name}"),
        _ => "client address".to_owned(),
    });
    let error = match policy.on_error() {
        OnError::Open => "passes",
        OnError::Closed => "is refused",
    };
    let placement = match policy.placement() {
        Placement::Shard(shards) => format!("in {shards} objects"),
        _ => "in an object of its own".to_owned(),
    };
    match policy.on_change() {
        OnChange::Reset => {}
        OnChange::Keep => text += "  an edit of the limits keeps what was used\n",
        OnChange::Proportional => text += "  an edit of the limits keeps the share that was used\n",
    }
    if policy.is_shadow() {
        text += "  in shadow: refusals are reported, and everything passes\n";
    }
    text += &format!(
        "  by {}; in an outage a request {error}; on Workers each key {placement}; stored as {}\n",
        joined(&sources.collect::<Vec<_>>(), ", else "),
        stored(policy, policy.limits()),
    );
    text
}

/// The size of each state, and the end of its name.
fn stored(policy: &Policy, limits: &Limits) -> String {
    let part = |part: &Part| {
        let size = |word| blob::encode(policy, part, &vec![word; part.words()]).len();
        let (least, most) = (size(0), size(1)); // of a large state zeros are not stored
        let at_most = if least < most { "at most " } else { "" };
        format!("{at_most}{most} bytes under {:016x}", part.identity())
    };
    joined(&limits.parts().iter().map(part).collect::<Vec<_>>(), " and ")
}

fn limits(limits: &Limits, indent: &str) -> String {
    let line = |named: &tidegate::gate::NamedLimit| {
        let shared = match named.depth {
            Depth::Whole => String::new(),
            Depth::Parts(0) => ", all keys together".to_owned(),
            Depth::Parts(1) => ", by the first part of the key".to_owned(),
            Depth::Parts(parts) => format!(", by the first {parts} parts of the key"),
        };
        format!("{indent}{}: {}{shared}\n", named.name, limit(&named.limit))
    };
    limits.iter().map(line).collect()
}

fn joined(items: &[impl Display], separator: &str) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

fn limit(limit: &Limit) -> String {
    match limit.kind() {
        Kind::Rate => rate(limit),
        Kind::Shed => shed(limit),
        _ => lease(limit),
    }
}

fn rate(limit: &Limit) -> String {
    match limit {
        Limit::TokenBucket(bucket) => {
            let (units, period) = bucket.rate();
            let each = if units == 1 { String::new() } else { format!("{units} ") };
            let start = if bucket.starts_empty() { "; empty at first" } else { "" };
            format!(
                "bursts of {}, then {each}every {}; full after {}{start}",
                bucket.capacity(),
                span(period),
                span(bucket.period())
            )
        }
        Limit::FixedWindow(window) => {
            format!("{} in every aligned {}", window.limit(), span(window.period()))
        }
        Limit::SlidingWindow(window) => {
            let segment = Micros(window.period().0 / u64::try_from(window.segments()).unwrap_or(1));
            format!(
                "{} in {}, slid by {} segments of {}",
                window.limit(),
                span(window.period()),
                window.segments(),
                span(segment)
            )
        }
        Limit::SlidingLog(log) => {
            let window =
                |window: &Window| format!("{} in any {}", window.limit, span(window.period));
            let gap = match log.min_gap() {
                Micros::ZERO => String::new(),
                gap => format!(", {} apart", span(gap)),
            };
            let denied = match log.denied() {
                Denied::Counted => ", refused ones too",
                Denied::Forgotten => "",
            };
            let windows: Vec<String> = log.windows().iter().map(window).collect();
            format!("{}{gap}{denied}", windows.join(" and "))
        }
        _ => UNKNOWN.to_owned(),
    }
}

fn lease(limit: &Limit) -> String {
    match limit {
        Limit::Concurrency(leases) => format!(
            "{} at once, each for {} unless renewed{}",
            leases.capacity(),
            span(leases.period()),
            room(leases.max_leases(), leases.capacity())
        ),
        Limit::Connections(owners) => format!(
            "{} connections of up to {} owners, each forgotten {} after it was last heard of",
            owners.limit(),
            owners.max_owners(),
            span(owners.period())
        ),
        Limit::Fleet(fleet) => format!(
            "{} at once, {} of them for the most important class alone, each for {} unless renewed{}",
            fleet.capacity(),
            fleet.reserve(),
            span(fleet.period()),
            room(fleet.max_leases(), fleet.capacity() - fleet.reserve())
        ),
        Limit::Budget(budget) => format!(
            "up to {} units for {}, to up to {} holders who spend them without asking",
            budget.most(),
            span(budget.period()),
            budget.max_holders()
        ),
        _ => UNKNOWN.to_owned(),
    }
}

/// A warning, where leases end before places do.
fn room(max_leases: usize, places: u64) -> String {
    match u64::try_from(max_leases) {
        Ok(leases) if leases < places => {
            format!(
                "; but a state has room for {leases} leases (max_leases), and no more are granted"
            )
        }
        _ => String::new(),
    }
}

fn shed(limit: &Limit) -> String {
    match limit {
        Limit::Utilization(shedder) => {
            let (thresholds, timing) = (shedder.thresholds(), shedder.timing());
            format!(
                "sheds above {bad}: at 100% first after {}, all but the most important class after \
                 {} more, nearer to {bad} slower in proportion; takes it back below {}",
                span(timing.delay),
                span(timing.full),
                percent(thresholds.good),
                bad = percent(thresholds.bad),
            )
        }
        Limit::Suppression(master) => {
            let rate = master.limit();
            let estimator = match master.estimator() {
                Estimator::LinearAdmitted { ramp } => format!(
                    "linear on the admitted rate, all at {} times the limit",
                    u32::from(ramp) + 1
                ),
                Estimator::ModifiedMean => "modified mean of the offered rate".to_owned(),
                _ => "newest part of the offered rate".to_owned(),
            };
            let (units, period) = (rate.units(), span(rate.period()));
            format!("suppresses what is offered beyond {units} every {period}; {estimator}")
        }
        Limit::Penalty(penalty) => {
            let terms = penalty.terms();
            format!(
                "after {} refusals within {} none for {}, twice as long each time up to {}, \
                 forgiven after {}",
                terms.refusals,
                span(terms.within),
                span(terms.duration),
                span(terms.max),
                span(terms.forgive_after)
            )
        }
        _ => UNKNOWN.to_owned(),
    }
}

const UNKNOWN: &str = "a limit this version cannot describe";

fn percent(share: Share) -> String {
    let (whole, rest) = (share.ppm() / 10_000, share.ppm() % 10_000);
    let decimals = format!("{rest:04}");
    match decimals.trim_end_matches('0') {
        "" => format!("{whole} %"),
        decimals => format!("{whole}.{decimals} %"),
    }
}

/// In the largest unit that is exact.
fn span(span: Micros) -> String {
    const UNITS: [(u64, &str); 5] = [
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "m"),
        (1_000_000, "s"),
        (1_000, "ms"),
    ];
    match UNITS.iter().find(|(micros, _)| span.0.is_multiple_of(*micros)) {
        Some((micros, unit)) => format!("{} {unit}", span.0 / micros),
        None => format!("{} µs", span.0),
    }
}
