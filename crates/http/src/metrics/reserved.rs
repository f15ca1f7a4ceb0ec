//! Counts reservations, commits and refused reservations.

use alloc::string::String;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};

use tidegate_gate::{Effect, Operation, Resolved, Verdict};

use super::{Counting, Metrics, add, counted_each, head};

/// What was said of reservations, in the order of their counters.
const OUTCOMES: [&str; 3] = ["reserved", "refused", "no_place"];

/// Whether commits were late, in the order of their counters.
const LATE: [&str; 2] = ["false", "true"];

/// The counters of a policy's reservations.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    outcomes: [AtomicU64; OUTCOMES.len()],
    units: AtomicU64,
    commits: [AtomicU64; LATE.len()],
    committed_units: [AtomicU64; LATE.len()],
}

impl Metrics {
    /// Counts an operation that makes or ends a reservation, by its verdict. [`count`](Self::count) does so for each check.
    pub fn count_reservation(&self, key: &Resolved, operation: &Operation, verdict: &Verdict) {
        let own = || self.of(key.policy().name()).map(|own| &own.reserved);
        let is_refused = |operation: &Operation| {
            let reserves = matches!(operation, Operation::Decide(request) if request.reserves());
            reserves && !verdict.decision.is_allowed()
        };
        match verdict.effect {
            Effect::Reserved { units, .. } => own().into_iter().for_each(|own| {
                add(own.outcomes.first());
                add_units(&own.units, units);
            }),
            Effect::Committed { charged, late, .. } => own().into_iter().for_each(|own| {
                add(own.commits.get(usize::from(late)));
                if let Some(units) = own.committed_units.get(usize::from(late)) {
                    add_units(units, charged);
                }
            }),
            effect if is_refused(operation) => {
                let place = if matches!(effect, Effect::Full { .. }) { 2 } else { 1 };
                add(own().and_then(|own| own.outcomes.get(place)));
            }
            _ => {}
        }
    }

    /// The counters of a policy's reservations, with their names; `None` if the policy takes none.
    pub(crate) fn reservations(&self, policy: &str) -> Option<[(&'static str, u64); 8]> {
        let own = self.policy(policy).filter(|own| own.reserves)?;
        let Reserved { outcomes, units, commits, committed_units } = &own.counters.reserved;
        let [reserved, refused, no_place] = outcomes;
        let ([committed, late], [in_time_units, late_units]) = (commits, committed_units);
        let all = [
            ("reserved", reserved),
            ("refused", refused),
            ("no_place", no_place),
            ("reserved_units", units),
            ("committed", committed),
            ("committed_units", in_time_units),
            ("late", late),
            ("late_units", late_units),
        ];
        Some(all.map(|(name, counter)| (name, counter.load(Ordering::Relaxed))))
    }

    pub(super) fn write_reservations(&self, text: &mut String) {
        let all = || self.policies.iter().filter(|own| own.reserves);
        if all().next().is_none() {
            return;
        }
        head(
            text,
            "reservations_total",
            "Reservations that a store decided, by outcome",
            "counter",
        );
        for Counting { name, counters, .. } in all() {
            let labels = alloc::format!("policy=\"{name}\",outcome");
            let counts = (&OUTCOMES[..], &counters.reserved.outcomes[..]);
            counted_each(text, "reservations_total", &labels, counts);
        }
        head(text, "reserved_units_total", "Units that were reserved", "counter");
        for Counting { name, counters, .. } in all() {
            let count = counters.reserved.units.load(Ordering::Relaxed);
            let _ = writeln!(text, "tidegate_reserved_units_total{{policy=\"{name}\"}} {count}");
        }
        let mut of_commits = |metric, help, counts: fn(&Reserved) -> &[AtomicU64]| {
            head(text, metric, help, "counter");
            for Counting { name, counters, .. } in all() {
                let labels = alloc::format!("policy=\"{name}\",late");
                counted_each(text, metric, &labels, (&LATE, counts(&counters.reserved)));
            }
        };
        let help = "Commits and releases, by whether their reservations had ended before";
        of_commits("commits_total", help, |own| &own.commits);
        let help = "Units that commits charged, by whether their reservations had ended before";
        of_commits("committed_units_total", help, |own| &own.committed_units);
    }
}

/// A counter of units stays at its most, because a counter that starts again is read as a restart.
fn add_units(counter: &AtomicU64, units: u64) {
    let add = |counted: u64| Some(counted.saturating_add(units));
    let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
}
