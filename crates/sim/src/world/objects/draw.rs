//! Objects drawn at random.

use crate::world::clock::MOST_TICKS_PPM;
use crate::world::draw::Draws;
use crate::world::places::Places;
use crate::world::policies::{AHEAD, HOSTS, RESERVED, RESERVED_AHEAD};
use crate::world::setup::Setup;
use crate::world::topology::Topology;

/// The most by which a clock of a bounded world is off, in µs.
const MOST_SKEW: u64 = 200_000;

/// A world for a seed.
pub(in crate::world) fn draw(draws: &mut Draws, reserves: bool) -> anyhow::Result<Setup> {
    let (further, usual) = match reserves {
        true => (&RESERVED_AHEAD[..], &RESERVED[..]),
        false => (&AHEAD[..], &HOSTS[..]),
    };
    let known: Vec<&str> = further.iter().chain(usual).map(|(name, _)| *name).collect();
    let ahead: Vec<&str> = known.iter().copied().filter(|name| name.starts_with("ahead")).collect();
    let mut policies: Vec<String> = Vec::new();
    for _ in 0..=draws.below(3) {
        let name = if draws.below(3) > 0 { draws.one_of(&ahead) } else { draws.one_of(&known) };
        if !policies.iter().any(|other| other == name) {
            policies.push(name.into());
        }
    }
    // of two neighbours, one is too fast and the other as much too slow
    let turns =
        |clocks: usize, ppm: i64| (0..clocks).map(move |at| if at % 2 == 0 { ppm } else { -ppm });
    let (objects, nodes) = (1 + draws.index(2), 1 + draws.index(3));
    let mut setup = Setup {
        topology: Topology::Objects,
        policies,
        objects,
        nodes,
        keys: 1 + draws.index(3),
        start: 1_700_000_000_000_000 + draws.below(10_000_000),
        drifts_ppm: turns(objects, draws.one_of(&[0, 0, 200, 20_000])).collect(),
        ticks_ppm: turns(nodes, draws.one_of(&[0, MOST_TICKS_PPM])).collect(),
        skew: draws.one_of(&[0, 1_000, MOST_SKEW, MOST_SKEW, 20_000_000]),
        ttl_margin: 0,
        linger: draws.one_of(&[10_000, 100_000, 3_000_000]),
        deadline: draws.one_of(&[20_000, 1_000_000, 1_000_000, 10_000_000]),
        most: draws.one_of(&[4, 1_000, 1_000]),
        most_under_way: draws.one_of(&[1, 3, 8]),
        // the world sees an answer once all of its question have one
        most_operations: 1,
        most_bytes: draws.one_of(&[80, 10_000, 10_000]),
        most_keys: draws.one_of(&[0, 1, 64, 64]),
        bytes: draws.one_of(&[2_000, 1_000_000, 1_000_000]),
        most_waiting: draws.one_of(&[3, 1_000, 1_000]),
        most_records: draws.one_of(&[1, 3, 64]),
        most_wait: draws.one_of(&[100_000, 1_000_000_000, 1_000_000_000]),
        patience: draws.one_of(&[200_000, 1_000_000_000]),
        remembered: draws.one_of(&[0, 900, 1_000_000, 1_000_000]),
        ..Setup::default()
    };
    setup.is_bounded = setup.skew <= MOST_SKEW;
    if setup.is_bounded {
        // operations are decided at a time that is up to half a period old, by a clock that is off, and
        // a clock that drifts is slower by so much over the life of a state
        let period = Places::new(&setup)?.longest_period();
        setup.ttl_margin = 4 * setup.skew + period + setup.linger + 1_000;
    }
    Ok(setup)
}
