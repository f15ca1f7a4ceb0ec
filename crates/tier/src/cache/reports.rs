//! Accounts of which a node is a reporter: it decides by the factor heard last, and reports what it was offered.

use alloc::boxed::Box;

use tidegate_gate::suppression::{Config, Report};
use tidegate_gate::{Limits, Micros, Offered, Operation, Resolved, Timestamp};

use super::NodeCache;
use super::ask::{Next, Transmit, VerdictOf};
use super::entry::Entry;
use super::reporter::{Moved, ReportTurn};
use crate::tree::Tree;

/// The reports that are due, by their time.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) accounts: Tree<ReportTurn, Resolved>,
    /// How many places were offered.
    count: u64,
    /// The second report of an account, if it has two.
    second: Option<Transmit>,
}

impl Transmit {
    fn new(resolved: &Resolved, report: Report) -> Self {
        let Report { offered_at, admitted, suppressed } = report;
        let operation = Operation::Report(Offered { at: Some(offered_at), admitted, suppressed });
        Self { resolved: resolved.clone(), operation }
    }
}

impl Due {
    /// A number for a place.
    const fn number(&mut self) -> u64 {
        self.count = self.count.wrapping_add(1);
        self.count
    }

    fn put(&mut self, moved: Moved, resolved: &Resolved) {
        let found = moved.from.and_then(|place| self.accounts.remove(&place));
        self.accounts.insert(moved.to, found.unwrap_or_else(|| Box::new(resolved.clone())));
    }
}

/// Whether the factor heard before the operation is untrue after it.
fn changes_factor(limits: &Limits, operation: &Operation) -> bool {
    match operation {
        Operation::Block(_) => true,
        Operation::Reset(depth) => limits.records().iter().any(|record| record.depth() >= *depth),
        _ => false,
    }
}

impl NodeCache {
    /// The next operation of the node itself that is due at `at`. `now` is the time of the node's wall clock. A driver with
    /// a timer calls this at [`poll_timeout`](Self::poll_timeout) until it returns `None`, and tells
    /// [`handle_verdict`](Self::handle_verdict) each verdict, with `at` as the time at which it was sent.
    #[inline]
    pub fn poll_transmit(&mut self, now: Timestamp, at: Micros) -> Option<Transmit> {
        debug_assert!(self.due.accounts.len() <= self.entries.len(), "an account is due once");
        if self.poll_timeout()? > at {
            return None;
        }
        self.next_report(now, at)
    }

    /// The time of the next [`poll_transmit`](Self::poll_transmit), for a driver with a timer. Without a timer, the
    /// last requests before a pause are reported after it.
    #[must_use]
    #[inline]
    pub fn poll_timeout(&self) -> Option<Micros> {
        match &self.due.second {
            Some(_) => Some(Micros::ZERO),
            None => self.due.accounts.first_key_value().map(|((due, _), _)| *due),
        }
    }

    fn next_report(&mut self, now: Timestamp, at: Micros) -> Option<Transmit> {
        if let Some(second) = self.due.second.take() {
            return Some(second);
        }
        // each account once, because one that is not due by its key's clock comes back
        for _ in 0..self.due.accounts.len() {
            let first = self.due.accounts.first_entry().filter(|next| next.key().0 <= at)?;
            let resolved = first.remove();
            let number = self.due.number();
            let Some(limits) = resolved.limits() else { continue };
            let Some(entry) = self.find(&resolved, limits) else { continue };
            let Some(reporter) = entry.reporter() else { continue };
            let reports = reporter.take(now, at);
            let mut due =
                reports.into_iter().flatten().map(|report| Transmit::new(&resolved, report));
            let (first, second) = (due.next(), due.next());
            if let Some(moved) = reporter.queue(at, number) {
                self.due.put(moved, &resolved);
            }
            self.due.second = second;
            if first.is_some() {
                return first;
            }
        }
        None
    }

    /// Decides on a request as a reporter.
    pub(super) fn ask_as_reporter(
        &mut self,
        resolved: &Resolved,
        limits: &Limits,
        master: &Config,
        (operation, now, at): (&Operation, Timestamp, Micros),
    ) -> Next {
        const FORWARD: Next = Next::Forward { budget: None };
        let Operation::Decide(request) = operation else {
            if changes_factor(limits, operation)
                && let Some(reporter) = self.find(resolved, limits).and_then(Entry::reporter)
            {
                reporter.forget_factor(at);
                if let Operation::Reset(_) = operation {
                    reporter.forget_units();
                }
            }
            return FORWARD;
        };
        let number = self.due.number();
        let entry = self.find_or_add(resolved, limits);
        let Some(reporter) = entry.and_then(Entry::reporter) else { return FORWARD };
        let answer = reporter.decide(master, request, now, at);
        if let Some(moved) = reporter.queue(at, number) {
            self.due.put(moved, resolved);
        }
        answer.map_or(FORWARD, Next::Answer)
    }

    /// Takes the factor of the authority's verdict.
    pub(super) fn hear_as_reporter(
        &mut self,
        limits: &Limits,
        master: &Config,
        heard: &VerdictOf<'_>,
    ) {
        let number = self.due.number();
        let Some(entry) = self.find(heard.resolved, limits) else { return };
        let Some(reporter) = entry.reporter() else { return };
        if changes_factor(limits, heard.operation) {
            // what was asked before this moment may have been decided before the operation
            reporter.forget_factor(heard.at);
        }
        reporter.hear(master, heard);
        if let Some(moved) = reporter.queue(heard.at, number) {
            self.due.put(moved, heard.resolved);
        }
    }
}
