//! Units are conserved, and nodes together grant no more than the stated bounds.

use super::*;

pub(super) const MOST: u64 = 20;
const TIME: u64 = 1_000_000;

/// The units of one grant to a node.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) time: u64,
    granted: u64,
    spent: u64,
    /// What the authority has taken back.
    returned: Option<u64>,
}

#[derive(Default)]
pub(super) struct Units {
    /// By holder, key and time of the grant.
    pub(super) lent: BTreeMap<(u64, usize, Timestamp), Lent>,
    /// The time and the units of each grant to a caller, by key.
    grants: [Vec<(u64, u64)>; KEYS.len()],
    spent: u64,
    returned: u64,
}

impl Watch for Units {
    fn answered(&mut self, world: &Histories, node: Node, step: &Step, said: &Verdict) {
        assert!(said.decision.is_allowed() && !step.operation.is_peek());
        let lent = self.lent.get_mut(&(id(node), step.key, said.at)).expect("units of a grant");
        lent.spent += step.cost();
        assert!(lent.spent <= lent.granted, "{lent:?}");
        assert_eq!(lent.returned, None, "nothing is spent of what was given back");
        assert!(world.time < lent.time + TIME, "{lent:?} at {}", world.time);
        self.grants[step.key].push((world.time, step.cost()));
        self.spent += step.cost();
    }

    fn done(&mut self, world: &Histories, key: usize, operation: &Operation, said: &Verdict) {
        match operation {
            Operation::Decide(request) if said.decision.is_allowed() => {
                self.grants[key].push((world.time, request.cost));
            }
            Operation::Budget(Budget { holder, unspent, .. }) => {
                let Effect::Budget { returned, allowance } = said.effect else { panic!() };
                if let Some(unspent) = unspent {
                    let lent = self.lent.get_mut(&(holder.0[0], key, unspent.granted_at)).unwrap();
                    assert_eq!(unspent.left, lent.granted - lent.spent, "{lent:?}");
                    assert_eq!(lent.returned, None);
                    lent.returned = Some(if returned == Some(true) { unspent.left } else { 0 });
                    self.returned += lent.returned.unwrap_or(0);
                }
                if allowance.left > 0 {
                    let (time, granted) = (world.time, allowance.left);
                    let lent = Lent { time, granted, spent: 0, returned: None };
                    let before = self.lent.insert((holder.0[0], key, allowance.granted_at), lent);
                    assert!(before.is_none());
                }
            }
            _ => {}
        }
    }
}

impl Units {
    /// In each span between two grants, at most as many units as `most` says of a span of this length, and at most
    /// what all nodes can hold more than `most` says of the span itself.
    fn check(&self, most: impl Fn(u64) -> u64) {
        for (key, grants) in self.grants.iter().enumerate() {
            let holders: Vec<u64> = self
                .lent
                .keys()
                .filter(|(_, lent, _)| *lent == key)
                .map(|(holder, ..)| *holder)
                .collect();
            let holders = holders.chunk_by(|one, other| one == other).count();
            let held = MOST * u64::try_from(holders).unwrap();
            for (first, (from, _)) in grants.iter().enumerate() {
                let mut sum = 0;
                for (to, cost) in &grants[first..] {
                    sum += cost;
                    let span = to - from + 1;
                    assert!(sum <= most(span + TIME), "{sum} units in {span} µs from {from}");
                    assert!(sum <= most(span) + held, "{sum} units in {span} µs from {from}");
                }
            }
        }
        let granted: u64 = self.lent.values().map(|lent| lent.granted).sum();
        let gone = |lent: &Lent| lent.granted - lent.spent - lent.returned.unwrap_or(0);
        let expired: u64 = self.lent.values().map(gone).sum();
        assert_eq!(granted, self.spent + self.returned + expired);
    }
}

type Bound = fn(u64) -> u64;

/// Limits, and the most units that they grant in a span.
const LIMITS: [(&str, Bound); 3] = [
    ("{ algorithm = 'token_bucket', capacity = 60, rate = '40/s' }", |span| {
        60 + span * 40 / 1_000_000
    }),
    ("{ algorithm = 'sliding_log', rates = ['80/3s'] }", |span| 80 * span.div_ceil(3_000_000)),
    // a span of this length touches so many windows
    ("{ algorithm = 'fixed_window', limit = 50, period = '1s' }", |span| {
        50 * ((span - 1).div_ceil(1_000_000) + 1)
    }),
];

fn histories() -> impl Strategy<Value = (usize, Vec<u64>, u64, Vec<Step>)> {
    let offsets = prop::collection::vec(0..5_000_000_u64, NODES);
    (0..LIMITS.len(), offsets, 0..5_000_000_u64, steps(12_000, requests(6), 500))
}

#[test]
fn units_are_conserved_and_all_nodes_together_stay_within_the_bounds() {
    let (mut spent, mut returned) = (0, 0);
    let policies = LIMITS.map(|(limits, _)| {
        policy(&format!("local = {{ most = {MOST}, time = '1s' }}\nlimits = [{limits}]"))
    });
    let test = |(limits, offsets, epoch, steps): (usize, Vec<u64>, u64, Vec<Step>)| {
        let mut units = Units::default();
        Histories::new(&policies[limits], offsets, epoch).run(&steps, &mut units);
        units.check(LIMITS[limits].1);
        spent += units.spent;
        returned += units.returned;
        Ok(())
    };
    run(histories(), 500, test);
    assert!(spent > 5_000 && returned > 200, "{spent} units were spent, {returned} given back");
}
