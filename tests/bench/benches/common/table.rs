//! The table of the figures.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

pub(crate) struct Table {
    /// The name of the benchmark, with which the names of its rows begin.
    bench: &'static str,
    groups: Vec<(String, Vec<Row>)>,
}

pub(crate) struct Row {
    what: &'static str,
    figure: Figure,
    beside: Vec<Beside>,
}

#[derive(Clone, Copy)]
pub(crate) enum Figure {
    PerSecond(f64),
    Time(Duration),
    Number(f64),
}

/// A baseline of a row.
struct Beside {
    baseline: &'static str,
    figure: Figure,
    goal: Goal,
}

/// What a figure divided by its baseline should be.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    Unset,
}

impl Table {
    pub(crate) const fn of(bench: &'static str) -> Self {
        Self { bench, groups: Vec::new() }
    }

    pub(crate) fn group(&mut self, work: &str, rows: Vec<Row>) {
        self.groups.push((work.to_owned(), rows));
    }

    /// Writes the rows in the form that `cargo xtask bench --json` has for all benchmarks.
    pub(crate) fn write_json(&self, file: &Path) -> Result<()> {
        let json = |(work, rows): &(String, Vec<Row>)| {
            let work = format!("{}/{work}", self.bench);
            rows.iter().map(|row| row.json(&work)).collect::<Vec<_>>()
        };
        let rows = self.groups.iter().flat_map(json);
        let text = serde_json::to_string_pretty(&rows.collect::<Vec<_>>())?;
        fs::write(file, text).with_context(|| file.display().to_string())
    }
}

impl Row {
    pub(crate) fn new(what: &'static str, figure: Figure) -> Self {
        Self { what, figure, beside: Vec::new() }
    }

    /// Compares the row with a baseline.
    pub(crate) fn beside(mut self, baseline: &'static str, figure: Figure, goal: Goal) -> Self {
        self.beside.push(Beside { baseline, figure, goal });
        self
    }

    fn json(&self, work: &str) -> Value {
        let (unit, value) = match self.figure {
            Figure::PerSecond(rate) => ("per_second", json!(rate)),
            Figure::Time(time) => ("picoseconds", json!(time.as_nanos() as u64 * 1_000)),
            Figure::Number(number) => ("number", json!(number)),
        };
        let ratios = self.beside.iter().map(|beside| {
            let thousandths = (self.figure.over(beside.figure) * 1_000.0).round() as u64;
            json!({ "baseline": beside.baseline, "thousandths": thousandths })
        });
        let ratios: Vec<Value> = ratios.collect();
        json!({ "name": format!("{work}/{}", self.what), unit: value, "ratios": ratios })
    }
}

impl Figure {
    fn over(self, baseline: Self) -> f64 {
        self.value() / baseline.value()
    }

    fn value(self) -> f64 {
        match self {
            Self::PerSecond(value) | Self::Number(value) => value,
            Self::Time(time) => time.as_secs_f64(),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (work, rows) in &self.groups {
            writeln!(f, "{work}")?;
            for row in rows {
                write!(f, "  {:26}{:>12}", row.what, row.figure.to_string())?;
                for (place, beside) in row.beside.iter().enumerate() {
                    let indent =
                        if place == 0 { "" } else { "\n                                        " };
                    let Beside { baseline, figure, goal } = beside;
                    let ratio = row.figure.over(*figure);
                    write!(f, "{indent}   {ratio:.2} of {baseline}, {figure}{goal}")?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerSecond(rate) => write!(f, "{rate:.0}/s"),
            Self::Time(time) => write!(f, "{:.1} µs", time.as_secs_f64() * 1e6),
            Self::Number(number) if number.fract() == 0.0 => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{number:.3}"),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(goal) => write!(f, " (goal: at least {goal})"),
            Self::AtMost(goal) => write!(f, " (goal: at most {goal})"),
            Self::Unset => Ok(()),
        }
    }
}
