//! The worlds in which everything fails: fixed seeds, and every script that once broke an invariant.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap ends its test")]

use std::fs;
use std::path::Path;

use tidegate_sim::world::{
    Event, History, Script, Tally, Topology, situations, situations_with_reservations,
};

/// Runs the histories of the first seeds. Each situation must be seen this often in them.
fn check(topology: Topology, histories: u64, often: u64) {
    let tally = run(histories, |seed| History::of_seed(topology, seed).unwrap());
    for situation in situations(topology) {
        assert!(tally.count(situation) >= often, "{situation}: seen too seldom in\n{tally}");
    }
}

/// The same with reservations.
fn check_with_reservations(topology: Topology, histories: u64, often: u64) {
    let of_seed = |seed| History::of_seed_with_reservations(topology, seed).unwrap();
    let tally = run(histories, of_seed);
    for situation in situations_with_reservations(topology) {
        assert!(tally.count(situation) >= often, "{situation}: seen too seldom in\n{tally}");
    }
}

fn run(histories: u64, of_seed: impl Fn(u64) -> History) -> Tally {
    let mut tally = Tally::default();
    for seed in 0..histories {
        let history = of_seed(seed);
        if let Some(violation) = history.violation {
            let (script, _) = history.script.shrink().unwrap().unwrap();
            panic!("seed {seed}: {violation}\n\n{script}");
        }
        tally.merge(&history.tally);
    }
    tally
}

#[test]
fn every_invariant_holds_in_the_histories_of_hosts() {
    check(Topology::Hosts, 800, 10);
}

#[test]
fn every_invariant_holds_in_the_histories_of_a_table() {
    check(Topology::Table, 600, 50);
}

#[test]
fn every_invariant_holds_in_the_histories_of_objects() {
    check(Topology::Objects, 200, 1);
}

#[test]
fn every_invariant_holds_in_the_histories_of_wire() {
    check(Topology::Wire, 200, 100);
}

#[test]
fn every_invariant_holds_in_the_histories_of_an_outage() {
    check(Topology::Outage, 400, 100);
}

#[test]
fn every_invariant_holds_in_the_histories_of_hosts_with_reservations() {
    check_with_reservations(Topology::Hosts, 300, 10);
}

#[test]
fn every_invariant_holds_in_the_histories_of_a_table_with_reservations() {
    check_with_reservations(Topology::Table, 200, 10);
}

#[test]
fn every_invariant_holds_in_the_histories_of_objects_with_reservations() {
    check_with_reservations(Topology::Objects, 120, 5);
}

#[test]
fn every_invariant_holds_in_the_histories_of_wire_with_reservations() {
    check_with_reservations(Topology::Wire, 60, 50);
}

#[test]
fn every_invariant_holds_in_the_scripts_that_once_broke_one() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/world/scripts");
    let mut scripts = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let script: Script = fs::read_to_string(&path).unwrap().parse().unwrap();
        assert_eq!(script.run().unwrap(), None, "{}", path.display());
        scripts += 1;
    }
    assert!(scripts > 0);
}

#[test]
fn a_seed_gives_the_same_history_again_and_its_script_too() {
    for (topology, _) in Topology::ALL {
        for seed in 0..20 {
            for of_seed in [History::of_seed, History::of_seed_with_reservations] {
                let history = of_seed(topology, seed).unwrap();
                assert_eq!(of_seed(topology, seed).unwrap().script, history.script);
                let read: Script = history.script.to_string().parse().unwrap();
                assert_eq!(read, history.script);
                assert_eq!(read.run().unwrap(), history.violation);
            }
        }
    }
}

#[test]
fn lines_that_are_no_script_are_refused() {
    for (line, expected) in [
        ("pole 0", "expected an event such as `poll 0`, found `pole 0`"),
        ("poll x", "expected a number, found `x`"),
        ("ask 0 0 give 1", "expected what is asked for, such as `take 1`, found `give 1`"),
        ("houses: 3", "expected a parameter such as `keys: 2`, found `houses`"),
        (
            "topology: ring",
            "expected one of `hosts`, `table`, `objects`, `wire`, `outage`, found `ring`",
        ),
    ] {
        let error = line.parse::<Script>().unwrap_err();
        assert!(format!("{error:#}").contains(expected), "{error:#}");
    }
    let unknown: Script = "policies: unknown\npoll 0".parse().unwrap();
    assert_eq!(unknown.events, [Event::Poll(0)]);
    assert!(unknown.run().is_err());
}
