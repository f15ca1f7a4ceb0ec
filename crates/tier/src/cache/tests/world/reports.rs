//! What nodes report is what they were offered, and an account within its limit is never suppressed.

use tidegate_gate::{Depth, Draw, Offered};

use super::*;

const PART: u64 = 6_000_000;
/// The limit of a part.
const LIMIT: u64 = 60;
/// A question and its answer take at most this together.
const LONGEST: u64 = 6_000_000;

/// The units of one part that a run of a node has counted and not reported.
type Counted = BTreeMap<(Node, usize, u64), [u64; 2]>;

#[derive(Default)]
struct Reports {
    counted: Counted,
    /// What each run of a node has admitted in a part.
    admitted: BTreeMap<(Node, usize, u64), u64>,
    decided: u64,
    refused: u64,
    reported: u64,
}

fn part_of(time: Timestamp) -> u64 {
    time.0 / PART
}

impl Watch for Reports {
    fn answered(&mut self, world: &Histories, node: Node, step: &Step, said: &Verdict) {
        let place = (node, step.key, part_of(said.at));
        let (cost, passes) = (step.cost(), said.decision.is_allowed());
        assert!(cost > 0 && cost <= LIMIT && !step.operation.is_peek(), "{step:?}");
        self.counted.entry(place).or_default()[usize::from(!passes)] += cost;
        if passes {
            let admitted = self.admitted.entry(place).or_default();
            *admitted += cost;
            assert!(*admitted <= LIMIT, "{place:?}");
        }
        let ahead = said.at.0.abs_diff(world.now().0);
        assert!(ahead <= LONGEST, "{said:?} at {:?}", world.now());
        if world.walls == [0; NODES] {
            assert_eq!(ahead, 0, "the node's clocks are right");
        }
        self.decided += cost;
        self.refused += if passes { 0 } else { cost };
    }

    fn done(&mut self, _: &Histories, _: usize, _: &Operation, _: &Verdict) {}

    fn forwarded(&mut self, _: &Histories, node: Node, key: usize, operation: &Operation) {
        if let Operation::Reset(_) = operation {
            self.counted.retain(|(counter, account, _), _| (*counter, *account) != (node, key));
            self.admitted.retain(|(counter, account, _), _| (*counter, *account) != (node, key));
        }
    }

    fn reported(&mut self, _: &Histories, node: Node, key: usize, offered: &Offered) {
        let place = (node, key, part_of(offered.at.expect("a part")));
        let counted = self.counted.get_mut(&place).unwrap_or_else(|| panic!("{place:?}"));
        let said = [offered.admitted, offered.suppressed];
        assert_ne!(said, [0; 2]);
        assert!(said[0] <= counted[0] && said[1] <= counted[1], "{said:?} of {counted:?}");
        (counted[0], counted[1]) = (counted[0] - said[0], counted[1] - said[1]);
        self.reported += said[0] + said[1];
    }
}

impl Reports {
    /// What the nodes that still run have not reported.
    fn unreported(&self, world: &Histories) -> Counted {
        let mut counted = self.counted.clone();
        counted.retain(|((node, run), ..), counts| *run == world.runs[*node] && *counts != [0; 2]);
        counted
    }
}

fn operations() -> impl Strategy<Value = Operation> {
    let costs = (prop_oneof![4 => 1..4_u64, 1 => 1..90_u64], any::<u32>());
    let request =
        costs.prop_map(|(cost, draw)| Request { draw: Draw(draw), ..request(cost) }.into());
    let other = prop_oneof![
        Just(Operation::from(0)),
        Just(Operation::Refund(3)),
        (1..4_u64).prop_map(|cost| Operation::Peek(Request::of(cost))),
        Just(Operation::Reset(Depth::Whole)),
        (0..9_000_000_u64).prop_map(|span| Operation::Block(Micros(span))),
    ];
    prop_oneof![40 => request, 1 => other]
}

const LIMITS: &str = "reports = true\nlimits = [{ algorithm = 'suppression', rate = '10/s' }]";

/// What the clock of each node shows at first, and how far its wall clock is ahead.
type Clocks = (Vec<u64>, [i64; NODES]);

fn histories() -> impl Strategy<Value = (Clocks, u64, Vec<Step>, bool)> {
    let offsets = prop::collection::vec(0..5_000_000_u64, NODES);
    let wall = prop_oneof![Just(0), -40_000_000..40_000_000_i64, any::<i64>()];
    let walls = prop_oneof![1 => Just([0; NODES]), 2 => [wall.clone(), wall.clone(), wall]];
    let steps = steps(400_000, operations(), 300);
    ((offsets, walls), 0..5_000_000_u64, steps, any::<bool>())
}

#[test]
fn units_are_reported_once_and_in_their_part() {
    let (mut decided, mut refused, mut reported, mut old) = (0, 0, 0, 0);
    let policy = policy(LIMITS);
    let test = |((offsets, walls), epoch, steps, timers): (Clocks, u64, Vec<Step>, bool)| {
        let mut reports = Reports::default();
        let mut world = Histories::new(&policy, offsets, epoch);
        (world.walls, world.timers) = (walls, timers);
        world.run(&steps, &mut reports);
        if timers {
            assert_eq!(reports.unreported(&world), Counted::new());
        } else {
            // the next question to the node, however late
            world.time += 4 * LONGEST + 2_000_000;
            for node in 0..NODES {
                world.transmit((node, world.runs[node]), &mut reports);
            }
            for (place, _) in reports.unreported(&world) {
                assert!(place.2 + 3 <= part_of(world.now()), "{place:?} at {:?}", world.now());
                old += 1;
            }
        }
        decided += reports.decided;
        refused += reports.refused;
        reported += reports.reported;
        Ok(())
    };
    run(histories(), 500, test);
    assert!(
        decided > 100_000 && refused > 10_000 && reported > decided * 8 / 10 && old > 10,
        "{decided} units were decided, {refused} refused, {reported} reported, {old} too late"
    );
}

/// The units that an account was offered in each part. A request that is asked for may count in the part in which
/// it is sent or in the part in which it arrives, so it has a place in both.
#[derive(Default)]
struct Within {
    offered: BTreeMap<(usize, u64), u64>,
    by_nodes: u64,
    by_authority: u64,
}

impl Within {
    fn admits(&mut self, world: &Histories, step: &Step) -> bool {
        let sent = world.now().0 + step.gap;
        let arrived = sent + step.request.there.unwrap_or(0);
        let mut parts = vec![sent / PART, arrived / PART];
        parts.dedup();
        let offered = |part: &u64| self.offered.get(&(step.key, *part)).copied().unwrap_or(0);
        let admits = parts.iter().all(|part| offered(part) + step.cost() <= LIMIT);
        if admits {
            for part in parts {
                *self.offered.entry((step.key, part)).or_default() += step.cost();
            }
        }
        admits
    }
}

impl Watch for Within {
    fn answered(&mut self, world: &Histories, _: Node, step: &Step, said: &Verdict) {
        assert!(said.decision.is_allowed(), "{step:?} at {}", world.time);
        self.by_nodes += 1;
    }

    fn done(&mut self, world: &Histories, _: usize, operation: &Operation, said: &Verdict) {
        assert!(said.decision.is_allowed(), "{operation:?} at {}", world.time);
        assert_eq!(said.factor, Some(tidegate_gate::Probability::NEVER));
        self.by_authority += 1;
    }
}

/// With the draw 0 any factor above 0 refuses.
#[test]
fn an_account_within_its_limit_in_every_part_is_never_suppressed() {
    let (mut by_nodes, mut by_authority, mut full) = (0, 0, 0);
    let policy = policy(LIMITS);
    let offsets = prop::collection::vec(0..5_000_000_u64, NODES);
    let costs = prop_oneof![3 => 1..4_u64, 1 => 1..30_u64].prop_map(Operation::from);
    let histories = (offsets, 0..5_000_000_u64, steps(600_000, costs, 200), any::<bool>());
    let test = |(offsets, epoch, steps, timers): (Vec<u64>, u64, Vec<Step>, bool)| {
        let mut within = Within::default();
        let mut world = Histories::new(&policy, offsets, epoch);
        world.timers = timers;
        for step in steps {
            match within.admits(&world, &step) {
                true => world.step(&step, &mut within),
                false => world.time += step.gap,
            }
        }
        world.deliver(u64::MAX, &mut within);
        by_nodes += within.by_nodes;
        by_authority += within.by_authority;
        full += within.offered.values().filter(|offered| **offered + 1 >= LIMIT).count();
        Ok(())
    };
    run(histories, 500, test);
    assert!(
        by_nodes > 10_000 && by_authority > 5_000 && full > 500,
        "{by_nodes} by nodes, {by_authority} by the authority, {full} parts were full"
    );
}
