//! Hosts drawn at random.

use crate::world::acts::LONGEST_BLOCK;
use crate::world::clock::{MOST_TICKS_PPM, ticks_late};
use crate::world::draw::Draws;
use crate::world::places::Places;
use crate::world::policies::{HOSTS, RESERVED, TABLE};
use crate::world::setup::{Setup, lets_answer};
use crate::world::topology::Topology;

/// A world for a seed.
pub(in crate::world) fn draw(draws: &mut Draws, reserves: bool) -> anyhow::Result<Setup> {
    let is_bounded = draws.below(4) > 0;
    let tells_time = is_bounded || draws.flip();
    let skew = match is_bounded {
        true => draws.one_of(&[0, 1_000, 200_000]),
        false => draws.one_of(&[0, 500_000, 20_000_000]),
    };
    let linger = draws.one_of(&[10_000, 100_000, 3_000_000]);
    let nodes = 1 + draws.index(3);
    let drift = |draws: &mut Draws| draws.one_of(&[0, 0, 200, -300, 20_000, -20_000]);
    // half of the worlds are those in which nodes answer by themselves
    let lets_nodes_answer = draws.flip();
    let all = if reserves { &RESERVED[..] } else { &HOSTS[..] };
    let known = all.iter().map(|(name, _)| *name);
    let known: Vec<&str> = known.filter(|name| !lets_nodes_answer || lets_answer(name)).collect();
    let mut policies: Vec<String> = Vec::new();
    for _ in 0..=draws.below(if lets_nodes_answer { 2 } else { 4 }) {
        let name = draws.one_of(&known);
        if !policies.iter().any(|other| other == name) {
            policies.push(name.into());
        }
    }
    let mut setup = Setup {
        topology: Topology::Hosts,
        policies,
        keys: 1 + draws.index(3),
        nodes,
        start: 1_700_000_000_000_000 + draws.below(10_000_000),
        drifts_ppm: (0..=nodes).map(|_| drift(draws)).collect(),
        ticks_ppm: (0..nodes).map(|_| draws.one_of(&[0, 0, MOST_TICKS_PPM, -500, 100])).collect(),
        asks_first: draws.one_of(&[false, false, true]),
        has_caches: lets_nodes_answer || draws.flip(),
        most_keys: draws.one_of(&[0, 1, 2, 64, 64, 64]),
        skew,
        ttl_margin: 0,
        linger,
        patience: draws.one_of(&[0, 5_000, 200_000, 1_000_000_000]),
        most_wait: draws.one_of(&[1_000_000, 1_000_000_000]),
        most_waiting: draws.one_of(&[4, 32, 1_000_000, 1_000_000]),
        most_records: draws.one_of(&[0, 1, 3, 64]),
        remembered: draws.one_of(&[0, 700, 1_500, 1 << 20]),
        tells_time,
        is_bounded,
        ..Setup::default()
    };
    if lets_nodes_answer {
        (setup.patience, setup.most_waiting) = (setup.patience.max(200_000), 1_000);
    }
    if is_bounded {
        // an operation is decided at a time that is up to half a period old, by a clock that is off, and
        // its swap is under way; the storage's clock is off too, by so much more or less than before
        let places = Places::new(&setup)?;
        let (period, reserved) = (places.longest_period(), places.longest_reservation());
        setup.ttl_margin = 4 * skew + period / 2 + linger + 1_000;
        // how long a record is kept counts by a node's monotonic clock and by the storage's
        setup.ttl_margin +=
            ticks_late(4 * (LONGEST_BLOCK + reserved + 2 * period + setup.ttl_margin));
    }
    Ok(setup)
}

/// Nodes around a table for a seed. All clocks run alike. Those of nodes that report may be ahead by any time.
pub(in crate::world) fn draw_table(draws: &mut Draws, reserves: bool) -> Setup {
    let (kind, all) = match reserves {
        true => ("", &RESERVED[..]),
        false => (draws.one_of(&["refused", "lent", "reported"]), &TABLE[..]),
    };
    let names = all.iter().map(|(name, _)| *name).filter(|name| name.starts_with(kind));
    let policy = draws.one_of(&names.collect::<Vec<_>>());
    let reports = kind == "reported";
    let nodes = 3;
    let is_within = reports && draws.flip();
    let is_right = !reports || is_within || draws.below(3) == 0;
    let ahead = |draws: &mut Draws| match draws.below(4) {
        0 => 0,
        1 => draws.one_of(&[i64::MIN, i64::MAX]),
        _ => i64::try_from(draws.below(80_000_000)).unwrap_or(0) - 40_000_000,
    };
    Setup {
        topology: Topology::Table,
        policies: vec![policy.into()],
        keys: 2,
        nodes,
        start: 1_700_000_000_000_000 + draws.below(10_000_000),
        ahead: (0..nodes).map(|_| if is_right { 0 } else { ahead(draws) }).collect(),
        skew: if is_right { 0 } else { u64::MAX },
        linger: draws.one_of(&[50_000, 3_000_000]),
        has_timers: draws.flip(),
        is_within,
        ..Setup::default()
    }
}
