//! Quantities in the description of a limit.

use alloc::format;
use alloc::string::String;

use tidegate_core::Micros;
use tidegate_core::shed::Share;

/// A warning if a state has room for fewer leases than places.
pub(super) fn room(max_leases: usize, places: u64) -> String {
    match u64::try_from(max_leases) {
        Ok(leases) if leases < places => format!(
            "; but a state has room for {leases} leases (max_leases), and no more are granted"
        ),
        _ => String::new(),
    }
}

pub(super) fn percent(share: Share) -> String {
    const PPM: u32 = 10_000;
    let (whole, rest) = (share.ppm().div_euclid(PPM), share.ppm().rem_euclid(PPM));
    let decimals = format!("{rest:04}");
    match decimals.trim_end_matches('0') {
        "" => format!("{whole} %"),
        decimals => format!("{whole}.{decimals} %"),
    }
}

/// Writes a span in the largest unit that is exact.
pub(crate) fn span(span: Micros) -> String {
    let exact = UNITS.iter().find(|(micros, _)| span.0.is_multiple_of(*micros));
    match exact.and_then(|(micros, unit)| Some((span.0.checked_div(*micros)?, unit))) {
        Some((count, unit)) => format!("{count} {unit}"),
        None => format!("{} µs", span.0),
    }
}

/// Writes a wait: from one second on in whole seconds, rounded up because an earlier try is refused.
pub(crate) fn wait(wait: Micros) -> String {
    if wait.0 < 1_000_000 {
        return span(wait);
    }
    let (mut words, mut left) = (String::new(), wait.as_secs_ceil().saturating_mul(1_000_000));
    for (micros, unit) in UNITS {
        let count = left.div_euclid(micros);
        left = left.rem_euclid(micros);
        if count > 0 {
            let before = if words.is_empty() { "" } else { " " };
            words.push_str(&format!("{before}{count} {unit}"));
        }
    }
    words
}

const UNITS: [(u64, &str); 5] = [
    (86_400_000_000, "d"),
    (3_600_000_000, "h"),
    (60_000_000, "m"),
    (1_000_000, "s"),
    (1_000, "ms"),
];
