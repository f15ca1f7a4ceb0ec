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
        head(
            text,
            "store_errors_total",
            "Operations that the store did not do, and failures to count this host, by kind",
            "counter",
        );
        for (kind, count) in StoreError::KINDS.iter().zip(&self.0) {
            let count = count.load(Ordering::Relaxed);
            let _ = writeln!(text, "tidegate_store_errors_total{{kind=\"{kind}\"}} {count}");
        }
    }
}

/// The gauges of what is in force. Names of policies and limits need no escapes.
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
        let limit = &named.name;
        let _ =
            writeln!(text, "tidegate_limit_units{{policy=\"{policy}\",limit=\"{limit}\"}} {units}");
    }
    head(text, "limit_period_seconds", "The period of a limit", "gauge");
    for (policy, named) in limits() {
        let (limit, period) = (&named.name, seconds(named.limit.period().0));
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
        let last = seconds(last.0);
        let _ = writeln!(
            text,
            "tidegate_calendar_end_timestamp_seconds{{policy=\"{policy}\",limit=\"{limit}\"}} {last}"
        );
    }
}

/// How many hosts share a Redis, if this host knows.
pub(super) fn write_hosts(text: &mut String, hosts: Option<u64>) {
    if let Some(hosts) = hosts {
        let help = "Hosts last seen on the store, among which limits are divided in an outage";
        head(text, "hosts", help, "gauge");
        let _ = writeln!(text, "tidegate_hosts {hosts}");
    }
}

pub(super) fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(text, "# HELP tidegate_{name} {help}.\n# TYPE tidegate_{name} {kind}");
}

/// Microseconds in seconds.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_gate::Timestamp;
    use tidegate_http::Source;

    use super::super::calendar::{calendars, warnings};
    use super::*;

    fn has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|own| own == *line), "{line}\n{text}");
        }
    }

    #[test]
    fn limits_and_the_revision_are_gauges() {
        let policies = Policies::parse(
            "[policies.api]
             limits = [
                 { name = 'burst', algorithm = 'token_bucket', capacity = 500, rate = '100/s' },
                 { algorithm = 'fixed_window', limit = 9, period = '1m' },
             ]",
        );
        let (source, at, by) = (Source::Put, Timestamp(1_500_000), "alice".to_owned());
        let origin = Some(Origin { source, at, by });
        let tag = RevisionTag { version: 2, hash: "abc".to_owned(), origin };
        let mut text = String::new();
        write_in_force(&mut text, &policies.unwrap(), &tag);
        has(
            &text,
            &[
                "# TYPE tidegate_limit_units gauge",
                "tidegate_limit_units{policy=\"api\",limit=\"burst\"} 500",
                "tidegate_limit_period_seconds{policy=\"api\",limit=\"burst\"} 5.000000",
                "tidegate_policies_info{hash=\"abc\",source=\"put\"} 1",
                "tidegate_policies_changed_timestamp_seconds 1.500000",
            ],
        );
        assert!(!text.contains("alice"), "an actor is no label");
    }

    #[test]
    fn errors_of_the_store_are_counted_by_kind() {
        let errors = StoreErrors::default();
        errors.count(&StoreError::Deadline { within: Duration::from_millis(250), server: None });
        errors.count(&StoreError::Full { max_bytes: 1 });
        errors.count(&StoreError::Full { max_bytes: 1 });
        let mut text = String::new();
        errors.write(&mut text);
        has(
            &text,
            &[
                "tidegate_store_errors_total{kind=\"deadline\"} 1",
                "tidegate_store_errors_total{kind=\"full\"} 2",
                "tidegate_store_errors_total{kind=\"unavailable\"} 0",
            ],
        );
    }

    #[test]
    fn calendars_whose_data_end_are_a_gauge_and_a_warning() {
        let policies = Policies::parse(
            "[policies.api]
             limits = [{ algorithm = 'calendar', limit = 5, period = 'month', timezone = 'Europe/Madrid',
                         zone_data = '2020a 1704067200+3600 2429913600' }]",
        );
        let calendars = calendars(&policies.unwrap());
        let [own] = &calendars[..] else { panic!("{calendars:?}") };
        let before = |days: u64| Timestamp(own.last.0 - days * 86_400_000_000);
        assert_eq!(warnings(&calendars, before(61)), [""; 0]);
        let warned = warnings(&calendars, before(59));
        assert!(
            warned[0].starts_with("calendar data of 1 limits end within 60 days"),
            "{warned:?}"
        );
        let mut text = String::new();
        write_calendars(&mut text, &calendars);
        let line = "tidegate_calendar_end_timestamp_seconds{policy=\"api\",limit=\"api\"} 2";
        assert!(text.contains(line), "{text}");
    }
}
