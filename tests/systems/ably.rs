//! Ably, "Building a distributed rate limiter that scales horizontally".
//!
//! | the source has | here |
//! |---|---|
//! | each node reports at most every 2 s and is answered with the fraction to refuse | `account`, 10,000/s, and the reporter of the core |
//! | a mean over 24 s, of four parts of 6 s | the same |
//! | its first profile, linear from one to three times the limit: swings, every 24 s | `estimator = "linear_admitted"` |
//! | refused messages count too, with their fan-out: 1,001 units for 1,000 subscribers; then the admitted load settles at the limit | by default |
//! | an account within its limit is never suppressed, however close to it | the same |
//!
//! What the author was missing: with the mean the loop takes some seconds longer than he would like; the
//! newest part shortens the loop. A node that alone exceeds the limit waits for the whole loop; with the local
//! cap, his plan for a next step, the node refuses at once.

use serde_json::json;
use tidegate_core::shed::reporter::{self, LocalCap};
use tidegate_gate::{Draw, Limit, Offered, Operation, Probability, Request};
use tidegate_tests::Served;

use crate::{SECOND, System, assert_refused_by, at, number_of};

const ACCOUNT: &str = "account:42";
const PART: u64 = 6 * SECOND;
/// 10,000/s
const LIMIT_OF_A_PART: u64 = 60_000;
/// The units of one message to 1,000 subscribers.
const PUBLISH: u64 = 1_001;

const AS_PUBLISHED_FIRST: &str = "rate = \"10000/s\", estimator = \"linear_admitted\"";
const AS_PUBLISHED: &str = "rate = \"10000/s\", estimator = \"modified_mean\"";

fn estimated_by(rate_and_estimator: &str) -> System {
    System::edited("account", "rate = \"10000/s\"", rate_and_estimator)
}

/// The fraction to refuse, in units of 2^-32, after a report at this time.
fn report(master: &mut System, now: u64, admitted: u64, suppressed: u64) -> u64 {
    let offered = Operation::Report(Offered { at: None, admitted, suppressed });
    master.operate(ACCOUNT, at(now), offered).factor.unwrap().units()
}

/// Several nodes, over which an account publishes evenly.
struct Cluster {
    master: System,
    config: reporter::Config,
    nodes: Vec<reporter::State>,
    draw: u32,
    /// Units admitted in each second.
    admitted: Vec<u64>,
    /// The first time at which a node was told to refuse a fraction above 0.
    reacted: Option<u64>,
}

impl Cluster {
    fn new(master: System, nodes: usize, cap: LocalCap) -> Self {
        let Limit::Suppression(limit) = master.policy.limits().iter().next().unwrap().limit else {
            panic!("another limit");
        };
        let config = reporter::Config::new(limit.limit(), cap);
        let nodes = vec![reporter::State::default(); nodes];
        Self { master, config, nodes, draw: 0, admitted: Vec::new(), reacted: None }
    }

    /// Publishes one message each `every` µs for some seconds.
    fn publish(&mut self, seconds: u64, every: u64) {
        self.admitted = vec![0; usize::try_from(seconds).unwrap()];
        for number in 0..seconds * SECOND / every {
            let now = number * every;
            let nodes = u64::try_from(self.nodes.len()).unwrap();
            let node = usize::try_from(number % nodes).unwrap();
            self.draw = self.draw.wrapping_add(EVENLY);
            let state = &mut self.nodes[node];
            let verdict = self.config.decide(state, at(now), PUBLISH, Draw(self.draw)).unwrap();
            if verdict.is_admitted() {
                self.admitted[usize::try_from(now / SECOND).unwrap()] += PUBLISH;
            }
            self.report(node, now);
        }
    }

    /// Sends the due reports of a node. Nodes report at different times, each at most every 2 s.
    fn report(&mut self, node: usize, now: u64) {
        if now < 400_000 * u64::try_from(node).unwrap() {
            return;
        }
        let state = &mut self.nodes[node];
        for report in self.config.take_reports(state, at(now)).into_iter().flatten() {
            let offered = Offered {
                at: Some(report.offered_at),
                admitted: report.admitted,
                suppressed: report.suppressed,
            };
            let reply = self.master.operate(ACCOUNT, at(now), Operation::Report(offered));
            let factor = reply.factor.unwrap();
            self.config.apply(state, at(now), factor);
            if factor > Probability::NEVER && self.reacted.is_none() {
                self.reacted = Some(now);
            }
        }
    }

    /// Units admitted in each part of 6 s.
    fn parts(&self) -> Vec<u64> {
        self.admitted.chunks(6).map(|seconds| seconds.iter().sum()).collect()
    }
}

/// Multiples of this are spread evenly over all draws: it is 2^32 divided by the golden ratio.
const EVENLY: u32 = 2_654_435_769;
/// The time in µs between two publishes at ten times the limit.
const TEN_TIMES: u64 = PUBLISH * SECOND / 100_000;

fn settled(units: u64) -> bool {
    units.abs_diff(LIMIT_OF_A_PART) <= LIMIT_OF_A_PART / 20
}

#[test]
fn the_linear_profile_refuses_half_at_twice_and_all_at_three_times_the_limit() {
    for (times, factor) in [(1, 0), (2, 1 << 31), (3, 1 << 32), (10, 1 << 32)] {
        let mut master = estimated_by(AS_PUBLISHED_FIRST);
        let factors =
            [0, 1, 2, 3].map(|part| report(&mut master, part * PART, times * LIMIT_OF_A_PART, 0));
        assert_eq!(factors[3], factor, "at {times} times the limit for 24 s");
    }
}

#[test]
fn the_linear_profile_still_swings_after_a_minute() {
    let mut cluster = Cluster::new(estimated_by(AS_PUBLISHED_FIRST), 5, LocalCap::Off);
    cluster.publish(72, TEN_TIMES);
    let parts = cluster.parts();
    for cycle in parts.chunks(4) {
        // in each cycle of 24 s nearly all units pass at the start, and nearly none at the end
        assert!(cycle[0] > 6 * LIMIT_OF_A_PART, "{parts:?}");
        assert!(cycle[3] < LIMIT_OF_A_PART / 4, "{parts:?}");
        assert!(cycle.is_sorted_by(|one, next| one > next), "{parts:?}");
        assert!(!cycle.iter().any(|units| settled(*units)), "{parts:?}");
    }
}

#[test]
fn the_admitted_load_settles_at_the_limit_if_refused_load_counts() {
    let mut mean = Cluster::new(estimated_by(AS_PUBLISHED), 5, LocalCap::Off);
    let mut newest = Cluster::new(System::of("account"), 5, LocalCap::Off);
    for (cluster, from_part) in [(&mut mean, 5), (&mut newest, 2)] {
        cluster.publish(96, TEN_TIMES);
        let parts = cluster.parts();
        assert!(parts[from_part..].iter().all(|units| settled(*units)), "{parts:?}");
        assert!(!settled(parts[0]), "nodes cannot refuse before the first answer: {parts:?}");
    }
    let excess_in_24_s =
        |cluster: &Cluster| cluster.parts()[..4].iter().sum::<u64>() - 4 * LIMIT_OF_A_PART;
    let (by_mean, by_newest) = (excess_in_24_s(&mean), excess_in_24_s(&newest));
    assert!(by_newest * 2 < by_mean, "{by_newest} too many, and {by_mean} by the mean");
    assert!(newest.reacted < Some(2 * SECOND), "{:?}", newest.reacted);
}

#[test]
fn an_account_within_its_limit_is_never_suppressed() {
    // at most 59 publishes a part are 59,059 of 60,000 units; one more would be too many
    let every = PART / 59 + 1;
    for master in [System::of("account"), estimated_by(AS_PUBLISHED)] {
        let mut cluster = Cluster::new(master, 5, LocalCap::On);
        cluster.publish(600, every);
        assert_eq!(cluster.reacted, None);
        let admitted: u64 = cluster.admitted.iter().sum();
        assert_eq!(admitted, 600 * SECOND / every * PUBLISH, "no publish was refused");
    }
}

#[test]
fn exactly_the_limit_is_within_it_and_one_more_is_not() {
    let mut master = System::of("account");
    for part in 0..10 {
        for second in [0, 2, 4] {
            let now = part * PART + second * SECOND;
            assert_eq!(report(&mut master, now, LIMIT_OF_A_PART / 3, 0), 0, "{part} {second}");
        }
    }
    let late = 10 * PART - 1;
    assert!(report(&mut master, late, 1, 0) > 0);
}

#[test]
fn the_factor_brings_what_is_offered_down_to_the_limit() {
    // at ten times the limit nine tenths are to be refused, whether the units passed or not
    for (admitted, suppressed) in [(600_000, 0), (60_000, 540_000), (0, 600_000)] {
        let mut master = System::of("account");
        report(&mut master, PART - 1, admitted, suppressed);
        assert_eq!(report(&mut master, PART + 2 * SECOND, 0, 0), (9 << 32) / 10);
    }
}

#[test]
fn each_publish_is_refused_with_that_probability() {
    let mut master = System::of("account");
    report(&mut master, PART - 1, 2 * LIMIT_OF_A_PART, 0);
    let half = 1 << 31;
    for (draw, passes) in [(0, false), (half - 1, false), (half, true), (u32::MAX, true)] {
        let publish = Request { draw: Draw(draw), ..Request::of(PUBLISH) };
        let verdict = master.clone().operate(ACCOUNT, at(PART + 2 * SECOND), publish);
        assert_eq!(verdict.decision.is_allowed(), passes, "{draw}");
    }
}

/// One node has all the load: a channel with a high fan-out.
#[test]
fn a_node_that_alone_exceeds_the_limit_is_capped_without_a_round_trip() {
    let first_part = |cap| {
        let mut cluster = Cluster::new(System::of("account"), 1, cap);
        cluster.publish(12, TEN_TIMES / 10); // a hundred times the limit
        cluster.parts()[0]
    };
    let (capped, uncapped) = (first_part(LocalCap::On), first_part(LocalCap::Off));
    assert!(capped <= LIMIT_OF_A_PART, "{capped}");
    assert!(uncapped > 20 * LIMIT_OF_A_PART, "{uncapped} in the 2 s until the next report");
}

pub fn reporters_are_told_the_factor_over_http(served: &Served) {
    let report = |key: &str, admitted: u64, suppressed: u64| {
        let body = json!({
            "policy": "account", "key": key, "admitted": admitted, "suppressed": suppressed,
        });
        served.api.post("/v1/report", body.to_string())
    };
    // together the three report less than the limit of a part, so nothing is refused at any time
    for _ in 0..3 {
        let within = report("within", LIMIT_OF_A_PART / 3, 0);
        assert_eq!(number_of(&within, "factor"), 0, "{within:?}");
    }
    assert_eq!(number_of(&report("edge", LIMIT_OF_A_PART, 0), "factor"), 0);
    assert!(number_of(&report("beyond", LIMIT_OF_A_PART, 1), "factor") > 0);

    // each reports ten times the limit of a part, so at least nine tenths are to be refused
    for _ in 0..3 {
        let above = report("above", LIMIT_OF_A_PART, 540_000);
        let factor = number_of(&above, "factor");
        assert!(((9 << 32) / 10..1 << 32).contains(&factor), "{above:?}");
        assert_eq!(above.header("ratelimit"), None, "a suppression is not a quota of the caller");
    }

    // the largest report: all but one in 2^32 are to be refused
    let most = report("flood", 9_007_199_254_740_991, 0);
    assert_eq!(number_of(&most, "factor"), u64::from(u32::MAX));
    assert_eq!(served.api.check("account", "flood", PUBLISH, None).get("allowed"), false);
    let gate = served.api.get("/v1/gate?policy=account&key=flood", &[]);
    assert_refused_by(&gate, 503, "temporary-reduced-capacity", "account");
    assert!(
        gate.get("retry_after_us").as_u64().unwrap() <= PART,
        "the wait ends with the part at the latest"
    );
    assert_eq!(served.api.get("/v1/gate?policy=account&key=other", &[]).status, 204);
}
