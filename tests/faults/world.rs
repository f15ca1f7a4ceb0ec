//! Hosts with two policies, and what is said of each fault.

use std::fs;
use std::process::Command;
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
    World::new((POLICIES, &["closed", "open"]), hosts, arguments)
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
    /// Checks what was heard, and keeps the row for the table of docs/operations.md.
    pub fn check(self, world: &World) -> Heard {
        let each = world.heard();
        let heard = Heard::all(&each);
        let Self { fault, bound, recovered } = self;
        println!("{fault}: bound {bound}, recovered in {recovered:.1?}; {each:?}");
        assert!(
            heard.granted <= bound && heard.granted_open <= bound,
            "{fault}: bound {bound}; {heard:?}"
        );
        assert!(heard.granted > 0 && heard.granted_open > 0, "{fault}: {heard:?}");
        let errors: u64 = (0..each.len())
            .filter(|number| world.runs(*number))
            .map(|number| {
                world.metric(number, "tidegate_decisions_total{policy=\"closed\",outcome=\"error\"")
            })
            .sum();
        let lost = if heard.lost > 0 { format!("; {} lost", heard.lost) } else { String::new() };
        keep(
            fault,
            &format!(
                "| {fault} | {} and {} of {bound} | {} refused, {} passed{lost} | {} ms | {} ms | {errors} |",
                heard.granted,
                heard.granted_open,
                heard.failed_closed,
                heard.passed_open,
                heard.longest.as_millis(),
                recovered.as_millis(),
            ),
        );
        heard
    }
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

pub fn signal(id: u32, name: &str) {
    assert!(Command::new("kill").args([name, &id.to_string()]).status().unwrap().success());
}
