//! The counters of a server, and the text in which Prometheus reads them.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{Check, Outcome};
use crate::policy::Policies;
use crate::request::Operation;

/// The outcomes of a check, in the order of their counters.
const OUTCOMES: [&str; 4] = ["allowed", "refused", "shadow_refused", "error"];

/// The kinds of answers without the store, in the order of their counters.
const KINDS: [&str; 3] = ["remembered", "lent", "factor"];

/// Counters for the decisions of a server. Only names of policies become labels, so their number is bounded.
///
/// ```
/// use tidegate_gate::Policies;
/// use tidegate_gate::http::{LocalAnswers, Metrics};
/// let policies = Policies::parse(r#"
///     [policies.login]
///     limits = [{ algorithm = "fixed_window", limit = 1, period = "1m" }]
/// "#).unwrap();
/// let metrics = Metrics::new(&policies, None);
/// assert!(metrics.text(1, &LocalAnswers::default()).contains("tidegate_decisions_total{policy=\"login\",outcome=\"allowed\"} 0\n"));
/// ```
#[derive(Debug)]
pub struct Metrics {
    /// By the names of the policies, sorted.
    policies: Vec<(String, Arc<Counters<4>>)>,
    /// Stored policies that could not be used.
    ignored: Arc<Counters<1>>,
}

type Counters<const N: usize> = [AtomicU64; N];

/// An answer that a node gave without asking the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Local {
    /// It repeated a refusal.
    Remembered,
    /// It granted out of units that it had taken in advance.
    Lent,
    /// It decided by the factor that it heard last.
    Factor,
}

/// Counters for the answers that a node gives without asking the store.
#[derive(Debug, Default)]
pub struct LocalAnswers(Counters<3>);

impl LocalAnswers {
    /// Counts an answer.
    pub fn count(&self, kind: Local) {
        let Self([remembered, lent, factor]) = self;
        add(Some(match kind {
            Local::Remembered => remembered,
            Local::Lent => lent,
            Local::Factor => factor,
        }));
    }
}

/// A check as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted<'a> {
    /// The name of the policy.
    pub policy: &'a str,
    /// `allowed`, `refused`, `shadow_refused` or `error`.
    pub outcome: &'static str,
    /// The cost that was asked for.
    pub cost: u64,
}

impl<'a> Counted<'a> {
    /// `None` if the operation is not a check that may consume something.
    #[must_use]
    pub fn of(check: &'a Check, outcome: &Outcome) -> Option<Self> {
        let (place, cost) = counted(check, outcome)?;
        let outcome = OUTCOMES.get(place)?;
        Some(Self { policy: check.resolved().policy().name(), outcome, cost })
    }
}

fn counted(check: &Check, outcome: &Outcome) -> Option<(usize, u64)> {
    let Operation::Decide(request) = check.operation() else { return None };
    let place = match outcome {
        Outcome::Unavailable(_) => 3,
        Outcome::Decided(verdict) if verdict.decision.is_allowed() => 0,
        Outcome::Decided(_) if check.resolved().policy().is_shadow() => 2,
        Outcome::Decided(_) => 1,
    };
    (request.cost > 0).then_some((place, request.cost))
}

impl Metrics {
    /// Counters for these policies. Those of policies with the same names go on.
    #[must_use]
    pub fn new(policies: &Policies, earlier: Option<&Self>) -> Self {
        let counters = |name: &str| {
            let known = earlier.and_then(|earlier| earlier.of(name));
            known.map_or_else(Arc::default, Arc::clone)
        };
        let policies = policies.all().iter().map(|policy| policy.name());
        Self {
            policies: policies.map(|name| (name.to_string(), counters(name))).collect(),
            ignored: earlier.map_or_else(Arc::default, |earlier| Arc::clone(&earlier.ignored)),
        }
    }

    fn of(&self, name: &str) -> Option<&Arc<Counters<4>>> {
        let place = self.policies.binary_search_by(|(own, _)| own.as_str().cmp(name));
        place.ok().and_then(|place| self.policies.get(place)).map(|(_, counters)| counters)
    }

    /// Counts a check.
    pub fn count(&self, check: &Check, outcome: &Outcome) {
        let Some((place, _)) = counted(check, outcome) else { return };
        let counters = self.of(check.resolved().policy().name());
        add(counters.and_then(|counters| counters.get(place)));
    }

    /// Counts stored policies that could not be used.
    pub fn count_ignored(&self) {
        add(self.ignored.first());
    }

    /// The counters in the text format of Prometheus. `version` is the edition of the policies in force.
    #[must_use]
    pub fn text(&self, version: u64, local: &LocalAnswers) -> String {
        let mut text = String::new();
        let help = "Checks by policy and outcome. Each isolate of a Worker counts for itself";
        head(&mut text, "decisions_total", help, "counter");
        for (name, counters) in &self.policies {
            let labels = alloc::format!("policy=\"{name}\",outcome");
            each(&mut text, "decisions_total", &labels, &OUTCOMES, counters.as_slice());
        }
        head(&mut text, "local_answers_total", "Answers without asking the store", "counter");
        each(&mut text, "local_answers_total", "kind", &KINDS, local.0.as_slice());
        head(&mut text, "policies_version", "The edition of the policies in force", "gauge");
        let _ = writeln!(text, "tidegate_policies_version {version}");
        let help = "Stored policies that could not be used, so that earlier ones stayed in force";
        head(&mut text, "policies_ignored_total", help, "counter");
        let ignored = self.ignored.first().map_or(0, |ignored| ignored.load(Ordering::Relaxed));
        let _ = writeln!(text, "tidegate_policies_ignored_total {ignored}");
        text
    }
}

fn add(counter: Option<&AtomicU64>) {
    if let Some(counter) = counter {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(text, "# HELP tidegate_{name} {help}.\n# TYPE tidegate_{name} {kind}");
}

/// Names of policies need no escaping: they consist of letters, digits, `_`, `-` and `.`.
fn each(text: &mut String, name: &str, labels: &str, values: &[&str], counters: &[AtomicU64]) {
    for (value, counter) in values.iter().zip(counters) {
        let count = counter.load(Ordering::Relaxed);
        let _ = writeln!(text, "tidegate_{name}{{{labels}=\"{value}\"}} {count}");
    }
}
