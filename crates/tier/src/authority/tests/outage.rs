//! What an authority answers by its node's share while the store is away.

use proptest::prelude::*;
use tidegate_gate::Operation;

use super::super::SwapEntry;
use super::*;

const LOCAL: &str =
    "on_error = 'local'\nlimits = [{ algorithm = 'fixed_window', limit = 8, period = '1h' }]";

/// An authority that knows four nodes, and the key `k` of which `used` units are used.
fn node(policy: &Arc<Policy>, used: usize) -> Tested {
    let mut authority = Tested::new(Options::default());
    authority.handle_nodes(4);
    for token in 0..used {
        ask(&mut authority, policy, "k", 0, token);
    }
    send_all(&mut authority);
    assert_eq!(answers(&mut authority).len(), used);
    authority
}

/// A swap fails, and with it the store.
fn fail(authority: &mut Tested) {
    let swap = authority.poll_swap((None, Micros(1)), |_| false).unwrap();
    let outcomes = vec![SwapOutcome::Failed("away"); swap.len()];
    authority.handle(swap, outcomes, (None, Micros(1)));
    authority.fail_waiting(&"away", None);
    assert!(authority.handle_away("away", Micros(1)));
}

#[test]
fn a_node_goes_on_from_what_it_saw_last_and_answers_at_once() {
    let policy = policy(LOCAL);
    let mut authority = node(&policy, 4);
    ask(&mut authority, &policy, "k", 1, 10);
    fail(&mut authority);
    assert_eq!(answers(&mut authority), [(10, Ok(true))]);
    for token in 11..13 {
        ask(&mut authority, &policy, "k", 1, token);
    }
    let refused = [(11, Ok(false)), (12, Ok(false))];
    assert_eq!(answers(&mut authority), refused, "4 of 8 were left for 4 nodes");
    assert!(authority.poll_swap((None, Micros(1)), |_| false).is_none(), "nothing is sent");
    assert_eq!(authority.waiting(), 0);

    authority.handle_back(Micros(1));
    ask(&mut authority, &policy, "k", 2, 13);
    assert_eq!(send_all(&mut authority), 1, "the store is asked again");
}

#[test]
fn what_was_decided_with_the_swap_that_failed_is_not_kept() {
    let policy = policy(LOCAL);
    let mut authority = node(&policy, 0);
    for token in 0..6 {
        ask(&mut authority, &policy, "k", 0, token);
    }
    fail(&mut authority);
    let granted = answers(&mut authority).into_iter().filter(|(_, answer)| *answer == Ok(true));
    assert_eq!(granted.count(), 2, "a quarter of 8");
}

#[test]
fn policies_without_shares_fail_at_once_and_an_only_writer_is_no_node() {
    let closed = policy("limits = [{ algorithm = 'fixed_window', limit = 8, period = '1h' }]");
    let mut authority = node(&closed, 1);
    ask(&mut authority, &closed, "k", 1, 10);
    fail(&mut authority);
    ask(&mut authority, &closed, "k", 1, 11);
    let failed = [10, 11].map(|token| (token, Err(Failure::Store("away"))));
    assert_eq!(answers(&mut authority), failed);
    assert!(authority.poll_swap((None, Micros(1)), |_| false).is_none(), "nothing is sent");
    authority.handle_back(Micros(1));
    ask(&mut authority, &closed, "k", 2, 12);
    assert_eq!(send_all(&mut authority), 1, "the store is asked again");
    assert!(!authority.handle_away("away", Micros(0)), "it has answered since then");

    let told = policy(&format!("nodes = 4\n{LOCAL}"));
    let mut object = Tested::new(Options { is_only_writer: true, ..Options::default() });
    ask(&mut object, &told, "k", 1, 10);
    fail(&mut object);
    assert_eq!(answers(&mut object), [(10, Err(Failure::Store("away")))]);
}

#[test]
fn a_store_that_refuses_to_write_leaves_refusals_and_the_shares_of_what_it_holds() {
    let policy = policy(LOCAL);
    let mut authority = node(&policy, 0);
    let mut other = node(&policy, 0);
    for token in 0..4 {
        ask(&mut other, &policy, "k", 0, token);
    }
    let swap = other.poll_swap((None, Micros(0)), |_| false).unwrap();
    let four = other.records(&swap, 0).next().unwrap().becomes.unwrap().to_vec();
    for token in 0..2 {
        ask(&mut authority, &policy, "k", 0, token);
    }
    let swap = authority.poll_swap((None, Micros(0)), |_| false).unwrap();
    let outcome = SwapOutcome::Refused(vec![Some(four)], "read-only");
    authority.handle(swap, [outcome], (None, Micros(0)));
    assert_eq!(
        answers(&mut authority),
        [(0, Ok(true)), (1, Ok(false))],
        "4 of 8 were left for 4 nodes"
    );
}

#[test]
fn a_key_that_holds_something_else_than_a_state_is_no_outage() {
    let policy = policy(LOCAL);
    let mut authority = node(&policy, 5);
    for key in ["k", "new"] {
        ask(&mut authority, &policy, key, 1, 10);
        let swap = authority.poll_swap((None, Micros(1)), |_| false).unwrap();
        authority.handle(swap, [SwapOutcome::Unreadable("a list")], (None, Micros(1)));
        assert_eq!(answers(&mut authority), [(10, Err(Failure::Store("a list")))], "{key}");
    }
}

/// Some nodes on one store that is away now and then.
struct World {
    nodes: Vec<Tested>,
    store: BTreeMap<String, Vec<u8>>,
    is_away: bool,
}

impl World {
    fn new(count: usize) -> Self {
        let node = || {
            let mut node = Tested::new(Options::default());
            node.handle_nodes(count.try_into().unwrap());
            node
        };
        Self { nodes: (0..count).map(|_| node()).collect(), store: BTreeMap::new(), is_away: false }
    }

    /// A node asks, and gets its answer.
    fn ask(&mut self, node: usize, key: &Resolved, operation: Operation) -> Verdict {
        self.try_ask(node, key, operation).unwrap()
    }

    /// A node asks, and gets its answer; `None` if nobody can decide.
    fn try_ask(&mut self, node: usize, key: &Resolved, operation: Operation) -> Option<Verdict> {
        let resolved = key.clone();
        let asked = Queued { resolved, now: Timestamp(7), at: Micros(0), operation, token: 0 };
        self.nodes[node].ask(asked);
        while let Some(swap) = self.nodes[node].poll_swap((None, Micros(0)), |_| false) {
            let outcome = match self.is_away {
                true => SwapOutcome::Failed("away"),
                false => self.swap(node, &swap),
            };
            self.nodes[node].handle(swap, [outcome], (None, Micros(0)));
            if self.is_away {
                self.nodes[node].handle_away("away", Micros(0));
            }
        }
        self.nodes[node].poll_answer().unwrap().1.ok()
    }

    fn swap(&mut self, node: usize, swap: &Swap) -> SwapOutcome<&'static str> {
        let records: Vec<_> = self.nodes[node].records(swap, 0).collect();
        let found = |record: &SwapEntry<'_>| self.store.get(record.name).cloned();
        if records.iter().any(|record| found(record).as_deref() != record.found) {
            return SwapOutcome::Found(records.iter().map(found).collect());
        }
        let writes = records.iter().filter_map(|record| Some((record.name, record.becomes?)));
        let writes: Vec<_> = writes.map(|(name, bytes)| (name.into(), bytes.to_vec())).collect();
        self.store.extend(writes);
        SwapOutcome::Swapped
    }

    /// A node loses its memory, and begins anew.
    fn restart(&mut self, node: usize) {
        self.nodes[node] = Tested::new(Options::default());
    }

    /// The store is there again, and every node hears from it.
    fn come_back(&mut self, key: &Resolved) {
        self.is_away = false;
        let count = self.nodes.len().try_into().unwrap();
        for node in 0..self.nodes.len() {
            self.nodes[node].handle_back(Micros(0));
            let _ = self.ask(node, key, 0.into());
            self.nodes[node].handle_nodes(count);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take(usize, u64),
    Away,
    Back,
    Restart(usize),
}

proptest! {
    /// In any period an outage costs at most one more limit, whoever asks, and whichever node begins anew. What the store grants
    /// stays within the limit, because no node tells it anything else than its requests.
    #[test]
    fn in_any_period_an_outage_costs_at_most_one_more_limit(
        count in 1..=6_usize,
        limit in 1..130_u64,
        steps in prop::collection::vec(prop_oneof![
            30 => (0..6_usize, 1..6_u64).prop_map(|(node, cost)| Step::Take(node, cost)),
            1 => Just(Step::Away),
            1 => Just(Step::Back),
            2 => (0..6_usize).prop_map(Step::Restart),
        ], 1..300),
    ) {
        let text = format!("on_error = 'local'\nlimits = [{{ algorithm = 'fixed_window', limit = {limit}, period = '1h' }}]");
        let key = Resolved::new(&policy(&text), "k").unwrap();
        let (mut world, mut by_store, mut by_shares) = (World::new(count), 0, 0);
        for step in steps {
            match step {
                Step::Away => world.is_away = true,
                Step::Back => {
                    world.come_back(&key);
                    by_shares = 0;
                }
                Step::Restart(node) => world.restart(node % count),
                Step::Take(node, cost) => {
                    let Some(verdict) = world.try_ask(node % count, &key, cost.min(limit).into()) else { continue };
                    prop_assert_eq!(verdict.degraded, world.is_away);
                    let taken = if verdict.decision.is_allowed() { cost.min(limit) } else { 0 };
                    *(if verdict.degraded { &mut by_shares } else { &mut by_store }) += taken;
                }
            }
            prop_assert!(by_store <= limit && by_shares <= limit, "{by_store} and {by_shares} of {limit}");
        }
    }
}

#[test]
fn the_answer_of_a_share_names_its_own_cause_also_if_the_store_has_answered_since() {
    let policy = policy(LOCAL);
    let mut authority = node(&policy, 1);
    ask(&mut authority, &policy, "a", 1, 10);
    let late = authority.poll_swap((None, Micros(1)), |_| false).unwrap();
    ask(&mut authority, &policy, "b", 2, 11);
    let answered = authority.poll_swap((None, Micros(2)), |_| false).unwrap();
    authority.handle(answered, [SwapOutcome::Swapped], (None, Micros(3)));
    authority.handle(late, [SwapOutcome::Failed("late")], (None, Micros(4)));
    assert!(!authority.handle_away("late", Micros(1)));
    let causes: Vec<_> = core::iter::from_fn(|| authority.poll_answer())
        .map(|(token, answer, cause)| (token, answer.unwrap().degraded, cause))
        .collect();
    assert_eq!(causes, [(11, false, None), (10, true, Some(Failure::Store("late")))]);
}
