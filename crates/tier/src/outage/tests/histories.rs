//! What nodes grant in all, and what the store learns of it.

use std::format;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_gate::Timestamp;

use super::super::Outage;
use super::{decide, on, outage, owed, policy, seen, window};

#[derive(Clone, Debug)]
struct Asked {
    node: usize,
    after: u64,
    cost: u64,
}

fn asked(most_cost: u64) -> impl Strategy<Value = Vec<Asked>> {
    let asked = (0..8_usize, 0..900_000_u64, 1..=most_cost);
    let asked = asked.prop_map(|(node, after, cost)| Asked { node, after, cost });
    prop::collection::vec(asked, 0..400)
}

proptest! {
    /// A window by hand: a count for each node, in which each grant of the node counts `nodes` times.
    #[test]
    fn nodes_share_what_is_left_of_a_window(
        limit in 1..500_u64,
        used in 0..500_u64,
        nodes in 1..=8_usize,
        most_cost in 1..20_u64,
        asked in asked(19),
    ) {
        let (used, most_cost, times) = (used.min(limit), most_cost.min(limit), u64::try_from(nodes).unwrap());
        let policy = window(limit);
        let key = on(&policy, "k");
        let known = seen(&key, &[(1, used)]);
        let mut all: Vec<Outage> = (0..nodes).map(|_| outage(times)).collect();
        let mut counts = std::vec![used; nodes];
        let (mut granted, mut now) = (0, 1);
        for Asked { node, cost, .. } in asked {
            let (node, cost) = (node % nodes, cost.min(most_cost));
            now += 1; // all in one window
            let operation = cost.into();
            let verdict = all[node].decide(&key, Timestamp(now), &operation, Some(&known));
            let decision = verdict.unwrap().unwrap().decision;
            let expected = counts[node] + cost <= limit;
            prop_assert_eq!(decision.is_allowed(), expected);
            if expected {
                granted += cost;
                counts[node] = (counts[node] + times * cost).min(2 * limit);
            }
            prop_assert_eq!(decision.remaining(), limit.saturating_sub(counts[node]));
        }
        prop_assert!(granted <= limit - used + (times - 1) * most_cost, "{granted}");
    }

    /// A bucket by hand, in units of a millionth: what each node has spent, in which each grant counts `nodes` times.
    #[test]
    fn nodes_share_what_flows_into_a_bucket(
        capacity in 1..100_u64,
        rate in 1..50_u64,
        nodes in 1..=8_usize,
        asked in asked(5),
    ) {
        const UNIT: u64 = 1_000_000;
        let times = u64::try_from(nodes).unwrap();
        let text = "limits = [{ algorithm = 'token_bucket', capacity = CAPACITY, rate = 'RATE/s' }]";
        let policy = policy(&text.replace("CAPACITY", &format!("{capacity}")).replace("RATE", &format!("{rate}")));
        let key = on(&policy, "k");
        let mut all: Vec<Outage> = (0..nodes).map(|_| outage(times)).collect();
        let mut spent = std::vec![(0, 1_000_000_u64); nodes];
        let (mut granted, mut now, mut most_cost) = (0, 1_000_000, 0);
        for Asked { node, after, cost } in asked {
            let (node, cost) = (node % nodes, cost.min(capacity));
            now += after;
            let verdict = decide(&mut all[node], &key, now, cost).unwrap();
            let (level, at) = spent[node];
            let level = u64::saturating_sub(level, (now - at) * rate);
            let expected = level + cost * UNIT <= capacity * UNIT;
            prop_assert_eq!(verdict.decision.is_allowed(), expected);
            let after = if expected { level + times * cost * UNIT } else { level };
            spent[node] = (after.min((2 * capacity * UNIT).max(level)), now);
            if expected {
                granted += cost;
                most_cost = most_cost.max(cost);
            }
        }
        // while no debt ends at twice the capacity, the bound holds over any span
        if times * most_cost <= capacity {
            let flowed = capacity * UNIT + (now - 1_000_000) * rate;
            prop_assert!(granted * UNIT <= flowed + (times - 1) * most_cost * UNIT, "{granted}");
        }
    }

    /// A store that is told of a window has in the end what all nodes have granted.
    #[test]
    fn the_store_learns_what_the_nodes_have_granted(
        used in 0..100_u64,
        nodes in 1..=8_usize,
        asked in asked(5),
    ) {
        let policy = window(100);
        let key = on(&policy, "k");
        let known = seen(&key, &[(1, used)]);
        let mut store = seen(&key, &[(1, used)]);
        let times = u64::try_from(nodes).unwrap();
        let mut all: Vec<Outage> = (0..nodes).map(|_| outage(times)).collect();
        let mut granted = 0;
        for Asked { node, cost, .. } in asked {
            let decided = all[node % nodes].decide(&key, Timestamp(2), &cost.into(), Some(&known));
            if decided.unwrap().unwrap().decision.is_allowed() {
                granted += cost;
            }
        }
        let own = store.join(&key);
        for node in &mut all {
            node.handle_back();
            for operation in owed(node, 3) {
                store.operate(&own, Timestamp(3), &operation).unwrap();
            }
            prop_assert!(node.is_empty());
        }
        let said = store.operate(&own, Timestamp(3), &0.into()).unwrap().verdict.decision;
        prop_assert_eq!(said.remaining(), 100_u64.saturating_sub(used + granted));
    }

    #[test]
    fn no_cost_and_no_number_of_nodes_overflows(cost: u64, nodes: u64, now: u64) {
        let policy = policy("limits = [
          { algorithm = 'token_bucket', capacity = 9_000_000_000, rate = '1/s' },
          { algorithm = 'sliding_window', limit = 2_000_000_000, period = '1h' },
          { algorithm = 'calendar', limit = 9_007_199_254_740_991, period = 'day', timezone = 'UTC' },
        ]");
        let key = on(&policy, "k");
        let mut outage = outage(nodes);
        for now in [now, 0, u64::MAX] {
            let _ = outage.decide(&key, Timestamp(now), &cost.into(), None);
            let _ = outage.poll_owed(Timestamp(now));
        }
    }
}
