//! Refusals, units, and operations by which units come back or a key is blocked.

use tidegate_gate::Depth;

use super::units::{MOST, Units};
use super::*;

const REMEMBER: u64 = 2_000_000;

#[derive(Default)]
struct Mixed {
    units: Units,
    /// The time and the cost of each refusal by the authority, by key.
    refused: [Vec<(u64, u64)>; KEYS.len()],
    /// When a node was last asked for an operation that gives units back, or heard the answer. What it was told
    /// before that is forgotten.
    relaxed: BTreeMap<(Node, usize), u64>,
    /// The same for a block and a reset, and for units.
    stopped: BTreeMap<(Node, usize), u64>,
    repeated: u32,
    spent: u32,
}

impl Watch for Mixed {
    fn answered(&mut self, world: &Histories, node: Node, step: &Step, said: &Verdict) {
        let place = (node, step.key);
        if said.decision.is_allowed() {
            self.units.answered(world, node, step, said);
            let lent = &self.units.lent[&(id(node), step.key, said.at)];
            assert!(
                self.stopped.get(&place).is_none_or(|stopped| *stopped < lent.time),
                "{lent:?}"
            );
            self.spent += 1;
            return;
        }
        let since = world.time.checked_sub(REMEMBER);
        let since = since.max(self.relaxed.get(&place).copied());
        let holds = |(time, cost): &(u64, u64)| {
            since.is_none_or(|since| since < *time) && *cost <= step.cost()
        };
        assert!(self.refused[step.key].iter().any(holds), "{step:?} at {}", world.time);
        self.repeated += 1;
    }

    fn done(&mut self, world: &Histories, key: usize, operation: &Operation, said: &Verdict) {
        self.units.done(world, key, operation, said);
        if let Operation::Decide(request) = operation
            && !said.decision.is_allowed()
        {
            self.refused[key].push((world.time, request.cost));
        }
    }

    fn passed(&mut self, world: &Histories, node: Node, key: usize, operation: &Operation) {
        if let Operation::Refund(_)
        | Operation::Reset(_)
        | Operation::Block(_)
        | Operation::Budget(Budget { unspent: Some(_), .. }) = operation
        {
            self.relaxed.insert((node, key), world.time);
        }
        if let Operation::Reset(_) | Operation::Block(_) = operation {
            self.stopped.insert((node, key), world.time);
        }
    }
}

fn histories() -> impl Strategy<Value = (Vec<u64>, u64, Vec<Step>)> {
    let offsets = prop::collection::vec(0..5_000_000_u64, NODES);
    let relaxes = prop_oneof![
        (1..5_u64).prop_map(Operation::Refund),
        Just(Operation::Reset(Depth::Whole)),
        (0..3_000_000_u64).prop_map(|span| Operation::Block(Micros(span))),
    ];
    let operations = prop_oneof![30 => requests(6), 1 => relaxes];
    (offsets, 0..5_000_000_u64, steps(12_000, operations, 500))
}

#[test]
fn a_refusal_outlives_its_reason_by_no_more_than_the_policy_says() {
    let (mut repeated, mut spent) = (0, 0);
    let policy = policy(&format!(
        "remember = '2s'
         local = {{ most = {MOST}, time = '1s' }}
         limits = [{{ algorithm = 'token_bucket', capacity = 30, rate = '20/s' }}]"
    ));
    let test = |(offsets, epoch, steps): (Vec<u64>, u64, Vec<Step>)| {
        let mut mixed = Mixed::default();
        Histories::new(&policy, offsets, epoch).run(&steps, &mut mixed);
        repeated += mixed.repeated;
        spent += mixed.spent;
        Ok(())
    };
    run(histories(), 500, test);
    assert!(
        repeated > 3_000 && spent > 1_000,
        "{repeated} refusals repeated, {spent} requests granted"
    );
}
