//! The counters of a server, and the text in which Prometheus reads them.

mod reserved;

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidegate_gate::{Effect, OnError, Operation, Policies, Policy, Softness};

use crate::answer::Outcome;
use crate::plan::Check;
use reserved::Reserved;

/// The outcomes of a check, in the order of their counters.
const OUTCOMES: [&str; 4] = ["allowed", "refused", "shadow_refused", "error"];

/// The answers of `on_error`, in the order of their counters.
const ON_ERROR: [&str; 4] = ["open", "closed", "local_allowed", "local_refused"];

/// The counters of a policy.
#[derive(Debug, Default)]
struct Counters {
    outcomes: [AtomicU64; OUTCOMES.len()],
    /// The checks that were warned of.
    warned: AtomicU64,
    /// The checks that the store did not decide.
    on_error: [AtomicU64; ON_ERROR.len()],
    reserved: Reserved,
}

/// A policy with its counters.
#[derive(Debug)]
struct Counting {
    name: String,
    /// Whether it takes reservations.
    reserves: bool,
    counters: Arc<Counters>,
}

/// Counters for the decisions of a server. Only names of policies become labels, so their number is bounded.
///
/// ```
/// use tidegate_gate::Policies;
/// use tidegate_http::Metrics;
/// let policies = Policies::parse(r#"
///     [policies.login]
///     limits = [{ algorithm = "fixed_window", limit = 1, period = "1m" }]
/// "#).unwrap();
/// let metrics = Metrics::new(&policies, None);
/// assert!(metrics.text(1, &[("remembered", 0)]).contains("tidegate_decisions_total{policy=\"login\",outcome=\"allowed\"} 0\n"));
/// ```
#[derive(Debug)]
pub struct Metrics {
    /// By the names of the policies, sorted.
    policies: Vec<Counting>,
    /// Stored policies that could not be used.
    ignored: Arc<AtomicU64>,
    /// Whether the store did not answer last.
    failing: Arc<AtomicBool>,
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
    /// Whether a limit is used as far as its `warn_at`.
    pub warned: bool,
}

impl<'a> Counted<'a> {
    /// `None` if the operation is not a check that may consume something.
    #[must_use]
    pub fn of(check: &'a Check, outcome_of: &Outcome) -> Option<Self> {
        let said = check.said(outcome_of);
        let soft = softness(check, &said);
        let (place, cost) = counted(check, &said, soft)?;
        let (policy, outcome) = (check.resolved().policy().name(), OUTCOMES.get(place)?);
        Some(Self { policy, outcome, cost, warned: soft.warns() })
    }
}

fn softness(check: &Check, outcome: &Outcome) -> Softness {
    let (Outcome::Decided(verdict), Some(limits)) = (outcome, check.resolved().limits()) else {
        return Softness::default();
    };
    limits.softness(verdict)
}

fn counted(check: &Check, outcome: &Outcome, soft: Softness) -> Option<(usize, u64)> {
    let Operation::Decide(request) = check.asked.wanted() else { return None };
    let place = match outcome {
        Outcome::Unavailable(_) | Outcome::Unreadable(_) => 3,
        Outcome::Decided(verdict) if verdict.effect == Effect::OtherRequest => return None,
        Outcome::Decided(verdict) if verdict.decision.is_allowed() => {
            if soft.would_refuse() {
                2
            } else {
                0
            }
        }
        Outcome::Decided(_) if check.resolved().policy().is_shadow() => 2,
        Outcome::Decided(_) => 1,
    };
    (request.cost > 0).then_some((place, request.cost))
}

/// The place of the answer of `on_error`; `None` if the store has decided.
fn by_on_error(check: &Check, outcome: &Outcome) -> Option<usize> {
    match outcome {
        Outcome::Unavailable(_) | Outcome::Unreadable(_) => {
            let policy = check.resolved().policy();
            Some(if policy.on_error() == OnError::Open || policy.is_shadow() { 0 } else { 1 })
        }
        Outcome::Decided(verdict) if verdict.degraded => {
            Some(if verdict.decision.is_allowed() { 2 } else { 3 })
        }
        Outcome::Decided(_) => None,
    }
}

impl Metrics {
    /// Counters for these policies. Those of policies with the same names go on.
    #[must_use]
    pub fn new(policies: &Policies, earlier: Option<&Self>) -> Self {
        let counters = |name: &str| {
            let known = earlier.and_then(|earlier| earlier.of(name));
            known.map_or_else(Arc::default, Arc::clone)
        };
        let counting = |policy: &Arc<Policy>| Counting {
            name: policy.name().to_string(),
            reserves: policy.reservations().is_some(),
            counters: counters(policy.name()),
        };
        Self {
            policies: policies.all().iter().map(counting).collect(),
            ignored: earlier.map_or_else(Arc::default, |earlier| Arc::clone(&earlier.ignored)),
            failing: earlier.map_or_else(Arc::default, |earlier| Arc::clone(&earlier.failing)),
        }
    }

    fn policy(&self, name: &str) -> Option<&Counting> {
        let place = self.policies.binary_search_by(|own| own.name.as_str().cmp(name));
        place.ok().and_then(|place| self.policies.get(place))
    }

    fn of(&self, name: &str) -> Option<&Arc<Counters>> {
        self.policy(name).map(|own| &own.counters)
    }

    /// Counts a check. Returns whether [`Limited`](crate::Limited) counts it too, because it did not just pass.
    pub fn count(&self, check: &Check, outcome: &Outcome) -> bool {
        let outcome = &*check.said(outcome);
        let failing = match outcome {
            Outcome::Unavailable(_) => true,
            Outcome::Unreadable(_) => false,
            Outcome::Decided(verdict) => {
                self.count_reservation(check.resolved(), &check.asked.wanted(), verdict);
                verdict.degraded
            }
        };
        self.set_failing(failing);
        let is_unreadable = matches!(outcome, Outcome::Unreadable(_));
        self.add(check, outcome) > 0 && !is_unreadable || failing
    }

    fn set_failing(&self, failing: bool) {
        if self.failing.load(Ordering::Relaxed) != failing {
            self.failing.store(failing, Ordering::Relaxed); // rarely, because all threads read it
        }
    }

    /// Returns the place of the outcome; 0 for a check that is not counted.
    fn add(&self, check: &Check, outcome: &Outcome) -> usize {
        let soft = softness(check, outcome);
        let Some((place, _)) = counted(check, outcome, soft) else { return 0 };
        if let Some(counters) = self.of(check.resolved().policy().name()) {
            add(counters.outcomes.get(place));
            if soft.warns() {
                add(Some(&counters.warned));
            }
            add(by_on_error(check, outcome).and_then(|place| counters.on_error.get(place)));
        }
        place
    }

    /// Whether the store answered last.
    pub(crate) fn store_answers(&self) -> bool {
        !self.failing.load(Ordering::Relaxed)
    }

    /// The checks of a policy by outcome, and those that were warned of.
    pub(crate) fn outcomes(&self, policy: &str) -> impl Iterator<Item = (&'static str, u64)> {
        let names = OUTCOMES.into_iter().chain(["warned"]);
        let counters = self.of(policy).into_iter();
        let counters = counters.flat_map(|all| all.outcomes.iter().chain([&all.warned]));
        names.zip(counters.map(|counter| counter.load(Ordering::Relaxed)))
    }

    /// Counts stored policies that could not be used.
    pub fn count_ignored(&self) {
        add(Some(&self.ignored));
    }

    /// The counters in the text format of Prometheus. `version` is the revision of the policies in force, and `local` has the
    /// kinds of answers that the server gave without asking its store, with their numbers.
    #[must_use]
    pub fn text(&self, version: u64, local: &[(&str, u64)]) -> String {
        let mut text = String::new();
        let help = "Checks by policy and outcome. Each isolate of a Worker counts for itself";
        head(&mut text, "decisions_total", help, "counter");
        for Counting { name, counters, .. } in &self.policies {
            let labels = alloc::format!("policy=\"{name}\",outcome");
            counted_each(&mut text, "decisions_total", &labels, (&OUTCOMES, &counters.outcomes));
        }
        let help = "Checks that found a limit used as far as its warn_at";
        head(&mut text, "warnings_total", help, "counter");
        for Counting { name, counters, .. } in &self.policies {
            let count = counters.warned.load(Ordering::Relaxed);
            let _ = writeln!(text, "tidegate_warnings_total{{policy=\"{name}\"}} {count}");
        }
        let help = "Checks that the store did not decide, by the answer of the policy's on_error";
        head(&mut text, "on_error_total", help, "counter");
        for Counting { name, counters, .. } in &self.policies {
            let labels = alloc::format!("policy=\"{name}\",answer");
            counted_each(&mut text, "on_error_total", &labels, (&ON_ERROR, &counters.on_error));
        }
        self.write_reservations(&mut text);
        head(&mut text, "local_answers_total", "Answers without asking the store", "counter");
        each(&mut text, "local_answers_total", "kind", local.iter().copied());
        head(&mut text, "policies_version", "The revision of the policies in force", "gauge");
        let _ = writeln!(text, "tidegate_policies_version {version}");
        let help = "Policy files that could not be used, edited or stored, so that earlier ones stayed in force";
        head(&mut text, "policies_ignored_total", help, "counter");
        let ignored = self.ignored.load(Ordering::Relaxed);
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

fn counted_each(
    text: &mut String,
    name: &str,
    labels: &str,
    (values, counters): (&[&str], &[AtomicU64]),
) {
    let counts = counters.iter().map(|counter| counter.load(Ordering::Relaxed));
    each(text, name, labels, values.iter().copied().zip(counts));
}

/// Names of policies need no escaping: they consist of letters, digits, `_`, `-` and `.`.
fn each<'v>(
    text: &mut String,
    name: &str,
    labels: &str,
    counts: impl Iterator<Item = (&'v str, u64)>,
) {
    for (value, count) in counts {
        let _ = writeln!(text, "tidegate_{name}{{{labels}=\"{value}\"}} {count}");
    }
}
