//! Faults, each against real processes of `tidegate serve`: what is granted beside the bound that docs/operations.md states, what
//! `on_error` decides meanwhile, how long the slowest answer takes, how soon hosts recover by themselves, and what the metric counts.
//!
//! `cargo run -p tidegate-tests --bin faults` writes the table of docs/operations.md from the last run.

mod host;
mod redis;

use std::fs;
use std::time::Duration;

use tidegate_tests::{Heard, World};

/// What a key is granted while nothing fails. Nothing comes back.
pub const LIMIT: u64 = 500;

pub const POLICIES: &str = "
[policies.closed]
limits = [{ algorithm = 'fixed_window', limit = 500, period = '365d' }]
[policies.open]
limits = [{ algorithm = 'fixed_window', limit = 500, period = '365d' }]
on_error = 'open'
";

/// How long Redis may be silent in the rows of which the test demands that `on_error` decides nothing. A busy machine keeps it.
const PATIENT: &str = "10000";

pub fn world(hosts: usize, arguments: &[&str]) -> World {
    World::new((POLICIES, &["closed", "open"]), (hosts, hosts), arguments)
}

/// The same with hosts whose deadline is `PATIENT`.
pub fn patient(hosts: usize, arguments: &[&str]) -> World {
    world(hosts, &[arguments, &["--redis-deadline", PATIENT]].concat())
}

/// A row of the table.
pub struct Row {
    pub fault: &'static str,
    /// What may be granted under each policy, beside what `on_error` lets pass.
    pub bound: u64,
    pub recovered: Duration,
}

impl Row {
    /// Checks what was heard under `closed` and `open`, and keeps the row for the table of docs/operations.md.
    pub fn check(self, world: &World) -> [Heard; 2] {
        let each = world.heard();
        let [closed, open] = under_both(&each);
        let Self { fault, bound, recovered } = self;
        println!("{fault}: bound {bound}, recovered in {recovered:.1?}; {each:?}");
        for heard in [closed, open] {
            assert!((1..=bound).contains(&heard.granted), "{fault}: bound {bound}; {heard:?}");
        }
        assert_eq!((closed.passed, open.failed), (0, 0), "{fault}: `on_error` decides as it says");
        let errors: u64 = (0..=each.last().unwrap().host)
            .filter(|number| world.runs(*number))
            .map(|number| {
                world.metric(number, "tidegate_decisions_total{policy=\"closed\",outcome=\"error\"")
            })
            .sum();
        let lost = closed.lost + open.lost;
        let lost = if lost > 0 { format!("; {lost} lost") } else { String::new() };
        keep(
            fault,
            &format!(
                "| {fault} | {} and {} of {bound} | {} refused, {} passed{lost} | {} ms | {} ms | {errors} |",
                closed.granted,
                open.granted,
                closed.failed,
                open.passed,
                closed.longest.max(open.longest).as_millis(),
                recovered.as_millis(),
            ),
        );
        [closed, open]
    }

    /// The same, for a fault of which no caller hears.
    pub fn check_unnoticed(self, world: &World) {
        for heard in self.check(world) {
            assert_eq!((heard.failed, heard.passed, heard.lost), (0, 0, 0), "{heard:?}");
        }
    }
}

/// What the callers of all hosts heard under `closed` and `open`.
fn under_both(each: &[Heard]) -> [Heard; 2] {
    ["closed", "open"].map(|policy| Heard::under(policy, each))
}

/// `cargo run -p tidegate-tests --bin faults` puts the rows together.
fn keep(fault: &str, row: &str) {
    let folder =
        tidegate_tests::command().parent().map(|folder| folder.join("fault-rows")).unwrap();
    fs::create_dir_all(&folder).unwrap();
    let name: String = fault
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' })
        .collect();
    fs::write(folder.join(name), row).unwrap();
    let page = fs::read_to_string(tidegate::local::workspace().join("docs/operations.md")).unwrap();
    assert!(
        page.contains(&format!("| {fault} |")),
        "docs/operations.md: expected a row of {fault}"
    );
}
