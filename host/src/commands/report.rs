//! The report of a replay, for people.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use tidegate::gate::Operation;
use tidegate::replay::{DecisionForm, Line};

/// How many of the most refused keys, and how many of the unreadable lines, the report shows.
const SHOWN: usize = 10;

/// The counts of a replay so far.
#[derive(Default)]
pub(crate) struct Report {
    lines: u64,
    allowed: u64,
    denied: u64,
    /// The requests whose cost the limits can never grant, and the first of their lines.
    too_costly: u64,
    first_too_costly: Option<(u64, String)>,
    unreadable: u64,
    went_back: u64,
    /// The lines whose last field names another client than the key, and the first of them.
    behind: u64,
    first_behind: Option<(u64, String)>,
    newest: u64,
    first_unreadable: Vec<(u64, String)>,
    /// The refused and the allowed requests of each policy and key.
    keys: HashMap<(String, String), (u64, u64)>,
}

impl Report {
    /// Counts a line and its decision, which is `None` if the line cannot be read.
    pub(crate) fn add(&mut self, line: &Line, decision: Option<&DecisionForm>) {
        self.lines += 1;
        match (line, decision) {
            (Ok(event), Some(decision)) => {
                if event.at.0 < self.newest {
                    self.went_back += 1;
                }
                self.newest = event.at.0;
                if let Some(client) = event.behind {
                    self.behind += 1;
                    let found = || (self.lines, format!("{client}, and the key is {}", event.key));
                    self.first_behind.get_or_insert_with(found);
                }
                let resolved = event.asked.resolved();
                let key = (resolved.policy().name().to_owned(), resolved.key().to_owned());
                let (refused, allowed) = self.keys.entry(key).or_default();
                let is_block = matches!(event.asked.operation(), Operation::Block(_)); // done, although it says that the key is refused
                if decision.allowed || is_block {
                    (self.allowed, *allowed) = (self.allowed + 1, *allowed + 1);
                } else if event.asked.costs_too_much() && !resolved.is_denied() {
                    self.too_costly += 1;
                    let policy = resolved.policy().name();
                    self.first_too_costly.get_or_insert_with(|| (self.lines, policy.to_owned()));
                } else {
                    (self.denied, *refused) = (self.denied + 1, *refused + 1);
                }
            }
            (Err(reason), _) => {
                self.unreadable += 1;
                if self.first_unreadable.len() < SHOWN {
                    self.first_unreadable.push((self.lines, reason.clone()));
                }
            }
            (Ok(_), None) => {}
        }
    }

    /// # Errors
    /// Returns an error if the trace has no line, or none that can be read.
    pub(crate) fn something_was_decided(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.lines > 0, "expected at least one line, found an empty trace");
        anyhow::ensure!(
            self.lines > self.unreadable,
            "expected at least one line that can be read, found none in {} lines",
            self.lines
        );
        Ok(())
    }

    /// The report as text.
    pub(crate) fn text(&self, took: Duration) -> String {
        let decided = self.allowed + self.denied + self.too_costly;
        let too_costly = match self.too_costly {
            0 => String::new(),
            number => format!(", {number} too costly"),
        };
        let micros = took.as_micros().max(1);
        let mut text = format!(
            "{} lines, {} keys: {} allowed, {} refused{too_costly}, {} unreadable; {} went back in time\n\
             {} decisions in {took:.1?}, {} a second\n",
            self.lines,
            self.keys.len(),
            self.allowed,
            self.denied,
            self.unreadable,
            self.went_back,
            decided,
            u128::from(decided) * 1_000_000 / micros,
        );
        let mut refused: Vec<_> = self.keys.iter().filter(|(_, counts)| counts.0 > 0).collect();
        refused.sort_by_key(|(key, counts)| (std::cmp::Reverse(counts.0), (*key).clone()));
        if !refused.is_empty() {
            text += "refused most:\n   refused   allowed  policy           key\n";
        }
        for ((policy, key), (refused, allowed)) in refused.iter().take(SHOWN) {
            let _ = writeln!(text, "{refused:>10}{allowed:>10}  {policy:<16} {key}");
        }
        if refused.len() > SHOWN {
            let _ = writeln!(text, "  … and {} more keys", refused.len() - SHOWN);
        }
        if let Some((number, policy)) = &self.first_too_costly {
            let why = "can never grant the cost, so no wait helps";
            let _ = writeln!(text, "line {number}: the limits of {policy:?} {why}");
        }
        if let Some((number, found)) = &self.first_behind {
            let _ = writeln!(
                text,
                "line {number}: the last field names the client {found}, as in {} lines: list the address of your proxy in \
                 `trusted_proxies` of the policy file to count by client",
                self.behind
            );
        }
        for (number, reason) in &self.first_unreadable {
            let _ = writeln!(text, "line {number}: {reason}");
        }
        let hidden = usize::try_from(self.unreadable).unwrap_or(0) - self.first_unreadable.len();
        if hidden > 0 {
            let _ = writeln!(text, "  … and {hidden} more lines");
        }
        text
    }
}
