//! Hosts whose store goes away, drawn at random.

use crate::world::draw::Draws;
use crate::world::policies::LOCAL;
use crate::world::setup::Setup;
use crate::world::topology::Topology;

/// A world for a seed.
pub(in crate::world) fn draw(draws: &mut Draws) -> Setup {
    let names = LOCAL.map(|(name, _)| name);
    Setup {
        topology: Topology::Outage,
        policies: vec![draws.one_of(&names).into()],
        keys: 1 + draws.index(3),
        nodes: 1 + draws.index(4),
        linger: draws.one_of(&[10_000, 3_000_000]),
        patience: draws.one_of(&[5_000, 1_000_000_000]),
        most_records: draws.one_of(&[1, 64]),
        is_only_writer: false,
        ..Setup::default()
    }
}
