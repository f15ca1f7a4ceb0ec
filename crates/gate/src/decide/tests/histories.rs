//! Random histories beside a model that remembers everything and counts anew at each step: reservations beside a limit in shadow, blocks,
//! an override with an end, and refusals that count. All times are whole seconds.

use std::format;
use std::string::String;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_core::lease::Id;
use tidegate_core::{Micros, Timestamp};

use crate::decide::{Effect, Verdict};
use crate::limit::{Operation, Request};
use crate::policy::{Resolved, TimedOverride, TimedPolicies};
use crate::state::Transaction;
use crate::table::{KeyHasher, Table};

const SECOND: u64 = 1_000_000;
/// A multiple of all periods, in seconds.
const START: u64 = 1_200_000_000;
const PERIOD: u64 = 30;
/// Of a reservation.
const LONGEST: u64 = 20;
const REMEMBERED: u64 = 10;
const MOST: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    Log {
        denied: bool,
    },
    Window,
    /// One unit comes back in a second.
    Bucket,
}

/// A reservation, and how it ended.
#[derive(Clone, Debug)]
struct Reservation {
    id: u64,
    /// Its place among the events.
    event: usize,
    until: u64,
    ended: Option<Ended>,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    charged: u64,
    late: bool,
    is_final: bool,
    forgotten: u64,
}

#[derive(Clone, Debug)]
struct Limit {
    counts: Counts,
    capacity: u64,
    shadow: bool,
    /// All units that were ever taken, each at its time and true cost.
    events: Vec<(u64, u64)>,
    reservations: Vec<Reservation>,
}

impl Limit {
    fn left(&self, now: u64) -> u64 {
        let mut events = self.events.clone();
        events.sort_by_key(|(at, _)| *at);
        let since = |first: u64| {
            events.iter().filter(|(at, _)| *at >= first).map(|(_, units)| *units).sum()
        };
        let used = match self.counts {
            Counts::Log { .. } => since(now - PERIOD + 1),
            Counts::Window => since(now - now % PERIOD),
            Counts::Bucket => {
                let pass = |(used, last): (u64, u64), (at, units): &(u64, u64)| {
                    ((used.saturating_sub(at - last) + units).min(2 * self.capacity), *at)
                };
                let (used, last) = events.iter().fold((0, 0), pass);
                used.saturating_sub(now - last)
            }
        };
        self.capacity.saturating_sub(used)
    }

    fn find(&mut self, id: u64) -> Option<&mut Reservation> {
        self.reservations.iter_mut().find(|held| held.id == id)
    }

    fn is_live(&mut self, id: Option<u64>) -> bool {
        id.and_then(|id| self.find(id)).is_some_and(|held| held.ended.is_none())
    }

    fn advance(&mut self, now: u64, releases: bool) {
        for held in
            self.reservations.iter_mut().filter(|held| held.until <= now && held.ended.is_none())
        {
            let units = &mut self.events[held.event].1;
            *units = if releases { 0 } else { *units };
            let forgotten = held.until + REMEMBERED;
            held.ended = Some(Ended { charged: *units, late: true, is_final: false, forgotten });
        }
        self.reservations.retain(|held| held.ended.is_none_or(|ended| ended.forgotten > now));
    }

    fn grants(&mut self, now: u64, cost: u64, id: Option<u64>) -> bool {
        let has_place = |id| self.find(id).is_none() && self.reservations.len() < MOST;
        id.is_none_or(has_place) && cost <= self.left(now)
    }

    fn take(&mut self, now: u64, cost: u64, id: Option<u64>) {
        let (event, until, ended) = (self.events.len(), now + LONGEST, None);
        self.events.push((now, cost));
        self.reservations.extend(id.map(|id| Reservation { id, event, until, ended }));
    }

    fn commit(&mut self, now: u64, id: u64, actual: u64) -> (u64, bool) {
        let forgotten = now + REMEMBERED;
        let Some(held) = self.find(id) else {
            if self.reservations.len() == MOST {
                let place = |held: &Reservation| held.ended.map(|ended| (ended.forgotten, held.id));
                let Some(next) = self.reservations.iter().filter_map(place).min() else {
                    self.events.push((now, actual)); // nothing can be forgotten for it
                    return (actual, true);
                };
                self.reservations.retain(|held| held.id != next.1);
            }
            self.take(now, actual, Some(id));
            let ended = Ended { charged: actual, late: true, is_final: true, forgotten };
            self.find(id).unwrap().ended = Some(ended);
            return (actual, true);
        };
        let (charged, late) = match held.ended {
            Some(Ended { charged, late, is_final: true, .. }) => return (charged, late),
            Some(Ended { charged, .. }) => (charged.max(actual), true),
            None => (actual, false),
        };
        let before = held.ended.map_or(0, |ended| ended.charged);
        held.ended = Some(Ended { charged, late, is_final: true, forgotten });
        let event = held.event;
        match late {
            true => self.events.push((now, charged - before)),
            false => self.events[event].1 = actual,
        }
        (charged, late)
    }
}

/// The limits of the policy or of the override, and until when they are blocked.
#[derive(Clone, Debug)]
struct Rule {
    limits: Vec<Limit>,
    blocked: u64,
}

impl Rule {
    /// Whether a refusal names the exact wait. A block does not know when a reservation ends that is repeated in it, and a peek in it
    /// names the end of the block alone. A log that counts a refusal by others does not know which of its reservations end.
    fn names_the_wait(&mut self, now: u64, cost: u64, id: Option<u64>, step: Step) -> bool {
        let is_blocked = now < self.blocked;
        let repeats = self.limits.iter_mut().any(|limit| limit.is_live(id));
        let counts_for_others = |limit: &mut Limit| {
            let has_live = limit.reservations.iter().any(|held| held.ended.is_none());
            has_live
                && limit.counts == (Counts::Log { denied: true })
                && limit.grants(now, cost, id)
        };
        let counts = self.limits.iter_mut().any(counts_for_others);
        !counts && !(is_blocked && (repeats || matches!(step, Step::Peek { .. })))
    }
}

#[derive(Clone, Debug)]
struct Model {
    /// The override, and the policy.
    rules: [Rule; 2],
    ends: u64,
    releases: bool,
}

impl Model {
    fn rule(&mut self, now: u64) -> &mut Rule {
        let Self { rules: [own, former], ends, releases } = self;
        let rule = if now < *ends { own } else { former };
        rule.limits.iter_mut().for_each(|limit| limit.advance(now, *releases));
        rule
    }

    fn ask(&mut self, now: u64, cost: u64, id: Option<u64>) -> bool {
        let Rule { limits, blocked } = self.rule(now);
        let mut enforced = limits.iter_mut().filter(|limit| !limit.shadow);
        let passes = now >= *blocked
            && enforced.all(|limit| limit.is_live(id) || limit.grants(now, cost, id));
        let repeats = passes && limits.iter_mut().any(|limit| limit.is_live(id));
        for limit in limits {
            if passes && !repeats && limit.grants(now, cost, id) {
                limit.take(now, cost, id);
            } else if !repeats
                && cost <= limit.capacity
                && limit.counts == (Counts::Log { denied: true })
            {
                limit.take(now, cost, None);
            }
        }
        passes
    }

    /// When the request passes that this refusal answered.
    fn wait(&self, now: u64, cost: u64, id: Option<u64>) -> u64 {
        (1..).find(|passed| self.clone().ask(now + passed, cost, id)).unwrap()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Check { cost: u64 },
    Peek { cost: u64 },
    Reserve { id: u64, cost: u64 },
    Commit { id: u64, actual: u64 },
    Block { span: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..=5_u64).prop_map(|cost| Step::Check { cost }),
        1 => (1..=5_u64).prop_map(|cost| Step::Peek { cost }),
        4 => (0..5_u64, 1..=5_u64).prop_map(|(id, cost)| Step::Reserve { id, cost }),
        4 => (0..5_u64, 0..=8_u64).prop_map(|(id, actual)| Step::Commit { id, actual }),
        1 => (0..=15_u64).prop_map(|span| Step::Block { span }),
    ]
}

/// A limit in the policy file, beside its model.
fn limit(counts: Counts, capacity: u64, shadow: bool) -> (String, Limit) {
    let numbers = match counts {
        Counts::Log { denied } => format!(
            r#""algorithm":"sliding_log","rates":["{capacity}/{PERIOD}s"],"count_denied":{denied}"#
        ),
        Counts::Window => {
            format!(r#""algorithm":"fixed_window","limit":{capacity},"period":"{PERIOD}s""#)
        }
        Counts::Bucket => {
            format!(r#""algorithm":"token_bucket","capacity":{capacity},"rate":"1/s""#)
        }
    };
    let model = Limit { counts, capacity, shadow, events: Vec::new(), reservations: Vec::new() };
    (format!(r#"{{{numbers},"shadow":{shadow}}}"#), model)
}

/// What a policy of these limits, and an override until a time, say beside the model.
fn run(
    of: &[(Counts, bool)],
    ends: u64,
    releases: bool,
    steps: &[(u64, Step)],
) -> Result<(), TestCaseError> {
    let ends = START + ends;
    let [(own_text, own), (text, former)] = [5, 9].map(|capacity| {
        let limits = of
            .iter()
            .map(|(counts, shadow)| limit(*counts, capacity - u64::from(*shadow), *shadow));
        let (texts, limits): (Vec<_>, Vec<_>) = limits.unzip();
        (format!("[{}]", texts.join(",")), Rule { limits, blocked: 0 })
    });
    let on_expiry = if releases { "release" } else { "charge" };
    let file = format!(
        r#"{{"policies":{{"p":{{"limits":{text},"reservations":{{"most":{MOST},"time_to_live":"{LONGEST}s","remember":"{REMEMBERED}s","on_expiry":"{on_expiry}"}}}}}}}}"#
    );
    let fields = format!(r#"{{"limits":{own_text},"until_us":{}}}"#, ends * SECOND);
    let text =
        TimedOverride::join(&file, &[TimedOverride::new("p", "k", "alice", &fields).unwrap()]);
    let [timed, plain] = [ends - 1, ends].map(|now| {
        let policies = TimedPolicies::parse(&text, Timestamp(now * SECOND)).unwrap().policies;
        Resolved::new(policies.get("p").unwrap(), "k").unwrap()
    });
    let mut model = Model { rules: [own, former], ends, releases };
    let (mut table, mut transaction) =
        (Table::new(1 << 20, KeyHasher::new(7)), Transaction::default());
    let mut now = START;
    for (passed, step) in steps {
        now += passed;
        let key = if now < ends { &timed } else { &plain };
        let request = |cost, id: Option<u64>| Request {
            lease: id.map(|id| Id([0, id])),
            hold: Micros(id.map_or(0, |_| LONGEST * SECOND)),
            ..Request::of(cost)
        };
        let mut operate = |operation: Operation| -> Verdict {
            let at = Timestamp(now * SECOND);
            let verdict = table.ask(key, at, &operation).unwrap();
            let joined = transaction.join(key);
            assert_eq!(transaction.operate(&joined, at, &operation).unwrap().verdict, verdict);
            transaction.stored(|_| Micros::ZERO);
            verdict
        };
        let (verdict, asked) = match *step {
            Step::Check { cost } => (operate(request(cost, None).into()), Some((cost, None))),
            Step::Peek { cost } => {
                (operate(Operation::Peek(request(cost, None))), Some((cost, None)))
            }
            Step::Reserve { id, cost } => {
                (operate(request(cost, Some(id)).into()), Some((cost, Some(id))))
            }
            Step::Commit { id, actual } => (operate(Operation::Commit(Id([0, id]), actual)), None),
            Step::Block { span } => (operate(Operation::Block(Micros(span * SECOND))), None),
        };
        if let Some((cost, id)) = asked {
            let before = model.clone();
            let is_exact = model.rule(now).names_the_wait(now, cost, id, *step);
            let passes = model.ask(now, cost, id);
            let wait = if passes { 0 } else { model.wait(now, cost, id) };
            prop_assert_eq!(
                verdict.decision.is_allowed(),
                passes,
                "{:?} at {}: {:?}",
                step,
                now,
                model
            );
            if passes || is_exact {
                prop_assert_eq!(
                    verdict.decision.retry_after(),
                    Micros(wait * SECOND),
                    "{:?} at {}: {:?}",
                    step,
                    now,
                    model
                );
            }
            if let Step::Peek { .. } = step {
                model = before;
            }
        }
        let rule = model.rule(now);
        match *step {
            Step::Commit { id, actual } => {
                let mut all = Vec::new();
                for limit in &mut rule.limits {
                    // a limit in shadow charges only what it holds
                    if !limit.shadow || limit.is_live(Some(id)) {
                        let (shadow, said) = (limit.shadow, limit.commit(now, id, actual));
                        all.extend((!shadow).then_some(said));
                    }
                }
                let (charged, late) = all[0];
                prop_assert_eq!(verdict.effect, Effect::Committed { charged, late, by: None });
            }
            Step::Block { span } => rule.blocked = now + span,
            Step::Reserve { id, .. } if verdict.decision.is_allowed() => {
                let limit = rule.limits.iter_mut().find(|limit| !limit.shadow).unwrap();
                let Reservation { event, until, .. } = *limit.find(id).unwrap();
                let (units, until) = (limit.events[event].1, Timestamp(until * SECOND));
                prop_assert_eq!(verdict.effect, Effect::Reserved { units, until, by: None });
            }
            _ => {}
        }
        let left = rule.limits.iter().map(|limit| limit.left(now));
        let said = operate(Operation::Peek(request(0, None))).limits;
        let said = said.iter().map(|said| said.remaining());
        prop_assert_eq!(
            said.collect::<Vec<_>>(),
            left.collect::<Vec<_>>(),
            "{:?} at {}: {:?}",
            step,
            now,
            rule
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_history_is_that_of_the_model(
        policy in 0..6_usize,
        ends in 0..90_u64,
        releases: bool,
        steps in proptest::collection::vec((0..=7_u64, step()), 1..40),
    ) {
        let (log, denied) = (Counts::Log { denied: false }, Counts::Log { denied: true });
        let (window, bucket) = (Counts::Window, Counts::Bucket);
        let policies: [&[_]; 6] = [
            &[(denied, false)],
            &[(denied, false), (window, true)],
            &[(bucket, false), (log, true)],
            &[(window, false), (denied, false), (bucket, true)],
            &[(bucket, false), (window, false)],
            &[(log, false), (denied, true)],
        ];
        run(policies[policy], ends, releases, &steps)?;
    }
}
