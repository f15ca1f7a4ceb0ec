//! What a host counts beside the counters of its decisions.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_gate::Policies;
use tidegate_http::{self as http, Origin, RevisionTag};

use super::calendar::Calendar;
use crate::store::StoreError;

/// Errors of the store by their kind.
#[derive(Debug, Default)]
pub(super) struct StoreErrors([AtomicU64; StoreError::KINDS.len()]);

impl StoreErrors {
    pub(super) fn count(&self, error: &StoreError) {
        let place = StoreError::KINDS.iter().position(|kind| *kind == error.kind());
        if let Some(counter) = place.and_then(|place| self.0.get(place)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn write(&self, text: &mut String) {
        head(text, "store_errors_total", "Operations that the store did not do, by kind", "counter");
        for (kind, count) in StoreError::KINDS.iter().zip(&self.0) {
            let count = count.load(Ordering::Relaxed);
            let _ = writeln!(text, "tidegate_store_errors_total{{kind=\"{kind}\"}} {count}");
        }
    }
}

/// The gauges of what is in force.
pub(super) fn write_in_force(text: &mut String, policies: &Policies, tag: &RevisionTag) {
    let limits = || {
        policies
            .all()
            .iter()
            .flat_map(|policy| policy.limits().iter().map(|named| (policy.name(), named)))
    };
    head(text, "limit_units", "The most units that a limit grants at once or in a period", "gauge");
    for (policy, named) in limits() {
        let Some(units) = http::most_units(named) else { continue };
        let (policy, limit) = (Label(policy), Label(&named.name));
        let _ = writeln!(
            text,
            "tidegate_limit_units{{policy=\"{policy}\",limit=\"{limit}\"}} {units}"
        );
    }
    head(text, "limit_period_seconds", "The period of a limit", "gauge");
    for (policy, named) in limits() {
        let (policy, limit, period) =
            (Label(policy), Label(&named.name), seconds(named.limit.period().0));
        let _ = writeln!(
            text,
            "tidegate_limit_period_seconds{{policy=\"{policy}\",limit=\"{limit}\"}} {period}"
        );
    }
    let Some(Origin { source, at, .. }) = &tag.origin else { return };
    head(text, "policies_info", "The revision of the policies in force", "gauge");
    let (hash, source) = (&tag.hash, source.name());
    let _ = writeln!(text, "tidegate_policies_info{{hash=\"{hash}\",source=\"{source}\"}} 1");
    let help = "When the revision came into force";
    head(text, "policies_changed_timestamp_seconds", help, "gauge");
    let _ = writeln!(text, "tidegate_policies_changed_timestamp_seconds {}", seconds(at.0));
}

/// When the data of calendar limits end.
pub(super) fn write_calendars(text: &mut String, calendars: &[Calendar]) {
    if calendars.is_empty() {
        return;
    }
    let help = "The end of the last window that a calendar limit knows";
    head(text, "calendar_end_timestamp_seconds", help, "gauge");
    for Calendar { policy, limit, last } in calendars {
        let (policy, limit, last) = (Label(policy), Label(limit), seconds(last.0));
        let _ = writeln!(
            text,
            "tidegate_calendar_end_timestamp_seconds{{policy=\"{policy}\",limit=\"{limit}\"}} {last}"
        );
    }
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(text, "# HELP tidegate_{name} {help}.\n# TYPE tidegate_{name} {kind}");
}

/// Microseconds in seconds.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// The value of a label, with the escapes of the text format.
struct Label<'a>(&'a str);

impl std::fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            char => f.write_char(char),
        })
    }
}
