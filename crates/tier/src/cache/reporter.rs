//! What a node knows of an account of which it is a reporter.

use alloc::vec::Vec;

use tidegate_gate::reporter::{Config, FACTOR_LIFE, LocalCap, State};
use tidegate_gate::suppression::{self, REPORT_EVERY, Report};
use tidegate_gate::{
    Decision, Limit, Limiter, Limits, Micros, Probability, Request, Resolved, Timestamp, Verdict,
};

use super::ask::{LocalVerdict, VerdictOf};

/// An account: what the node was offered and has not reported, and what the authority said last.
#[derive(Debug)]
pub(super) struct Reporter {
    config: Config,
    state: State,
    /// The account as far as the node knows it: what the authority said, and what the node was offered since.
    seen: suppression::State,
    said: Option<Said>,
    /// What the authority said to a question sent until this time may be untrue.
    forgot: Option<Micros>,
    /// The earliest time of the next report.
    next_report: Micros,
    /// Reports that are due at once, because the key's clock has jumped: the newest last.
    saved: Vec<Report>,
    /// Where the account is among the reports that are due, if it has units to report.
    place: Option<ReportTurn>,
}

/// When a report is due by the node's clock, and a number that no other report has.
pub(super) type ReportTurn = (Micros, u64);

/// Another place for an account.
pub(super) struct Moved {
    pub(super) from: Option<ReportTurn>,
    pub(super) to: ReportTurn,
}

/// An answer of the authority.
#[derive(Clone, Copy, Debug)]
struct Said {
    /// The time by the key's clock, at which it was decided between these two times by the node's clock.
    at: Timestamp,
    sent: Micros,
    arrived: Micros,
    factor: Probability,
}

impl Said {
    /// The time by the key's clock. The node's wall clock counts as far as it agrees with this answer, so a
    /// wall clock that is wrong puts no units into a wrong part.
    fn clock(&self, now: Timestamp, at: Micros) -> Timestamp {
        let since = |time: Micros| Micros(at.0.saturating_sub(time.0));
        let earliest = self.at.saturating_add(since(self.arrived));
        let latest = self.at.saturating_add(since(self.sent));
        now.max(earliest).min(latest)
    }
}

impl Reporter {
    pub(super) fn new(master: &suppression::Config) -> Self {
        Self {
            config: Config::new(master.limit(), LocalCap::On),
            state: State::default(),
            seen: suppression::State::default(),
            said: None,
            forgot: None,
            next_report: Micros::ZERO,
            saved: Vec::new(),
            place: None,
        }
    }

    /// Decides on a request and counts it. `None` if only the authority can decide: the node knows no factor, or
    /// the cost is none that a node may admit.
    pub(super) fn decide(
        &mut self,
        master: &suppression::Config,
        request: &Request,
        now: Timestamp,
        at: Micros,
    ) -> Option<LocalVerdict> {
        let said = self.said.filter(|said| request.cost > 0 && self.holds(said, at))?;
        let now = said.clock(now, at);
        self.save_before(now);
        let verdict = self.config.decide(&mut self.state, now, request.cost, request.draw).ok()?;
        let (now, passes) = (self.state.newest(), verdict.is_admitted());
        let (admitted, suppressed) = if passes { (request.cost, 0) } else { (0, request.cost) };
        master.report(&mut self.seen, now, Report { offered_at: now, admitted, suppressed });
        Some(LocalVerdict::reported(
            now,
            suppression::said(master, &self.seen, passes),
            said.factor,
        ))
    }

    /// Whether the factor of an answer may still be used.
    fn holds(&self, said: &Said, at: Micros) -> bool {
        let age = at.0.checked_sub(said.sent.0);
        age.is_some_and(|age| age < FACTOR_LIFE.0) && self.forgot < Some(said.sent)
    }

    /// Takes an answer of the authority, unless a newer one has arrived.
    pub(super) fn hear(&mut self, master: &suppression::Config, heard: &VerdictOf<'_>) {
        let VerdictOf { verdict, sent, at: arrived, .. } = *heard;
        let Some(factor) = verdict.factor else { return };
        if self.said.is_some_and(|said| said.sent > sent) {
            return;
        }
        self.said = Some(Said { at: verdict.at, sent, arrived, factor });
        self.save_before(verdict.at);
        self.config.apply(&mut self.state, verdict.at, factor);
        self.see(master, verdict);
    }

    /// Saves the reports of units that the state would lose by a move to `now`, as far as the authority still counts them.
    fn save_before(&mut self, now: Timestamp) {
        let [newer, older] = self.config.take_before(&mut self.state, now);
        if older.is_some() {
            self.saved.retain(|report| now.saturating_since(report.offered_at) < FACTOR_LIFE);
            self.saved.extend(older.into_iter().chain(newer));
            let surplus = self.saved.len().saturating_sub(MOST_SAVED);
            self.saved.drain(..surplus);
        }
    }

    /// Raises the units that the node knows of to those that the authority has counted.
    fn see(&mut self, master: &suppression::Config, verdict: &Verdict) {
        let offered = |said: &Decision| said.limit().saturating_sub(said.remaining());
        let offered = verdict.limits.first().map_or(0, offered);
        master.advance(&mut self.seen, verdict.at);
        let admitted = offered.saturating_sub(self.seen.offered_in_part());
        let report = Report { offered_at: verdict.at, admitted, suppressed: 0 };
        master.report(&mut self.seen, verdict.at, report);
    }

    /// Forgets the factor.
    pub(super) fn forget_factor(&mut self, at: Micros) {
        self.forgot = self.forgot.max(Some(at));
    }

    /// Forgets the units, because the authority forgets them too.
    pub(super) fn forget_units(&mut self) {
        (self.state, self.seen) = (State::default(), suppression::State::default());
        self.saved.clear();
    }

    /// The place that the account must get among the reports that are due, and the one that it has. `None` if it
    /// has no units to report, or has the right place. If an answer has moved the key's clock ahead, the report is
    /// due at once: the next part that begins might be the second one since the units were counted.
    pub(super) fn queue(&mut self, at: Micros, number: u64) -> Option<Moved> {
        let is_overdue =
            !self.saved.is_empty() || self.config.report_due(&self.state, self.state.newest());
        let due = if is_overdue { at } else { self.next_report.max(at) };
        let is_placed = self.place.is_some_and(|(placed, _)| placed <= due);
        if is_placed || !self.has_unreported() {
            return None;
        }
        let to = (due, number);
        Some(Moved { from: self.place.replace(to), to })
    }

    pub(super) const fn is_queued(&self) -> bool {
        self.place.is_some()
    }

    /// Takes the reports. The account is not among the due ones any more.
    pub(super) fn take(&mut self, now: Timestamp, at: Micros) -> [Option<Report>; 2] {
        self.place = None;
        let now = self.said.map_or(now, |said| said.clock(now, at));
        self.save_before(now);
        if let Some(newest) = self.saved.pop() {
            return [Some(newest), self.saved.pop()];
        }
        let reports = self.config.take_reports(&mut self.state, now);
        let span = if reports == [None; 2] { AGAIN } else { REPORT_EVERY };
        self.next_report = Micros(at.0.saturating_add(span.0));
        reports
    }

    fn has_unreported(&self) -> bool {
        let later = self.state.newest().saturating_add(REPORT_EVERY);
        !self.saved.is_empty() || self.config.report_due(&self.state, later)
    }
}

/// The most reports that are saved: one for each part that the authority still counts.
pub(super) const MOST_SAVED: usize = 4;

/// The span after which a report is tried again that was not due by the key's clock, which may stand still.
const AGAIN: Micros = Micros(250_000);

/// The limit by which a node decides as a reporter, if it is one.
pub(super) fn master<'r>(
    resolved: &Resolved,
    limits: &'r Limits,
) -> Option<&'r suppression::Config> {
    if !resolved.policy().reports() {
        return None;
    }
    match &limits.iter().next()?.limit {
        Limit::Suppression(master) => Some(master),
        _ => None,
    }
}
