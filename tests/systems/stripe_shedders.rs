//! Stripe, "Scaling your API with rate limiters": the two load shedders. The limiters of a user's
//! requests are in [`stripe`](crate::stripe).
//!
//! | the source has | here |
//! |---|---|
//! | a share of the fleet's workers that only critical requests may use | `fleet`: 20 % of 1,000 |
//! | nothing is shed below 0.7, more and more from 0.8 on, and in between as much as before | `worker`, these defaults |
//! | bad for 28 s before anything is shed, 120 s more until everything is | the same |
//! | the least important first, then more, the most critical never; no sharp changes | test mode, then GET, then POST |
//!
//! What the author was missing: classes come with the requests and are not programmed. The very first call
//! counts as if the one before it was 28 s earlier, so under load it sheds 23 % at once. At rest the amount is
//! the quotient of two whole numbers, -28 / 120, which is -1 in Ruby: after one rest shedding begins 120 s late
//! instead of 28 s. A request that takes longer than 60 s no longer counts in the fleet.

use serde_json::{Value, json};
use tidegate::local::WorkerdOptions;
use tidegate_gate::{Class, Draw, Micros, Request, Share, Timestamp};
use tidegate_tests::{Served, worker, worker_options};

use crate::{MINUTE, POLICIES, SECOND, System, at, batch, number, number_of};

const FLEET: &str = "fleet";
/// The classes, the least important first. The last one is never shed.
const CLASSES: [&str; 4] = ["test_mode", "get", "post", "critical"];

/// A request of a class, with a lease of the fleet.
fn request(system: &System, class: &str, lease: &str) -> Request {
    let class = system.policy.class(class).unwrap();
    Request { class, lease: Some(system.lease(FLEET, lease)), ..Request::of(1) }
}

#[test]
fn a_fifth_of_the_fleet_is_for_critical_requests_alone() {
    let mut fleet = System::of("fleet");
    for worker in 0..800 {
        let class = CLASSES[worker % 3];
        let low = request(&fleet, class, &format!("low-{worker}"));
        assert!(fleet.operate(FLEET, at(0), low).decision.is_allowed(), "{worker}");
    }
    for class in ["test_mode", "get", "post"] {
        let low = request(&fleet, class, "one-more");
        let refused = fleet.operate(FLEET, at(0), low).decision;
        assert_eq!((refused.is_allowed(), refused.retry_after()), (false, Micros(MINUTE)));
    }
    for worker in 0..300 {
        let charge = request(&fleet, "critical", &format!("charge-{worker}"));
        assert!(fleet.operate(FLEET, at(0), charge).decision.is_allowed(), "{worker}");
    }
    assert_eq!(fleet.release(FLEET, at(1), "low-7").effect.live(), Some(true));
    let low = request(&fleet, "get", "one-more");
    assert!(fleet.operate(FLEET, at(1), low).decision.is_allowed());
}

#[test]
fn a_worker_that_fails_gives_its_place_back_after_60_seconds() {
    let mut fleet = System::of("fleet");
    for worker in 0..800 {
        let low = request(&fleet, "post", &format!("low-{worker}"));
        assert!(fleet.operate(FLEET, at(0), low).decision.is_allowed());
    }
    for worker in 0..790 {
        let renewed = fleet.renew(FLEET, at(50 * SECOND), &format!("low-{worker}"));
        assert_eq!(renewed.effect.live(), Some(true));
    }
    for (now, passes) in [(MINUTE - 1, 0), (MINUTE, 10)] {
        let passed = (0..20).filter(|next| {
            let low = request(&fleet, "post", &format!("next-{next}"));
            fleet.operate(FLEET, at(now), low).decision.is_allowed()
        });
        assert_eq!(passed.count(), passes);
    }
}

/// The signal for this share of busy workers.
fn busy(percent: u64) -> Share {
    Share::of(percent, 100)
}

/// Gives the shedder a signal, with a request that is never shed.
fn sample(worker: &mut System, now: Timestamp, signal: Share) {
    let critical = Request { signal: Some(signal), ..request(worker, "critical", "") };
    assert!(worker.operate(FLEET, now, critical).decision.is_allowed(), "never shed");
}

/// The probability that a class is shed, in units of 2^-32: the number of draws that are shed.
fn shed(worker: &System, now: Timestamp, class: &str) -> u64 {
    let is_shed = |draw: u64| {
        let Ok(draw) = u32::try_from(draw) else { return false };
        let drawn = Request { draw: Draw(draw), ..request(worker, class, "") };
        !worker.clone().operate(FLEET, now, drawn).decision.is_allowed()
    };
    let (mut shed, mut admitted) = (0, 1 << 32);
    while shed < admitted {
        let middle = (shed + admitted) / 2;
        if is_shed(middle) { shed = middle + 1 } else { admitted = middle }
    }
    shed
}

/// The expected probability after `second` seconds with all workers busy: (s - 28) / 120 of three classes.
fn due(second: u64, class: u64) -> u64 {
    let thirds = (3 * second.saturating_sub(28)).saturating_sub(120 * class).min(120);
    (thirds << 32) / 120
}

#[test]
fn one_class_after_another_is_shed_between_28_and_148_seconds() {
    let mut worker = System::of("worker");
    for second in (0..=176).step_by(8) {
        let now = at(second * SECOND);
        sample(&mut worker, now, busy(100));
        for (class, name) in (0..).zip(CLASSES) {
            let due = if name == "critical" { 0 } else { due(second, class) };
            assert_eq!(shed(&worker, now, name), due, "{name} after {second} s");
        }
    }
    // by hand: the first class is shed by a tenth after 32 s, and by nine tenths after 64 s
    let tenths = |tenths: u64| (tenths << 32) / 10;
    assert_eq!([28, 32, 64, 68].map(|second| due(second, 0)), [0, 1, 9, 10].map(tenths));
}

#[test]
fn shedding_ends_as_slowly_as_it_began() {
    let mut worker = System::of("worker");
    for second in (0..=152).step_by(8) {
        sample(&mut worker, at(second * SECOND), busy(100));
    }
    let mut before = [1 << 32; 3];
    for second in (152..=280).step_by(8) {
        let now = at(second * SECOND);
        sample(&mut worker, now, busy(if second == 152 { 100 } else { 0 }));
        let gone = (second - 152).min(120);
        let shares = [0, 1, 2].map(|class| shed(&worker, now, CLASSES[class]));
        assert_eq!(shares, [0, 1, 2].map(|class| due(148 - gone, class)), "after {gone} s");
        // 8 s are a fifteenth of 120 s: a fifth of one of three classes
        let sharp =
            shares.iter().zip(before).find(|(now, before)| before - *now > (1 << 32) / 5 + 1);
        assert_eq!(sharp, None, "after {gone} s");
        before = shares;
    }
    assert_eq!(before, [0; 3]);
}

#[test]
fn between_good_and_bad_nothing_moves() {
    let mut worker = System::of("worker");
    for second in (0..=64).step_by(8) {
        sample(&mut worker, at(second * SECOND), busy(100));
    }
    let shed_before = shed(&worker, at(64 * SECOND), "test_mode");
    assert_eq!(shed_before, due(64, 0));
    for (sample_number, percent) in (1..).zip([70, 75, 79, 80].into_iter().cycle().take(60)) {
        let now = at((64 + 8 * sample_number) * SECOND);
        sample(&mut worker, now, busy(percent));
        assert_eq!(shed(&worker, now, "test_mode"), shed_before, "at {percent} %");
    }
}

#[test]
fn a_signal_halfway_to_the_end_of_its_range_moves_half_as_fast() {
    let mut worker = System::of("worker");
    for second in (0..=64).step_by(8) {
        let now = at(second * SECOND);
        sample(&mut worker, now, busy(90));
        assert_eq!(shed(&worker, now, "test_mode"), due(second / 2, 0), "after {second} s");
    }
    for second in (72..=104).step_by(8) {
        let now = at(second * SECOND);
        sample(&mut worker, now, busy(35));
        let level = 32 - (second - 64) / 2;
        assert_eq!(shed(&worker, now, "test_mode"), due(level, 0), "after {second} s");
    }
}

#[test]
fn the_first_call_under_load_sheds_nothing_and_a_silence_is_one_delay() {
    let mut worker = System::of("worker");
    for class in CLASSES {
        let first = Request { signal: Some(busy(100)), ..request(&worker, class, "") };
        assert!(worker.operate(FLEET, at(0), first).decision.is_allowed(), "{class}");
    }
    // in the published system that call counts as 28 s from an amount of 0: 7/30 of all are shed
    assert_eq!(shed(&worker, at(0), "test_mode"), 0);
    // a silence of 100 s does not count as 100 s of load
    sample(&mut worker, at(100 * SECOND), busy(100));
    assert_eq!(shed(&worker, at(100 * SECOND), "test_mode"), due(28, 0));
}

#[test]
fn after_a_rest_shedding_begins_after_28_seconds_again() {
    let mut worker = System::of("worker");
    for second in (0..=400).step_by(8) {
        sample(&mut worker, at(second * SECOND), busy(0));
    }
    for second in (8..=64).step_by(8) {
        let now = at((400 + second) * SECOND);
        sample(&mut worker, now, busy(100));
        assert_eq!(shed(&worker, now, "test_mode"), due(second, 0), "after {second} s");
    }
    // the published system: its amount at rest, in the whole numbers of Ruby, and its wait after that
    let resting = (-28_i32).div_euclid(120);
    assert_eq!((resting, -resting * 120), (-1, 120));
}

#[test]
fn a_request_without_a_class_is_the_least_important() {
    let worker = System::of("worker");
    assert_eq!(worker.policy.classes(), CLASSES);
    assert_eq!(
        worker.policy.class("critical"),
        Some(Class::CRITICAL),
        "the class that is never shed"
    );
    assert_eq!(Request::of(1).class, Class(0));
}

pub fn a_fifth_of_the_fleet_is_reserved_over_http(served: &Served) {
    let check = |class: &str, lease: &str| {
        let policy = "fleet";
        json!({ "policy": policy, "key": FLEET, "class": class, "lease": lease })
    };
    let mut checks: Vec<Value> =
        (0..801).map(|worker| check(CLASSES[worker % 3], &format!("low-{worker}"))).collect();
    checks.push(check("critical", "charge"));
    let decisions = batch(served, &checks);
    let refused: Vec<usize> =
        (0..802).filter(|place| decisions[*place]["allowed"] == false).collect();
    assert_eq!(refused, [800], "the first request beyond 80 % that is not critical");
    assert_eq!(number(&decisions[800], "retry_after_us"), MINUTE);
    assert_eq!(decisions[800]["limits"][0]["name"], "usage");

    let charge = served.api.post("/v1/leases", check("critical", "charge-2").to_string());
    assert_eq!(charge.get("allowed"), true);
    let quota = "\"usage\";q=1000;qu=\"concurrent-requests\"";
    assert_eq!(charge.header("ratelimit-policy"), Some(quota));
    let release = |lease: &str| {
        served.api.delete(&format!("/v1/leases/{lease}?policy=fleet&key={FLEET}")).get("live")
    };
    assert_eq!((release("charge"), release("low-7")), (json!(false), json!(true)));
    let unnamed = json!({ "policy": "fleet", "key": FLEET });
    let low = served.api.post("/v1/leases", unnamed.to_string());
    assert_eq!(low.get("allowed"), true, "a request without a class passes too: {low:?}");
    let gate = served.api.get(&format!("/v1/gate?policy=fleet&key={FLEET}"), &[]);
    assert_eq!(gate.status, 400, "nobody would learn the name of the lease");
}

pub fn the_first_call_under_load_sheds_nothing_over_http(served: &Served) {
    for class in CLASSES {
        let body =
            json!({ "policy": "worker", "key": class, "class": class, "signal_ppm": 1_000_000 });
        let first = served.api.post("/v1/check", body.to_string());
        assert_eq!((first.status, first.get("allowed")), (200, json!(true)), "{first:?}");
        assert_eq!(
            first.header("ratelimit-policy"),
            None,
            "a shedder is not a quota of the caller"
        );
        let gate =
            served.api.get(&format!("/v1/gate?policy=worker&key={class}-2&class={class}"), &[]);
        assert_eq!(gate.status, 204);
    }
    let unknown = served.api.get("/v1/gate?policy=worker&key=k&class=vip", &[]);
    assert_eq!((unknown.status, unknown.get("type")), (400, json!("urn:tidegate:invalid-request")));
}

/// The same course on the built Worker, which accepts given times and draws in a test environment.
#[test]
fn the_worker_sheds_one_class_after_another() {
    let options = worker_options(&POLICIES);
    let served = worker(WorkerdOptions { trust_caller_time: true, ..options });
    let check = |second: u64, class: &str, draw: u32| {
        let now = at(second * SECOND).0;
        let body = json!({
            "policy": "worker", "key": FLEET, "class": class, "signal_ppm": 1_000_000,
            "now_us": now, "draw": draw,
        });
        let reply = served.api.post("/v1/check", body.to_string());
        assert_eq!(number_of(&reply, "at_us"), now);
        reply.get("allowed") == true
    };
    for second in (0..=152).step_by(8) {
        for (class, name) in (0..).zip(CLASSES) {
            let due = if name == "critical" { 0 } else { due(second, class) };
            // the last draw that is shed, and the first one that is not
            let within = due.checked_sub(1).map(|draw| u32::try_from(draw).unwrap());
            assert!(within.is_none_or(|draw| !check(second, name, draw)), "{name}, {second} s");
            let beyond = u32::try_from(due).ok();
            assert!(beyond.is_none_or(|draw| check(second, name, draw)), "{name}, {second} s");
        }
    }
}
