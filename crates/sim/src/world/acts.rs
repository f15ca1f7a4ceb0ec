//! What callers ask for, drawn at random.

use tidegate_gate::Depth;

use super::act::Act;
use super::draw::Draws;
use super::places::Kinds;

/// The longest block, in µs.
pub(super) const LONGEST_BLOCK: u64 = 4_000_000;

/// How many numbers those reservations have that have none of their own. Commits come for one more.
pub(super) const RESERVATIONS: u64 = 7;

/// The weight of each kind of act.
#[derive(Debug, Default)]
pub(super) struct Acts([u64; KINDS]);

const KINDS: usize = 14;

/// How many of them there are in a world without reservations.
const USUAL: usize = 11;

// The places of some kinds.
const REFUND: usize = 5;
const RESERVE: usize = 11;
const FINISH: usize = 12;
const COMMIT: usize = 13;

/// The most that a kind of act weighs, in tenths of a request.
const MOST: [u64; KINDS] = [80, 20, 60, 30, 30, 20, 30, 30, 20, 2, 2, 100, 90, 12];

impl Acts {
    pub(super) fn draw(draws: &mut Draws, reserves: bool) -> Self {
        let mut acts = Self([0; KINDS]);
        let kinds = if reserves { KINDS } else { USUAL };
        for (own, most) in acts.0.iter_mut().zip(MOST).take(kinds) {
            *own = draws.below(most + 1);
        }
        if reserves {
            acts.0[RESERVE] += 20;
            acts.0[FINISH] += 20;
        }
        acts
    }

    /// Requests, and what callers do with reservations where there are any.
    pub(super) const fn of_wire() -> Self {
        let mut acts = Self([0; KINDS]);
        (acts.0[RESERVE], acts.0[FINISH], acts.0[COMMIT]) = (40, 30, 6);
        acts
    }

    /// Requests, and some looks.
    pub(super) const fn of_outage() -> Self {
        let mut acts = Self([0; KINDS]);
        (acts.0[0], acts.0[1]) = (80, 10);
        acts
    }

    /// What a caller asks for on a key of these kinds, while the signal is high or low.
    pub(super) fn act(&self, draws: &mut Draws, kinds: Kinds, is_high: bool) -> Act {
        let units = |draws: &mut Draws| match draws.below(40) {
            0 => 1_000, // more than any limit grants
            drawn => 1 + drawn % 3,
        };
        let few = |draws: &mut Draws| draws.below(4);
        match draws.weighted(&self.weights(kinds)) {
            0 if kinds.classes => Act::Ranked {
                units: units(draws),
                class: draws.index(2),
                signal_ppm: match is_high {
                    true => draws.one_of(&[900_000, 1_000_000]),
                    false => draws.one_of(&[0, 600_000, 750_000]),
                },
                draw: draws.one_of(&[0, 0, 1, 1 << 31, u32::MAX]),
            },
            0 if kinds.leases => Act::Acquire(0), // a lease has a name
            0 => Act::Take(units(draws)),
            1 => Act::Peek(units(draws) - 1),
            2 => Act::Acquire(few(draws)),
            3 => Act::Heartbeat(few(draws)),
            4 => Act::Release(few(draws)),
            REFUND => Act::Refund(few(draws)),
            6 => Act::Count(few(draws), few(draws)),
            7 => Act::Borrow { holder: few(draws), wants: 1 + draws.below(8), left: few(draws) },
            8 => Act::Report {
                admitted: draws.below(6),
                suppressed: few(draws),
                age: draws.one_of(&[0, 0, 100_000, 7_000_000, 30_000_000]),
            },
            9 => Act::Reset(draws.one_of(&[
                Depth::Whole,
                Depth::Whole,
                Depth::Parts(1),
                Depth::Parts(0),
            ])),
            10 => Act::Block(draws.one_of(&[0, 1, 300_000, 1_000_000, LONGEST_BLOCK])),
            RESERVE => Act::Reserve {
                id: draws.below(RESERVATIONS),
                units: if draws.below(40) == 0 { 1_000 } else { 1 + draws.below(5) },
                span: draws.one_of(&[1, 200_000, 700_000, 1_500_000, 60_000_000]),
            },
            FINISH => Act::Finish(draws.index(16), actual(draws)),
            _ => Act::Commit(draws.below(RESERVATIONS + 1), actual(draws)),
        }
    }

    fn weights(&self, kinds: Kinds) -> [u64; KINDS] {
        let applies = [
            true,
            true,
            kinds.leases,
            kinds.leases,
            kinds.leases,
            !kinds.leases && !kinds.pays,
            kinds.connections,
            kinds.lends,
            kinds.reports,
            true,
            !kinds.pays, // the naive block knows of no payers
            kinds.reserves,
            kinds.reserves,
            kinds.reserves,
        ];
        let mut weights = self.0;
        for (weight, applies) in weights.iter_mut().zip(applies) {
            *weight *= u64::from(applies);
        }
        weights[0] += 10;
        weights
    }
}

/// What a reservation has really cost: often less than its estimate, and sometimes far more.
fn actual(draws: &mut Draws) -> u64 {
    match draws.below(40) {
        0 => draws.below(30),
        1..10 => 0,
        _ => 1 + draws.below(4),
    }
}
