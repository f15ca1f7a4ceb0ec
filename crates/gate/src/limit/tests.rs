use std::format;
use std::string::String;
use std::vec;

use proptest::prelude::*;
use tidegate_core::lease::{Held, Id};
use tidegate_core::shed::suppression::Report;
use tidegate_core::shed::utilization::Class;
use tidegate_core::shed::{Draw, Probability, Share};
use tidegate_core::{Micros, Timestamp};

use super::request::{Operation, Request};
use super::{Kind, Limit};
use crate::policy::Policy;

/// One of each algorithm, and how it is described.
const LIMITS: [(&str, &str); 19] = [
    (
        "algorithm = 'token_bucket', capacity = 5, rate = '3/s', start = 'empty'",
        "bursts of 5, then 3 every 1 s; full after 1666667 µs; empty at first",
    ),
    ("algorithm = 'fixed_window', limit = 5, period = '90s'", "5 in every aligned 90 s"),
    (
        "algorithm = 'fixed_window', limit = 5, period = '90s', start = 'first'",
        "5 in 90 s from a key's first request on",
    ),
    ("algorithm = 'calendar', limit = 5, period = 'day'", "5 every calendar day, UTC"),
    (
        "algorithm = 'calendar', limit = 5, period = 'week', week_start = 'sunday', timezone = 'Pacific/Apia'",
        "5 every calendar week from sunday on, Pacific/Apia",
    ),
    ("algorithm = 'calendar', limit = 5, period = 'month'", "5 every calendar month, UTC"),
    (
        "algorithm = 'calendar', limit = 5, period = 'month', anchor = 31, timezone = 'Europe/Madrid'",
        "5 every calendar month from day 31 on, Europe/Madrid",
    ),
    (
        "algorithm = 'calendar', limit = 5, period = 'quarter', anchor = '08-31', timezone = 'Asia/Tokyo', \
         zone_data = '2026b 0+32400 4733510400'",
        "5 every calendar quarter from 08-31 on, Asia/Tokyo",
    ),
    (
        "algorithm = 'calendar', limit = 5, period = 'year', anchor = '04-06', timezone = 'UTC'",
        "5 every calendar year from 04-06 on, UTC",
    ),
    (
        "algorithm = 'sliding_window', limit = 5, period = '3s', segments = 3",
        "5 in 3 s, slid by 3 segments of 1 s",
    ),
    (
        "algorithm = 'sliding_log', rates = ['5/m', '2/3s'], min_gap = '1ms'",
        "5 in any 1 m and 2 in any 3 s, 1 ms apart",
    ),
    (
        "algorithm = 'sliding_log', rates = ['5/2s'], count_denied = true",
        "5 in any 2 s, refused ones too",
    ),
    (
        "algorithm = 'concurrency', capacity = 5, time_to_live = '2s', max_leases = 3",
        "5 at once, each for 2 s unless renewed; but a state has room for 3 leases (max_leases), and no \
         more are granted",
    ),
    (
        "algorithm = 'connections', limit = 5",
        "5 connections of up to 64 owners; an owner that sends nothing for 10 m is forgotten",
    ),
    (
        "algorithm = 'fleet_usage', capacity = 5, reserve = '20%', time_to_live = '2s'",
        "5 at once, 1 of them for the most important class alone, each for 2 s unless renewed",
    ),
    (
        "algorithm = 'utilization', good = '12.5%', bad = '50%'",
        "sheds above 50 %: a signal of 100 % sheds first after 28 s, and 2 m later all but the most \
         important class; a signal nearer to 50 % takes longer in proportion; below 12.5 % shedding recedes",
    ),
    (
        "algorithm = 'suppression', rate = '1/s'",
        "suppresses what is offered beyond 1 every 1 s; newest part of the offered rate",
    ),
    (
        "algorithm = 'suppression', rate = '1/s', estimator = 'linear_admitted', ramp = 3",
        "suppresses what is offered beyond 1 every 1 s; linear on the admitted rate, all at 4 times the \
         limit",
    ),
    (
        "algorithm = 'suppression', rate = '2/s', estimator = 'modified_mean'",
        "suppresses what is offered beyond 1 every 500 ms; modified mean of the offered rate",
    ),
];

const BESIDE_OTHERS: [(&str, &str); 2] = [
    (
        "algorithm = 'budget', most = 9, time = '2s'",
        "up to 9 units for 2 s, granted to up to 64 holders, which spend them without asking",
    ),
    (
        "algorithm = 'penalty', refusals = 2, within = '3s', duration = '1s', max = '4s'",
        "after 2 refusals within 3 s refuses everything for 1 s, twice as long each time up to 4 s; \
         forgives after 1 s",
    ),
];

/// Limits of a policy with reservations.
const HOLDING: [(&str, &str); 5] = [
    (
        "algorithm = 'token_bucket', capacity = 5, rate = '3/s', start = 'empty'",
        "bursts of 5, then 3 every 1 s; full after 1666667 µs; empty at first; up to 3 reservations, each for up to 2 s",
    ),
    (
        "algorithm = 'token_bucket', capacity = 5, rate = '3/s'",
        "bursts of 5, then 3 every 1 s; full after 1666667 µs; up to 3 reservations, each for up to 2 s",
    ),
    (
        "algorithm = 'fixed_window', limit = 5, period = '3s'",
        "5 in every aligned 3 s; up to 3 reservations, each for up to 2 s",
    ),
    (
        "algorithm = 'sliding_window', limit = 5, period = '3s', segments = 3",
        "5 in 3 s, slid by 3 segments of 1 s; up to 3 reservations, each for up to 2 s",
    ),
    (
        "algorithm = 'sliding_log', rates = ['5/2s'], count_denied = true",
        "5 in any 2 s, refused ones too; up to 3 reservations, each for up to 2 s",
    ),
];

/// Each limit as written, with its description.
fn each() -> impl Iterator<Item = (Limit, &'static str)> {
    let alone = LIMITS.iter().map(|(limit, text)| (format!("limits = [{{ {limit} }}]"), *text));
    let beside = BESIDE_OTHERS.iter().map(|(limit, text)| {
        let window = "{ algorithm = 'fixed_window', limit = 9, period = '1s' }";
        (format!("limits = [{{ {limit} }}, {window}]"), *text)
    });
    let holding = HOLDING.iter().map(|(limit, text)| {
        let terms = "{ most = 3, time_to_live = '2s', remember = '1s' }";
        (format!("limits = [{{ {limit} }}]\nreservations = {terms}"), *text)
    });
    alone.chain(beside).chain(holding).map(|(policy, text): (String, _)| {
        let policy = Policy::parse("p", &policy).unwrap();
        let limit = policy.limits().iter().next().unwrap().limit.clone();
        (limit, text)
    })
}

#[test]
fn each_limit_is_described_and_told_by_its_numbers() {
    for (limit, text) in each() {
        assert_eq!(limit.describe(), text);
        let parameters = limit.parameters();
        assert_eq!(Limit::from_parameters(&parameters), Ok(limit.clone()), "{text}");
        for wrong in [&parameters[..1], &[&parameters[..], &[1]].concat()] {
            assert_ne!(Limit::from_parameters(wrong), Ok(limit.clone()), "{text}");
        }
    }
}

proptest! {
    /// So that a decision evaluates each limit twice at most.
    #[test]
    fn a_grant_is_what_was_said_before_and_is_said_afterwards(
        steps in prop::collection::vec((0..900_000_u64, 1..3_u64, 0..5_u64, any::<u32>()), 1..40),
    ) {
        for (limit, text) in each() {
            let mut words = vec![0; limit.words()];
            let mut now = 1_000_000_000;
            for &(ahead, cost, lease, draw) in &steps {
                now += ahead;
                let now = Timestamp(now);
                let request = Request {
                    lease: Some(Id([lease, 0])),
                    hold: Micros(u64::from(draw % 3) * 700_000),
                    draw: Draw(draw),
                    signal: Some(Share::of(u64::from(draw % 101), 100)),
                    ..Request::of(cost)
                };
                let before = words.clone();
                let free = Request { hold: Micros::ZERO, ..request.peek() };
                let looked = limit.peek(&words, now, &free);
                prop_assert_eq!(limit.decide(&mut words, now, &free), looked, "{}", text);
                prop_assert_eq!(&words, &before, "{}: a cost of 0 takes nothing", text);
                let said = limit.peek(&words, now, &request).unwrap();
                prop_assert_eq!(&words, &before, "{}: a peek changes nothing", text);
                let decided = limit.decide(&mut words, now, &request).unwrap();
                prop_assert_eq!(said, decided, "{}", text);
                prop_assert!(limit.accepts(&words).is_ok(), "{}", text);
                if decided.is_allowed() {
                    let after = limit.peek(&words, now, &free).unwrap();
                    prop_assert_eq!(after, decided, "{}", text);
                    if draw % 5 == 0 {
                        limit.commit(&mut words, now, Id([lease, 0]), cost / 2);
                    }
                } else {
                    let wait = said.retry_after();
                    if limit.kind() == Kind::Rate && !limit.remembers_refusals() {
                        let passes = |at| {
                            let said = limit.peek(&words, Timestamp(now.0 + at), &request);
                            said.unwrap().is_allowed()
                        };
                        prop_assert!(!passes(wait.0 - 1) && passes(wait.0), "{}: {:?}", text, said);
                    }
                    let (said, wait) = limit.refuse(&mut words, now, &request, false).unwrap();
                    prop_assert!(!said.is_allowed() && wait >= said.retry_after(), "{}", text);
                    prop_assert!(limit.accepts(&words).is_ok(), "{}", text);
                }
                prop_assert_eq!(limit.used(&words).is_some(), limit.kind() == Kind::Rate);
            }
        }
    }
}

#[test]
fn a_limit_on_leases_holds_one_for_each_request_that_takes_something() {
    for (limit, text) in each() {
        let needs = |request| limit.needs_lease(&request);
        assert!(!needs(Request::of(0)), "{text}");
        assert_eq!(needs(Request::of(1)), limit.kind() == Kind::Lease, "{text}");
        let critical = Request { class: Class::CRITICAL, ..Request::of(1) };
        let is_fleet = limit.algorithm() == "fleet_usage"; // high priority holds no lease
        assert_eq!(needs(critical), limit.kind() == Kind::Lease && !is_fleet, "{text}");
    }
}

#[test]
fn only_a_master_of_reporters_has_a_factor() {
    let now = Timestamp(1_700_000_000_000_000);
    for (limit, text) in each() {
        let mut words = vec![0; limit.words()];
        let is_master = limit.algorithm() == "suppression";
        let factor = |words: &[u64]| limit.factor(words, now);
        assert_eq!(factor(&words), is_master.then_some(Probability::NEVER), "{text}");
        let report = Report { offered_at: now, admitted: 1 << 50, suppressed: 0 };
        limit.report(&mut words, now, report);
        assert_eq!(factor(&words).is_some_and(|factor| factor != Probability::NEVER), is_master);
    }
}

#[test]
fn a_lease_is_live_until_it_is_released() {
    let (now, id) = (Timestamp(1_700_000_000_000_000), Id([0, 1]));
    for (limit, text) in each() {
        let mut words = vec![0; limit.words()];
        let mut does = |operation| limit.hold(&mut words, now, &operation);
        if limit.kind() != Kind::Lease {
            assert_eq!(does(Operation::Heartbeat(id)), None, "{text}");
            continue;
        }
        assert_eq!(does(Operation::Heartbeat(id)), Some(Held::Unknown), "{text}");
        let request = Request { lease: Some(id), ..Request::of(1) };
        assert!(limit.decide(&mut words, now, &request).unwrap().is_allowed(), "{text}");
        let mut does = |operation| limit.hold(&mut words, now, &operation);
        assert_eq!(does(Operation::Heartbeat(id)), Some(Held::Live { cost: 1 }), "{text}");
        assert_eq!(does(Operation::Release(id)), Some(Held::Live { cost: 1 }), "{text}");
        assert_eq!(does(Operation::Release(id)), Some(Held::Unknown), "{text}");
        let counts = limit.algorithm() == "connections";
        let counted = does(Operation::Count(id, 2));
        assert_eq!(counted, counts.then_some(Held::Live { cost: 2 }), "{text}");
    }
}

#[test]
fn only_a_limit_of_several_parts_names_the_part_that_makes_a_request_wait() {
    for (limit, text) in each().filter(|(limit, _)| limit.algorithm() != "sliding_log") {
        let words = vec![0; limit.words()];
        assert_eq!(limit.held_by(&words, Timestamp(1_700_000_000_000_000), 1), None, "{text}");
    }
}

#[test]
fn a_log_names_the_part_that_makes_a_request_wait() {
    let now = Timestamp(1_700_000_000_000_000);
    for (limit, text) in each() {
        let is_log = text.contains(" in any ");
        let part = limit.describe_part(1);
        assert_eq!(part.is_some(), is_log, "{text}");
        assert!(part.is_none_or(|part| text.starts_with(&part)), "{text}");
        let mut words = vec![0; limit.words()];
        if is_log {
            let all = Request::of(limit.capacity());
            assert!(limit.decide(&mut words, now, &all).unwrap().is_allowed(), "{text}");
            assert!(limit.held_by(&words, now, 1).is_some(), "{text}");
        }
    }
}

#[test]
fn only_a_limit_that_remembers_refusals_counts_those_of_others() {
    let now = Timestamp(1_700_000_000_000_000);
    let signal = Some(Share::of(100, 100));
    let request = Request { lease: Some(Id([0, 1])), signal, ..Request::of(1) };
    for (limit, text) in each() {
        let [mut refused, mut waited] = [0; 2].map(|_| vec![0; limit.words()]);
        let _ = limit.refuse(&mut refused, now, &request, true).unwrap();
        for words in [&mut refused, &mut waited] {
            limit.advance(words, now);
        }
        assert_eq!(refused != waited, limit.remembers_refusals(), "{text}");
    }
}

#[test]
fn a_charge_of_nothing_only_moves_the_clock() {
    for (limit, text) in each() {
        let [mut charged, mut moved] = [0; 2].map(|_| vec![0; limit.words()]);
        for now in [1_700_000_000_000_000, 1_700_000_000_000_007].map(Timestamp) {
            limit.advance(&mut moved, now);
            limit.advance(&mut charged, now);
            limit.charge(&mut charged, now, 0);
            assert_eq!(charged, moved, "{text}");
            [&mut charged, &mut moved].into_iter().for_each(|words| limit.charge(words, now, 2));
        }
    }
}

#[test]
fn a_request_that_takes_nothing_renews_no_lease() {
    let id = Some(Id([0, 1]));
    for (limit, text) in each().filter(|(limit, _)| limit.kind() == Kind::Lease) {
        let mut words = vec![0; limit.words()];
        let acquire = Request { lease: id, ..Request::of(1) };
        assert!(limit.decide(&mut words, Timestamp(0), &acquire).unwrap().is_allowed(), "{text}");
        let (before, later) = (words.clone(), Timestamp(1_000_000));
        let free = Request { lease: id, ..Request::of(0) };
        let looked = limit.peek(&words, later, &Request::of(0));
        assert_eq!(limit.peek(&words, later, &free), looked, "{text}");
        assert_eq!(limit.decide(&mut words, later, &free), looked, "{text}");
        assert_eq!(words, before, "{text}");
    }
}

#[test]
fn the_ratio_of_two_logs_is_the_largest_of_their_rates() {
    let log = |rates: &str| {
        let limits = format!("limits = [{{ algorithm = 'sliding_log', rates = [{rates}] }}]");
        let policy = Policy::parse("p", &limits).unwrap();
        policy.limits().iter().next().unwrap().limit.clone()
    };
    let old = log("'10/s', '100/h'");
    for (new, ratio) in
        [("'10/s', '50/h'", (10, 10)), ("'10/s', '200/h'", (200, 100)), ("'5/s', '50/h'", (5, 10))]
    {
        assert_eq!(log(new).ratio(&old), ratio, "{new}");
    }
}

/// Fingerprints of stored states contain them.
#[test]
fn the_numbers_of_the_estimators_stay() {
    let suppression = |text: &str| text.starts_with("suppresses");
    let each = each().filter(|(_, text)| suppression(text));
    let last: std::vec::Vec<_> = each.filter_map(|(limit, _)| limit.parameters().pop()).collect();
    assert_eq!(last, [1 << 32, 3, 2 << 32]);
}

#[test]
fn numbers_name_no_more_payers_than_a_rule_has_limits() {
    let (limit, _) = each().next().unwrap();
    let read = |place: u64| {
        let numbers = [&[place][..], &limit.parameters()].concat();
        super::parameters::read(&[&[super::parameters::wide(numbers.len())][..], &numbers].concat())
    };
    for (place, payer) in
        [(201, Some(Some(0))), (216, Some(Some(15))), (217, None), (200, Some(None))]
    {
        let found = read(place).ok().map(|limits| limits[0].payer);
        assert_eq!(found, payer, "{place}");
    }
}

#[test]
fn a_state_with_room_for_all_places_needs_no_warning() {
    assert_eq!(super::describe::room(5, 5), "");
    assert!(super::describe::room(4, 5).contains("has room for 4 leases"));
}

#[test]
fn a_shedder_has_as_many_classes_as_its_policy() {
    let limit = "limits = [{ algorithm = 'utilization' }]";
    for (classes, count) in [("", 2), ("classes = ['low', 'middle', 'high']", 3)] {
        let policy = Policy::parse("p", &format!("{classes}\n{limit}")).unwrap();
        let limit = &policy.limits().iter().next().unwrap().limit;
        let Limit::Utilization(config) = limit else { panic!("{limit:?}") };
        assert_eq!(u64::from(config.classes()), count - 1, "the last class is never shed");
    }
}
