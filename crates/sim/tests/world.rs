//! The world in which everything fails: fixed seeds, and every script that once broke an invariant.

use std::fs;
use std::path::Path;

use tidegate_sim::world::{Event, History, SITUATIONS, Script, Tally, shrink};

/// How many histories run. They take some seconds.
const HISTORIES: u64 = 800;

#[test]
fn every_invariant_holds_in_the_histories_of_fixed_seeds() {
    let mut tally = Tally::default();
    for seed in 0..HISTORIES {
        let history = History::of_seed(seed).unwrap();
        if let Some(violation) = history.violation {
            let (script, _) = shrink(&history.script).unwrap().unwrap();
            panic!("seed {seed}: {violation}\n\n{script}");
        }
        tally.merge(&history.tally);
    }
    for situation in SITUATIONS {
        assert!(tally.count(situation) >= 10, "{situation}: seen too seldom in\n{tally}");
    }
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
    for seed in 0..20 {
        let history = History::of_seed(seed).unwrap();
        assert_eq!(History::of_seed(seed).unwrap().script, history.script);
        let read: Script = history.script.to_string().parse().unwrap();
        assert_eq!(read, history.script);
        assert_eq!(read.run().unwrap(), history.violation);
    }
}

#[test]
fn lines_that_are_no_script_are_refused() {
    for (line, expected) in [
        ("pole 0", "expected an event such as `poll 0`, found `pole 0`"),
        ("poll x", "expected a number, found `x`"),
        ("ask 0 0 give 1", "expected what is asked for, such as `take 1`, found `give 1`"),
        ("nodes: 3", "expected a parameter such as `keys: 2`, found `nodes`"),
    ] {
        let error = line.parse::<Script>().unwrap_err();
        assert!(format!("{error:#}").contains(expected), "{error:#}");
    }
    let unknown: Script = "policies: unknown\npoll 0".parse().unwrap();
    assert_eq!(unknown.events, [Event::Poll(0)]);
    assert!(unknown.run().is_err());
}
