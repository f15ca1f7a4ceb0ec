//! Nothing is refused that the authority would grant.

use super::*;

const REMEMBER: u64 = 2_000_000;

#[derive(Default)]
struct Refusals {
    /// The time of the last grant for any key: the keys share some limits.
    granted: Option<u64>,
    repeated: u32,
    /// Of these, the refusals whose wait must be that of the authority to the microsecond.
    exact: u32,
}

impl Watch for Refusals {
    fn answered(&mut self, world: &Histories, _: Node, step: &Step, said: &Verdict) {
        let truth = world.would_say(step.key, Operation::Decide(request(step.cost())));
        assert!(!said.decision.is_allowed());
        assert!(!truth.decision.is_allowed(), "{step:?} would pass at {}", world.time);
        let passes = |verdict: &Verdict| verdict.at.saturating_add(verdict.decision.retry_after());
        assert!(said.decision.retry_after() <= truth.decision.retry_after(), "{step:?}");
        assert!(said.decision.retry_after() > Micros::ZERO);
        assert!(passes(said) <= passes(&truth), "{step:?}");
        self.repeated += 1;
        // the refusal is not older than this, so nothing has changed since
        let is_unchanged = self.granted.is_none_or(|granted| granted + REMEMBER < world.time);
        if is_unchanged && step.cost() == 1 {
            assert_eq!(passes(said), passes(&truth), "{step:?}");
            let resets = |verdict: &Verdict| match verdict.decision.reset_after() {
                Micros::MAX => None, // a bucket that started empty
                span => Some(verdict.at.saturating_add(span)),
            };
            assert_eq!(resets(said), resets(&truth), "{step:?}");
            self.exact += 1;
        }
    }

    fn done(&mut self, world: &Histories, _: usize, operation: &Operation, said: &Verdict) {
        if matches!(operation, Operation::Decide(_)) && said.decision.is_allowed() {
            self.granted = Some(world.time);
        }
    }
}

const LIMITS: [&str; 6] = [
    "{ algorithm = 'token_bucket', capacity = 5, rate = '1/3s' }",
    "{ algorithm = 'fixed_window', limit = 5, period = '9s' }",
    "{ algorithm = 'sliding_window', limit = 5, period = '9s', segments = 3 }",
    "{ algorithm = 'sliding_log', rates = ['5/9s', '7/20s'], min_gap = '900ms' }",
    "{ algorithm = 'token_bucket', capacity = 5, rate = '1/3s' }, { algorithm = 'fixed_window', depth = 1, limit = 8, period = '20s' }",
    "{ algorithm = 'token_bucket', capacity = 5, rate = '1/3s', start = 'empty' }, { algorithm = 'sliding_window', limit = 5, period = '9s' }",
];

fn histories() -> impl Strategy<Value = (usize, Vec<u64>, u64, Vec<Step>)> {
    let offsets = prop::collection::vec(0..5_000_000_u64, NODES);
    (0..LIMITS.len(), offsets, 0..5_000_000_u64, steps(400_000, requests(5), 80))
}

#[test]
fn every_refusal_that_a_node_repeats_is_one_that_the_authority_would_give() {
    let (mut repeated, mut exact) = (0, 0);
    let policies = LIMITS.map(|limits| policy(&format!("remember = '2s'\nlimits = [{limits}]")));
    let test = |(limits, offsets, epoch, steps): (usize, Vec<u64>, u64, Vec<Step>)| {
        let mut refusals = Refusals::default();
        Histories::new(&policies[limits], offsets, epoch).run(&steps, &mut refusals);
        repeated += refusals.repeated;
        exact += refusals.exact;
        Ok(())
    };
    run(histories(), 2_000, test);
    assert!(
        repeated > 5_000 && exact > 500,
        "{repeated} refusals were repeated, {exact} to the µs"
    );
}
