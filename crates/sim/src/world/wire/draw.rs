//! Nodes, an authority and a store drawn at random.

use crate::world::draw::Draws;
use crate::world::setup::Setup;
use crate::world::topology::Topology;

/// A world for a seed.
pub(in crate::world) fn draw(draws: &mut Draws, reserves: bool) -> Setup {
    let policies: &[&str] = match draws.below(10) < 3 {
        _ if reserves => &["held-large", "held-small"],
        true => &["large-shared", "small-shared"],
        false => &["large", "small", "alone"],
    };
    Setup {
        topology: Topology::Wire,
        policies: policies.iter().map(|name| (*name).into()).collect(),
        keys: 1 + draws.index(2),
        nodes: 1 + draws.index(3),
        linger: draws.one_of(&[10_000, 100_000, 2_000_000]),
        most: draws.one_of(&[6, 1_000]),
        most_of_a_group: draws.one_of(&[4, 1_000]),
        most_under_way: draws.one_of(&[1, 1, 2, 4]),
        most_operations: draws.one_of(&[2, 1_000]),
        most_bytes: draws.one_of(&[70, 10_000]),
        deadline: draws.one_of(&[20_000, 300_000, 10_000_000]),
        // with few bytes of memory an authority forgets replies, and refuses questions
        bytes: draws.one_of(&[2_000, 1 << 20]),
        most_waiting: draws.one_of(&[8, 1_000]),
        is_only_writer: draws.flip(),
        ..Setup::default()
    }
}
