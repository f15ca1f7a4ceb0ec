//! Compares the token bucket with the crates `governor` and `ratelimit`. All get the same requests at the same
//! given times, and exact rational arithmetic tells the right answer. `first` compares windows with libraries for
//! JavaScript.

mod exact;
mod first;
mod others;

use std::fs;

use exact::{Answer, Exact};
use fastrand::Rng;
use others::{Governor, Other, Ratelimit};
use tidegate_gate::{Limit, Request, Timestamp};
use tidegate_tests::{file, rows};

const SECOND: u64 = 1_000_000;

/// The parameters of a token bucket: `units` per `period_us`, and at most `capacity` at once.
#[derive(Clone, Copy)]
pub struct Rate {
    name: &'static str,
    capacity: u32,
    units: u32,
    period_us: u64,
}

const RATES: [Rate; 7] = [
    Rate { name: "100/s", capacity: 100, units: 100, period_us: SECOND },
    Rate { name: "500/m", capacity: 50, units: 500, period_us: 60 * SECOND },
    Rate { name: "10/h", capacity: 10, units: 10, period_us: 3_600 * SECOND },
    Rate { name: "3/s", capacity: 3, units: 3, period_us: SECOND },
    Rate { name: "7/m", capacity: 7, units: 7, period_us: 60 * SECOND },
    Rate { name: "11/h", capacity: 5, units: 11, period_us: 3_600 * SECOND },
    Rate { name: "300000/s", capacity: 1_000, units: 300_000, period_us: SECOND },
];

/// Floods repeat a refused request at this interval, in µs.
const FLOODS: [(Rate, u64); 2] = [
    (Rate { name: "1/h, every 7.199 ms", capacity: 1, units: 1, period_us: 3_600 * SECOND }, 7_199),
    (Rate { name: "300000/s, every 1 µs", ..RATES[6] }, 1),
];

#[test]
fn where_others_disagree_tidegate_is_right() {
    let text = fs::read_to_string(file("../docs/algorithms.md")).unwrap();
    let shown = rows(&text, "<!-- beside others, counted -->");
    let mut counted = Vec::new();
    for name in ["governor", "ratelimit"] {
        let edges = RATES.map(|rate| (rate, History::edges(rate, 1)));
        let floods = FLOODS.map(|(rate, gap_us)| (rate, History::flood(gap_us)));
        for (rate, history) in edges.into_iter().chain(floods) {
            counted.push(match name {
                "governor" => compare(rate, history, &mut Governor::new(rate)).row(name, rate),
                _ => compare(rate, history, &mut Ratelimit::new(rate)).row(name, rate),
            });
        }
    }
    let table: String = counted.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect();
    assert_eq!(shown, counted, "the table should be\n{table}");
}

#[test]
fn tidegate_is_right_for_any_cost() {
    for rate in RATES {
        let history = History::edges(rate, rate.capacity);
        let governor = compare(rate, history.clone(), &mut Governor::new(rate));
        let ratelimit = compare(rate, history, &mut Ratelimit::new(rate));
        assert_eq!((governor.late, ratelimit.early), (0, 0), "{}", rate.name);
    }
}

/// How another crate answered. Tidegate always answered as exact arithmetic does.
#[derive(Default)]
struct Counts {
    requests: u64,
    /// Requests that the crate and exact arithmetic answered differently.
    disagreements: u64,
    /// Those of them that the crate granted although its own grants had left no room.
    early: u64,
    /// Those of them that the crate refused although its own grants had left room.
    late: u64,
    /// The longest time by which the crate granted too early or refused too late.
    off_by_us: u64,
    /// Requests that the crate refused rightly, with a wrong time to wait.
    waits: u64,
    /// Tokens that the crate granted.
    exact: u64,
    granted: u64,
}

impl Counts {
    fn row(&self, name: &str, rate: Rate) -> Vec<String> {
        let Self { requests, disagreements, early, late, off_by_us, waits, exact, granted } = self;
        let after = disagreements - early - late; // the answer fits the crate's own grants, which were wrong
        let counts =
            [requests, exact, granted, disagreements, early, late, off_by_us, &after, waits];
        let names = [name, rate.name].map(str::to_owned);
        names.into_iter().chain(counts.map(u64::to_string)).collect()
    }
}

fn compare(rate: Rate, mut history: History, other: &mut impl Other) -> Counts {
    let parameters = [1, rate.capacity.into(), rate.units.into(), rate.period_us, 0];
    let tidegate = Limit::from_parameters(&parameters).unwrap();
    let mut words = vec![0; tidegate.words()];
    let (mut exact, mut own) = (Exact::new(rate), Exact::new(rate));
    let mut counts = Counts::default();
    for _ in 0..history.requests {
        let (now, cost) = history.next();
        let right = exact.decide(now, cost);
        let decision =
            tidegate.decide(&mut words, Timestamp(now), &Request::of(cost.into())).unwrap();
        let wait = (!decision.is_allowed()).then_some(decision.retry_after().0);
        assert_eq!(Answer { wait }, right, "{} at {now}, cost {cost}", rate.name);
        history.wait = right.wait;

        let (found, due) = (other.decide(now, cost), own.peek(now, cost));
        let off_by_us = own.off_by(now, cost);
        if found.is_granted() {
            own.take(now, cost);
        }
        if found.is_granted() != right.is_granted() {
            counts.disagreements += 1;
            counts.early += u64::from(found.is_granted() && !due.is_granted());
            counts.late += u64::from(!found.is_granted() && due.is_granted());
        }
        if found.is_granted() != due.is_granted() {
            counts.off_by_us = counts.off_by_us.max(off_by_us);
        }
        counts.waits += u64::from(!found.is_granted() && !due.is_granted() && found != due);
    }
    let requests = history.requests;
    Counts { requests, exact: exact.granted(), granted: own.granted(), ..counts }
}

/// A sequence of requests. A request may depend on the answer to the last one.
#[derive(Clone)]
struct History {
    rng: Rng,
    requests: u64,
    now: u64,
    cost: u32,
    /// The highest cost.
    most: u32,
    pace: Pace,
    /// The wait that the last refusal named.
    wait: Option<u64>,
}

#[derive(Clone, Copy)]
enum Pace {
    /// Times at which errors show: just before or at the end of the last refusal's wait, soon after the last
    /// request, or up to the time of one token later.
    Edges {
        token_us: u64,
    },
    Flood {
        gap_us: u64,
    },
}

impl History {
    fn edges(rate: Rate, most: u32) -> Self {
        let pace = Pace::Edges { token_us: rate.period_us / u64::from(rate.units) };
        Self { rng: Rng::with_seed(1), requests: 100_000, now: 0, cost: 1, most, pace, wait: None }
    }

    fn flood(gap_us: u64) -> Self {
        let (rng, pace) = (Rng::with_seed(1), Pace::Flood { gap_us });
        Self { rng, requests: 2_000_000, now: 0, cost: 1, most: 1, pace, wait: None }
    }

    /// The time and the cost of the next request.
    fn next(&mut self) -> (u64, u32) {
        match (self.pace, self.rng.u8(0..10), self.wait) {
            (Pace::Flood { gap_us }, ..) => self.now += gap_us,
            (Pace::Edges { .. }, 0..4, Some(wait)) => {
                self.now += wait - self.rng.u64(0..=1);
                return (self.now, self.cost);
            }
            (Pace::Edges { token_us }, 4..8, _) => self.now += self.rng.u64(0..=token_us / 20),
            (Pace::Edges { token_us }, ..) => self.now += self.rng.u64(0..=token_us),
        }
        self.cost = self.rng.u32(1..=self.most);
        (self.now, self.cost)
    }
}
