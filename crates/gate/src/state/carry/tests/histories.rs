//! What must hold of the grants themselves, whatever is edited.

use std::format;
use std::string::String;
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

    /// While nodes with several files take turns, no more buckets grant than the largest capacity and what flows in. Under `proportional`
    /// that holds of shares: no more than one capacity.
    #[test]
    fn nodes_that_take_turns_grant_no_more_than_the_most_lenient_of_them(
        (capacities, rates) in ([1..40_u64, 1..40, 1..40], [1..9_u64, 1..9, 1..9]),
        proportional: bool,
        beside: bool,
        steps in prop::collection::vec((0..3_000_000_u64, 1..20_u64, 0..3_usize), 1..60),
    ) {
        let rule = if proportional { "proportional" } else { "keep" };
        let [one, other, third] = capacities;
        let nodes = [0, 1, 2].map(|node| {
            let bucket = bucket(capacities[node], &format!("{}/s", rates[node]));
            let window = "{ algorithm = 'fixed_window', limit = 900, period = '1h' }";
            policy(&if beside { format!("{bucket}, {window}") } else { bucket }, rule)
        });
        // a unit of each node; all of a capacity
        let (units, all) = match proportional {
            true => ([other * third, one * third, one * other], one * other * third),
            false => ([1, 1, 1], one.max(other).max(third)),
        };
        let (mut stored, mut now) = (Stored::default(), NOW);
        // how much, and what had flowed in by then, in millionths
        let (mut grants, mut inflow) = (Vec::new(), 0);
        let mut last = None;
        for (gap, cost, turn) in steps {
            now = now.saturating_add(Micros(gap));
            // by the limit that wrote last
            let by = last.unwrap_or(turn);
            inflow += gap * rates[by] * units[by];
            let cost = cost.min(nodes[turn].limits().capacity());
            let before = stored.0.clone();
            if stored.operate(&nodes[turn], "k", now, cost).decision.is_allowed() {
                grants.push((cost * units[turn] * 1_000_000, inflow));
            }
            if stored.0 != before {
                last = Some(turn);
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

    /// A log grants no more than the larger limit in any period, a fixed window no more in any of its windows, and a sliding window no
    /// more than twice as much in any period. A second limit beside it, or a second rate, changes nothing.
    #[test]
    fn windows_that_decide_on_a_key_in_turns_loosen_nothing(
        kind in 0..4_usize,
        limits in [1..20_u64, 1..20_u64, 1..20_u64],
        longer in 0..4_usize,
        beside: bool,
        steps in prop::collection::vec((0..4_000_000_u64, 1..4_u64, 0..3_usize), 1..80),
    ) {
        let nodes = [0, 1, 2].map(|node| {
            let limit = limits[node];
            let period = if node == longer { 60 } else { 20 };
            let fields = match kind {
                0 => format!("sliding_log', rates = ['{limit}/{period}s']"),
                1 => format!("fixed_window', limit = {limit}, period = '{period}s'"),
                2 => format!("sliding_window', limit = {limit}, period = '{period}s'"),
                _ => format!("sliding_log', rates = ['{limit}/{period}s', '1/1us']"),
            };
            let bucket = if beside { format!(", {}", bucket(99, "99/s")) } else { String::new() };
            policy(&format!("{{ algorithm = '{fields} }}{bucket}"), "keep")
        });
        let most = limits.into_iter().max().unwrap() * [1, 1, 2, 1][kind];
        let (mut stored, mut now, mut grants) = (Stored::default(), Timestamp(60_000_000), Vec::new());
        for (gap, cost, turn) in steps {
            now = now.saturating_add(Micros(gap));
            let cost = cost.min(nodes[turn].limits().capacity());
            if stored.operate(&nodes[turn], "k", now, cost).decision.is_allowed() {
                grants.push((now.0, cost));
            }
            let from = if kind == 1 { now.0 - now.0 % 20_000_000 } else { now.0 - 19_999_999 };
            let within = grants.iter().filter(|(at, _)| *at >= from);
            let granted: u64 = within.map(|(_, cost)| cost).sum();
            prop_assert!(granted <= most, "{granted}");
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
