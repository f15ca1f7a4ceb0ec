//! The world of objects: fixed seeds, and every script that once broke an invariant.

use std::fs;
use std::path::Path;

use tidegate_sim::world::Tally;
use tidegate_sim::world::objects::{History, SITUATIONS, Script};

/// How many histories run. They take some seconds.
const HISTORIES: u64 = 200;

#[test]
fn every_invariant_holds_in_the_histories_of_fixed_seeds() {
    let mut tally = Tally::default();
    for seed in 0..HISTORIES {
        let history = History::of_seed(seed).unwrap();
        if let Some(violation) = history.violation {
            let (script, violation) =
                history.script.shrink().unwrap().unwrap_or((history.script, violation));
            panic!("seed {seed}: {violation}\n\n{script}");
        }
        tally.merge(&history.tally);
    }
    for situation in SITUATIONS {
        assert!(tally.count(situation) > 0, "{situation}: seen too seldom in\n{tally}");
    }
}

#[test]
fn every_invariant_holds_in_the_scripts_that_once_broke_one() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/world/objects/scripts");
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let script: Script = fs::read_to_string(&path).unwrap().parse().unwrap();
        assert_eq!(script.run().unwrap(), None, "{}", path.display());
    }
}
