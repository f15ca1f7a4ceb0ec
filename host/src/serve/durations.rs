//! How long requests took.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper ends of the buckets in µs, and how Prometheus writes them, in seconds.
const ENDS: [(u64, &str); 11] = [
    (50, "0.00005"),
    (100, "0.0001"),
    (250, "0.00025"),
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (50_000, "0.05"),
    (250_000, "0.25"),
    (1_000_000, "1"),
];

/// A histogram of the time from the head of a request to its answer.
#[derive(Debug, Default)]
pub(super) struct Durations {
    buckets: [AtomicU64; ENDS.len()],
    longer: AtomicU64,
    sum_us: AtomicU64,
}

impl Durations {
    pub(super) fn add(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let place = ENDS.partition_point(|(end, _)| *end < us);
        self.buckets.get(place).unwrap_or(&self.longer).fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Adds the histogram in the text format of Prometheus.
    pub(super) fn write(&self, text: &mut String) {
        let name = "tidegate_request_duration_seconds";
        text.push_str("# HELP tidegate_request_duration_seconds Time from the head of a request to its answer.\n");
        text.push_str("# TYPE tidegate_request_duration_seconds histogram\n");
        let mut count = 0_u64;
        for ((_, end), bucket) in ENDS.iter().zip(&self.buckets) {
            count = count.saturating_add(bucket.load(Ordering::Relaxed));
            let _ = writeln!(text, "{name}_bucket{{le=\"{end}\"}} {count}");
        }
        count = count.saturating_add(self.longer.load(Ordering::Relaxed));
        let sum_us = self.sum_us.load(Ordering::Relaxed);
        let (seconds, rest) = (sum_us / 1_000_000, sum_us % 1_000_000);
        let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "{name}_sum {seconds}.{rest:06}\n{name}_count {count}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_every_bucket_that_ends_later() {
        let durations = Durations::default();
        for us in [50, 51, 2_000_000] {
            durations.add(Duration::from_micros(us));
        }
        let mut text = String::new();
        durations.write(&mut text);
        for line in [
            "tidegate_request_duration_seconds_bucket{le=\"0.00005\"} 1",
            "tidegate_request_duration_seconds_bucket{le=\"0.0001\"} 2",
            "tidegate_request_duration_seconds_bucket{le=\"1\"} 2",
            "tidegate_request_duration_seconds_bucket{le=\"+Inf\"} 3",
            "tidegate_request_duration_seconds_sum 2.000101",
            "tidegate_request_duration_seconds_count 3",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}\n{text}");
        }
    }
}
