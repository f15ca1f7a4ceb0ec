//! What a replay tells a person.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use tidegate::gate::http::DecisionForm;
use tidegate::replay::Line;

/// How many of the keys refused most, and of the lines that cannot be read, are shown.
const SHOWN: usize = 10;

/// Counts of a replay, as it goes on.
#[derive(Default)]
pub(crate) struct Report {
    lines: u64,
    allowed: u64,
    denied: u64,
    unreadable: u64,
    went_back: u64,
    newest: u64,
    first_unreadable: Vec<(u64, String)>,
    /// By policy and key: refused, allowed.
    keys: HashMap<(String, String), (u64, u64)>,
}

impl Report {
    /// Takes in a line and what was decided on it; `None` if it could not be read.
    pub(crate) fn add(&mut self, line: &Line, decision: Option<&DecisionForm>) {
        self.lines += 1;
        match (line, decision) {
            (Ok(event), Some(decision)) => {
                if event.at.0 < self.newest {
                    self.went_back += 1;
                }
                self.newest = event.at.0;
                let policy = event.asked.resolved().policy().name();
                let key = (policy.to_owned(), event.key.clone());
                let (refused, allowed) = self.keys.entry(key).or_default();
                if decision.allowed {
                    (self.allowed, *allowed) = (self.allowed + 1, *allowed + 1);
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
    /// If there were lines, and none of them could be read.
    pub(crate) fn something_was_decided(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.lines == 0 || self.lines > self.unreadable,
            "none of {} lines can be read",
            self.lines
        );
        Ok(())
    }

    /// In words.
    pub(crate) fn text(&self, took: Duration) -> String {
        let decided = self.allowed + self.denied;
        let micros = took.as_micros().max(1);
        let mut text = format!(
            "{} lines, {} keys: {} allowed, {} refused, {} unreadable; {} went back in time\n\
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
            let _ = writeln!(text, "  … and {} keys more", refused.len() - SHOWN);
        }
        for (number, reason) in &self.first_unreadable {
            let _ = writeln!(text, "line {number} cannot be read: {reason}");
        }
        let hidden = usize::try_from(self.unreadable).unwrap_or(0) - self.first_unreadable.len();
        if hidden > 0 {
            let _ = writeln!(text, "  … and {hidden} lines more");
        }
        text
    }
}
