//! A simulation of one account with many reporters and one master under a stepwise load.

use std::collections::BTreeMap;

use rand::rngs::ChaCha8Rng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp1};
use tidegate_core::shed::suppression::{self, Estimator, PART, REPORT_EVERY, Report};
use tidegate_core::shed::{Draw, Probability, reporter};
use tidegate_core::{Micros, Rate, Timestamp};

const SECOND: u64 = 1_000_000;

/// The bounds of the delay of a message: 10 to 100 ms each way.
const DELAY: (u64, u64) = (10_000, 100_000);

/// A constant load for a time.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// The length of the phase in seconds.
    pub seconds: u64,
    /// The load in per mille of the limit: 10,000 is ten times the limit. Requests come at random
    /// (Poisson).
    pub per_mille: u64,
}

/// The parameters of a simulation.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed of the traffic, the reporters' phases, the delays and the draws.
    pub seed: u64,
    /// The number of reporters, which share the load evenly.
    pub reporters: u32,
    /// The account's limit in units per second.
    pub limit: u64,
    /// The units of one request.
    pub units: u64,
    /// The phases of the load, in order.
    pub phases: Vec<Phase>,
    /// The time from the start of a part of 6 s to the start of the first phase.
    pub into_part: Micros,
    /// The master's estimator.
    pub estimator: Estimator,
    /// Whether a reporter refuses on its own the load with which it alone exceeds the limit.
    pub cap: reporter::LocalCap,
    /// Whether the load leaves out requests that would exceed the limit of their part.
    pub clipped: bool,
}

/// The units offered in one second, and the decisions on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// All units offered.
    pub offered: u64,
    /// The units that passed.
    pub admitted: u64,
    /// The units refused by the master's factor.
    pub suppressed: u64,
    /// The units refused by a local cap.
    pub capped: u64,
}

impl Scenario {
    /// A load of nothing for 12 s, of ten times the limit of 10,000/s for 96 s, and of 0.8 of the
    /// limit for 36 s. The step comes at the start of a part. Each of the 50 reporters has at most
    /// a fifth of the limit.
    #[must_use]
    pub fn step(estimator: Estimator) -> Self {
        Self {
            seed: 1,
            reporters: 50,
            limit: 10_000,
            units: 2,
            phases: vec![
                Phase { seconds: 12, per_mille: 0 },
                Phase { seconds: 96, per_mille: 10_000 },
                Phase { seconds: 36, per_mille: 800 },
            ],
            into_part: Micros::ZERO,
            estimator,
            cap: reporter::LocalCap::Off,
            clipped: false,
        }
    }

    /// The same step for 30 s, with two reporters that have five times the limit each.
    #[must_use]
    pub fn two_hot_reporters(cap: reporter::LocalCap) -> Self {
        let phases =
            vec![Phase { seconds: 12, per_mille: 0 }, Phase { seconds: 30, per_mille: 10_000 }];
        Self { reporters: 2, cap, phases, ..Self::step(Estimator::NewestPart) }
    }

    /// An hour at 99.9 % of the limit, and never more than the limit in any part of 6 s.
    #[must_use]
    pub fn just_within(estimator: Estimator) -> Self {
        Self {
            limit: 300,
            units: 1,
            phases: vec![Phase { seconds: 3_600, per_mille: 999 }],
            into_part: Micros(2_500_000),
            cap: reporter::LocalCap::On,
            clipped: true,
            ..Self::step(estimator)
        }
    }
}

enum Event {
    /// A request at a random reporter.
    Request,
    /// A reporter's timer, which runs every 2 s from a random moment on.
    Timer { reporter: usize },
    /// Reports reach the master.
    Arrive { reporter: usize, reports: [Option<Report>; 2] },
    /// The master's reply reaches the reporter.
    Reply { reporter: usize, factor: Probability },
}

struct World<'a> {
    scenario: &'a Scenario,
    start: u64,
    /// The events in order of time, and events of one time in the order of planning.
    events: BTreeMap<(u64, u64), Event>,
    planned: u64,
    /// The generator of requests. It does not depend on the decisions.
    traffic: ChaCha8Rng,
    /// The rest of gaps that were rounded down to microseconds. It is carried over, so that the
    /// rate is exact.
    rest_of_gap: f64,
    /// The generator of phases and delays.
    network: ChaCha8Rng,
    /// The generator of the draws for the reporters' decisions.
    draws: ChaCha8Rng,
    master: suppression::Config,
    account: suppression::State,
    reporter: reporter::Config,
    reporters: Vec<reporter::State>,
    /// A part, and the units offered in that part.
    in_part: (u64, u64),
    seconds: Vec<Second>,
}

/// Runs the scenario. The result has one entry per second.
///
/// # Errors
/// Returns an error if the limiters do not accept the scenario.
pub fn run(scenario: &Scenario) -> anyhow::Result<Vec<Second>> {
    let limit = Rate::new(scenario.limit, Micros::SECOND)?;
    let generator = |stream| {
        let mut generator = ChaCha8Rng::seed_from_u64(scenario.seed);
        generator.set_stream(stream);
        generator
    };
    let start = 1_700_000_000 * SECOND / PART.0 * PART.0 + scenario.into_part.0;
    let seconds: u64 = scenario.phases.iter().map(|phase| phase.seconds).sum();
    let mut world = World {
        scenario,
        start,
        events: BTreeMap::new(),
        planned: 0,
        traffic: generator(0),
        rest_of_gap: 0.0,
        network: generator(1),
        draws: generator(2),
        master: suppression::Config::new(limit, scenario.estimator)?,
        account: suppression::State::default(),
        reporter: reporter::Config::new(limit, scenario.cap),
        reporters: vec![reporter::State::default(); usize::try_from(scenario.reporters)?],
        in_part: (0, 0),
        seconds: vec![Second::default(); usize::try_from(seconds)?],
    };
    world.plan(start, Event::Request);
    for reporter in 0..world.reporters.len() {
        let phase = below(&mut world.network, REPORT_EVERY.0);
        world.plan(start + phase, Event::Timer { reporter });
    }
    let end = start + seconds * SECOND;
    while let Some(((at, _), event)) = world.events.pop_first()
        && at < end
    {
        world.happen(at, event)?;
    }
    Ok(world.seconds)
}

impl World<'_> {
    fn plan(&mut self, at: u64, event: Event) {
        self.planned += 1;
        self.events.insert((at, self.planned), event);
    }

    fn happen(&mut self, at: u64, event: Event) -> anyhow::Result<()> {
        let now = Timestamp(at);
        match event {
            Event::Request => self.request(at)?,
            Event::Timer { reporter } => {
                let reports = self.reporter.take_reports(&mut self.reporters[reporter], now);
                if reports != [None; 2] {
                    let arrival = at + self.delay();
                    self.plan(arrival, Event::Arrive { reporter, reports });
                }
                self.plan(at + REPORT_EVERY.0, Event::Timer { reporter });
            }
            Event::Arrive { reporter, reports } => {
                for report in reports.into_iter().flatten() {
                    self.master.report(&mut self.account, now, report);
                }
                let factor = self.master.factor(&self.account, now);
                let arrival = at + self.delay();
                self.plan(arrival, Event::Reply { reporter, factor });
            }
            Event::Reply { reporter, factor } => {
                self.reporter.apply(&mut self.reporters[reporter], now, factor);
            }
        }
        Ok(())
    }

    fn request(&mut self, at: u64) -> anyhow::Result<()> {
        let Scenario { units, limit, reporters, clipped, .. } = *self.scenario;
        let (per_mille, until) = self.phase(at);
        if per_mille == 0 {
            self.plan(until, Event::Request);
            return Ok(());
        }
        let next = at + self.gap(limit * per_mille, units * 1_000);
        self.plan(next, Event::Request);
        let reporter = usize::try_from(below(&mut self.traffic, u64::from(reporters)))?;
        let part = at / PART.0;
        if self.in_part.0 != part {
            self.in_part = (part, 0);
        }
        if clipped && self.in_part.1 + units > limit * PART.0 / SECOND {
            return Ok(());
        }
        self.in_part.1 += units;

        let draw = Draw(self.draws.next_u32());
        let state = &mut self.reporters[reporter];
        let verdict = self.reporter.decide(state, Timestamp(at), units, draw)?;
        let second = &mut self.seconds[usize::try_from((at - self.start) / SECOND)?];
        second.offered += units;
        *match verdict {
            reporter::Verdict::Admitted => &mut second.admitted,
            reporter::Verdict::Suppressed { .. } => &mut second.suppressed,
            reporter::Verdict::Capped { .. } => &mut second.capped,
        } += units;
        Ok(())
    }

    /// The microseconds to the next request at this rate.
    #[expect(clippy::float_arithmetic, clippy::as_conversions, reason = "gaps are real numbers")]
    fn gap(&mut self, requests: u64, seconds: u64) -> u64 {
        let gaps: f64 = Exp1.sample(&mut self.traffic);
        self.rest_of_gap += gaps * (seconds * SECOND) as f64 / requests as f64;
        let whole = self.rest_of_gap as u64;
        self.rest_of_gap -= whole as f64;
        whole
    }

    fn delay(&mut self) -> u64 {
        DELAY.0 + below(&mut self.network, DELAY.1 - DELAY.0)
    }

    /// The load at a time, and the time until which it lasts.
    fn phase(&self, at: u64) -> (u64, u64) {
        let mut until = self.start;
        for phase in &self.scenario.phases {
            until += phase.seconds * SECOND;
            if at < until {
                return (phase.per_mille, until);
            }
        }
        (0, u64::MAX)
    }
}

/// A number from 0 to `most` − 1. It is uniform except for a bias of `most` / 2^32, which does not
/// matter here, and the same in every version of the library.
fn below(generator: &mut ChaCha8Rng, most: u64) -> u64 {
    (u64::from(generator.next_u32()) * most) >> 32
}
