//! What must hold of the grants themselves, whatever is edited.

use std::format;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_core::lease::Id;
use tidegate_core::{Micros, Timestamp};

use super::stored::Stored;
use super::{NOW, bucket, policy};
use crate::limit::{Operation, Request};
use crate::policy::Policy;

proptest! {
    /// In no span of a rate more is granted than the old or the new log allows in it.
    #[test]
    fn over_an_edit_each_rate_of_a_log_holds(
        rates in prop::collection::vec((1..9_u64, 1..9_u64, 1..9_u64), 1..4),
        proportional: bool,
        steps in prop::collection::vec((0..2_000_000_u64, 1..4_u64), 1..60),
        edited: prop::sample::Index,
    ) {
        let rule = if proportional { "proportional" } else { "keep" };
        let of = |limit: fn(&(u64, u64, u64)) -> u64| {
            let rates = rates.iter().map(|rate| format!("'{}/{}s'", limit(rate), rate.2));
            let rates = rates.collect::<Vec<_>>().join(", ");
            policy(&format!("{{ algorithm = 'sliding_log', rates = [{rates}] }}"), rule)
        };
        let nodes = [of(|rate| rate.0), of(|rate| rate.1)];
        let (mut stored, mut now) = (Stored::default(), NOW);
        let mut grants: Vec<(u64, u64)> = Vec::new();
        let edited = edited.index(steps.len());
        for (step, (gap, cost)) in steps.into_iter().enumerate() {
            now = now.saturating_add(Micros(gap));
            let node = &nodes[usize::from(step >= edited)];
            let cost = cost.min(node.limits().capacity());
            if stored.operate(node, "k", now, cost).decision.is_allowed() {
                grants.push((now.0, cost));
            }
        }
        for (old, new, period) in rates {
            for (first, (from, _)) in grants.iter().enumerate() {
                let span = grants[first..].iter().take_while(|(at, _)| at - from < period * 1_000_000);
                let granted: u64 = span.map(|(_, cost)| cost).sum();
                prop_assert!(granted <= old.max(new), "{granted} in {period} s");
            }
        }
    }

    /// While nodes with the old and with the new file take turns, no more is granted than the larger
    /// capacity and what flows in: under `keep`, if it is at most twice the smaller. Under
    /// `proportional` that holds of shares: no more than one capacity.
    #[test]
    fn nodes_that_take_turns_grant_no_more_than_the_more_lenient_of_both(
        (capacity, other, rates) in (1..20_u64, 0..1_000_u64, [1..9_u64, 1..9_u64]),
        proportional: bool,
        steps in prop::collection::vec((0..3_000_000_u64, 1..20_u64, any::<bool>()), 1..60),
    ) {
        let rule = if proportional { "proportional" } else { "keep" };
        let other = if proportional { 1 + other % 40 } else { capacity + other % (capacity + 1) };
        let nodes = [(capacity, rates[0]), (other, rates[1])];
        let nodes = nodes.map(|(capacity, rate)| policy(&bucket(capacity, &format!("{rate}/s")), rule));
        // a unit of each node; all of a capacity
        let (units, all) = match proportional {
            true => ([other, capacity], capacity * other),
            false => ([1, 1], capacity.max(other)),
        };
        let (mut stored, mut now) = (Stored::default(), NOW);
        // how much, and what had flowed in by then, in millionths
        let (mut grants, mut inflow) = (Vec::new(), 0);
        let mut last = None;
        for (gap, cost, turn) in steps {
            let turn = usize::from(turn);
            now = now.saturating_add(Micros(gap));
            // by the limit that wrote last
            let by = last.replace(turn).unwrap_or(turn);
            inflow += gap * rates[by] * units[by];
            let cost = cost.min(nodes[turn].limits().capacity());
            if stored.operate(&nodes[turn], "k", now, cost).decision.is_allowed() {
                grants.push((cost * units[turn] * 1_000_000, inflow));
            }
        }
        for (first, &(_, from)) in grants.iter().enumerate() {
            let mut granted = 0;
            for &(cost, inflow) in &grants[first..] {
                granted += cost;
                prop_assert!(granted <= all * 1_000_000 + inflow - from);
            }
        }
    }

    /// Held leases are held after an edit, and no more are granted than the more lenient of all limits
    /// had places.
    #[test]
    fn a_lease_outlives_edits(
        edits in prop::collection::vec((1..6_u64, 1..5_u64), 1..5),
        steps in prop::collection::vec((0..2_000_000_u64, 0..8_u64, 0..4_u8, any::<bool>()), 1..60),
    ) {
        let of = |(capacity, time_to_live): &(u64, u64)| {
            policy(&format!(
                "{{ algorithm = 'concurrency', capacity = {capacity}, time_to_live = \
                 '{time_to_live}s', max_leases = 9 }}"
            ), "keep")
        };
        let nodes: Vec<Policy> = edits.iter().map(of).collect();
        let (mut stored, mut now, mut place) = (Stored::default(), NOW.0, 0);
        // who holds one, and since when it was not renewed
        let mut held: std::collections::BTreeMap<u64, u64> = Default::default();
        let mut newest = now;
        for (gap, who, what, edit) in steps {
            if edit && place + 1 < nodes.len() {
                place += 1;
                // they count as renewed at the last request, if another limit takes them over
                if edits[place] != edits[place - 1] {
                    held.values_mut().for_each(|since| *since = newest);
                }
            }
            now += gap;
            newest = now;
            let (capacity, time_to_live) = edits[place];
            held.retain(|_, since| now - *since < time_to_live * 1_000_000);
            let (id, at) = (Id([who, 1]), Timestamp(now));
            match what {
                0 => {
                    let verdict = stored.operate(&nodes[place], "k", at, Operation::Release(id));
                    prop_assert_eq!(verdict.effect.live(), Some(held.remove(&who).is_some()));
                }
                1 => {
                    let verdict = stored.operate(&nodes[place], "k", at, Operation::Heartbeat(id));
                    prop_assert_eq!(verdict.effect.live(), Some(held.contains_key(&who)));
                    held.entry(who).and_modify(|since| *since = now);
                }
                _ => {
                    let request = Request { lease: Some(id), ..Request::of(1) };
                    let fits = held.contains_key(&who) || held.len() < usize::try_from(capacity).unwrap();
                    let verdict = stored.operate(&nodes[place], "k", at, request);
                    prop_assert_eq!(verdict.decision.is_allowed(), fits);
                    if fits {
                        held.insert(who, now);
                    }
                }
            }
        }
    }
}
