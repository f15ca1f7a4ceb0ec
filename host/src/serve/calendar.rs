//! Calendar windows whose data end: a policy file may carry the data of its time zones, and they reach to a last boundary.

use tidegate_gate::{Policies, Timestamp};

/// Below this time until the last boundary, `/readyz` warns.
const SOON_US: u64 = 60 * 86_400_000_000;

/// A limit by a calendar.
#[derive(Debug)]
pub(super) struct Calendar {
    pub(super) policy: String,
    pub(super) limit: String,
    /// The end of the last window that the limit knows.
    pub(super) last: Timestamp,
}

/// The calendar limits of all policies, without their overrides.
pub(super) fn calendars(policies: &Policies) -> Vec<Calendar> {
    let of_policy = policies.all().iter().flat_map(|policy| {
        policy.limits().iter().filter_map(|named| {
            let last = named.limit.calendar()?.reach().1;
            Some(Calendar { policy: policy.name().to_owned(), limit: named.name.clone(), last })
        })
    });
    of_policy.collect()
}

/// What `/readyz` says of calendars whose data end soon. It names no policy, because any caller may ask.
pub(super) fn warnings(calendars: &[Calendar], now: Timestamp) -> Vec<String> {
    let soon = |own: &&Calendar| own.last.saturating_since(now).0 < SOON_US;
    let count = calendars.iter().filter(soon).count();
    let text = format!(
        "calendar data of {count} limits end within 60 days; tidegate_calendar_end_timestamp_seconds in /metrics names them"
    );
    (count > 0).then_some(text).into_iter().collect()
}
