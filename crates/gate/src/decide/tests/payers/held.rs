//! Reservations that a payer holds, beside limits that stand apart and a list of who holds what.

use std::collections::BTreeMap;

use tidegate_core::hold::Committed;

use super::*;

const TIME: u64 = 8 * SECOND;
const REMEMBER: u64 = 3 * SECOND;

/// What is known of an id.
#[derive(Clone, Copy, Debug)]
struct Known {
    payer: usize,
    live: bool,
    is_final: bool,
    /// The time at which it ends, or is forgotten.
    until: u64,
}

#[derive(Clone)]
struct Held {
    apart: Apart,
    known: BTreeMap<u64, Known>,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Check(u64),
    Reserve(u64, u64),
    Commit(u64, u64),
}

fn id(number: u64) -> Id {
    Id([7, number])
}

impl Act {
    fn operation(self) -> Operation {
        match self {
            Self::Check(cost) => cost.into(),
            Self::Reserve(number, cost) => {
                Request { lease: Some(id(number)), hold: Micros(TIME), ..Request::of(cost) }.into()
            }
            Self::Commit(number, actual) => Operation::Commit(id(number), actual),
        }
    }
}

impl Held {
    fn of(limits: &Limits) -> Self {
        Self { apart: Apart::of(limits), known: BTreeMap::new() }
    }

    /// Ends what has expired, and forgets what ended long enough ago.
    fn pass(&mut self, now: u64) {
        for known in self.known.values_mut().filter(|known| known.live && known.until <= now) {
            (known.live, known.until) = (false, known.until + REMEMBER);
        }
        self.known.retain(|_, known| known.until > now);
    }

    fn act(&mut self, now: u64, act: Act) -> (Said, Option<Committed>) {
        self.pass(now);
        let none = |said| (said, None);
        match (act, act.operation()) {
            (Act::Reserve(number, cost), Operation::Decide(request)) => {
                match self.known.get(&number).copied() {
                    Some(Known { payer, live: true, .. }) => none(self.again(now, &request, payer)),
                    Some(Known { until, .. }) => none(self.too_early(now, &request, until - now)),
                    None => {
                        let said = self.apart.decide(Timestamp(now), &request);
                        if let (Some(payer), true) = (said.payer, cost > 0) {
                            let until = now + TIME;
                            let known = Known { payer, live: true, is_final: false, until };
                            self.known.insert(number, known);
                        }
                        none(said)
                    }
                }
            }
            (Act::Commit(number, actual), _) => self.commit(now, number, actual),
            (_, Operation::Decide(request)) => none(self.apart.decide(Timestamp(now), &request)),
            _ => unreachable!(),
        }
    }

    /// A reservation that is repeated takes nothing, whoever else has room.
    fn again(&mut self, now: u64, request: &Request, payer: usize) -> Said {
        let before: Vec<u64> = self.left(now);
        for (place, (limit, pays, words)) in self.apart.each.iter_mut().enumerate() {
            if !*pays || place == payer {
                let request = Request { cost: request.cost.min(limit.capacity()), ..*request };
                assert!(limit.decide(words, Timestamp(now), &request).unwrap().is_allowed());
            }
            limit.advance(words, Timestamp(now));
        }
        self.apart.newest = Timestamp(now);
        assert_eq!(before, self.left(now));
        let remaining = self.apart.remaining(Timestamp(now));
        Said { allowed: true, payer: Some(payer), retry_after: Micros::ZERO, remaining }
    }

    fn left(&self, now: u64) -> Vec<u64> {
        let left = |(limit, _, words): &(Limit, bool, Vec<u64>)| {
            limit.peek(words, Timestamp(now), &Request::of(0)).unwrap().remaining()
        };
        self.apart.each.iter().map(left).collect()
    }

    /// An id of a reservation that has ended is refused until it is forgotten.
    fn too_early(&mut self, now: u64, request: &Request, forgotten: u64) -> Said {
        let waits = self.apart.waits(Timestamp(now), request);
        let of = |pays: bool| {
            let each = self.apart.each.iter().zip(&waits).filter(move |(each, _)| each.1 == pays);
            each.map(|(_, wait)| *wait)
        };
        let paid = of(true).min().unwrap().max(Micros(forgotten));
        let retry_after = of(false).max().unwrap().max(paid);
        for (limit, _, words) in &mut self.apart.each {
            limit.advance(words, Timestamp(now));
        }
        self.apart.newest = Timestamp(now);
        let remaining = self.apart.remaining(Timestamp(now));
        Said { allowed: false, payer: None, retry_after, remaining }
    }

    fn commit(&mut self, now: u64, number: u64, actual: u64) -> (Said, Option<Committed>) {
        let at = Timestamp(now);
        self.apart.each.iter_mut().for_each(|(limit, _, words)| limit.advance(words, at));
        let has_room = |(_, (limit, pays, words)): &(usize, &(Limit, bool, Vec<u64>))| {
            *pays && limit.peek(words, at, &Request::of(actual)).is_ok_and(|said| said.is_allowed())
        };
        let first = self.apart.each.iter().enumerate().find(has_room).map(|(place, _)| place);
        let last = self.apart.each.len() - 1;
        let known = self.known.get(&number).copied();
        let payer = known.map_or_else(|| first.unwrap_or(last), |known| known.payer);
        let mut all = Committed { charged: 0, late: false };
        for (place, (limit, pays, words)) in self.apart.each.iter_mut().enumerate() {
            if !*pays || place == payer {
                let own = limit.commit(words, at, id(number), actual).unwrap();
                all.charged = all.charged.max(own.charged);
                all.late |= own.late;
            }
        }
        if known.is_none_or(|known| !known.is_final) {
            let until = now + REMEMBER;
            self.known.insert(number, Known { payer, live: false, is_final: true, until });
        }
        self.apart.newest = at;
        let remaining = self.apart.remaining(at);
        let said = Said { allowed: true, payer: Some(payer), retry_after: Micros::ZERO, remaining };
        (said, Some(all))
    }
}

/// Does an act on the limits and on those that stand apart.
fn check_act(limits: &Limits, words: &mut Vec<u64>, held: &mut Held, now: u64, act: Act) {
    let operation = act.operation();
    let verdict = limits.operate(words, Timestamp(now), &operation).unwrap();
    let (expected, committed) = held.act(now, act);
    assert_eq!(said(&verdict), expected, "{act:?} at {now}: {verdict:?}");
    assert_eq!(*words, held.apart.words(), "{act:?} at {now}");
    if let Some(Committed { charged, late }) = committed {
        let by = expected.payer.map(|payer| u8::try_from(payer).unwrap());
        assert_eq!(verdict.effect, Effect::Committed { charged, late, by }, "{act:?} at {now}");
    }
    if !expected.allowed {
        let passes = |wait: u64| {
            let said = limits.operate(&mut words.clone(), Timestamp(now + wait), &operation);
            said.unwrap().decision.is_allowed()
        };
        assert!(!passes(expected.retry_after.0 - 1), "{act:?} is refused until its end");
        assert!(passes(expected.retry_after.0), "{act:?} is granted at its end");
    }
}

#[test]
fn every_history_of_four_acts_stays_with_its_payers() {
    let limits = limits(LARGE);
    let acts = [
        Act::Check(5),
        Act::Reserve(1, 5),
        Act::Reserve(1, 7),
        Act::Reserve(2, 4),
        Act::Commit(1, 0),
        Act::Commit(1, 6),
        Act::Commit(2, 9),
    ];
    // side by side; while ended ones are remembered; after the reservation, and after it is forgotten
    let spans = [0, 2 * SECOND, 8 * SECOND, 11 * SECOND];
    let mut histories = vec![(vec![0; limits.words()], Held::of(&limits), START)];
    let mut payers = [0; 4];
    for _ in 0..4 {
        let mut longer = Vec::new();
        for (words, held, now) in &histories {
            for span in spans {
                for act in acts {
                    let (mut words, mut held, now) = (words.clone(), held.clone(), now + span);
                    check_act(&limits, &mut words, &mut held, now, act);
                    for known in held.known.values().filter(|known| known.live) {
                        payers[known.payer] += 1;
                    }
                    longer.push((words, held, now));
                }
            }
        }
        longer.sort_unstable_by(|one, other| (&one.0, one.2).cmp(&(&other.0, other.2)));
        longer.dedup_by(|one, other| (&one.0, one.2) == (&other.0, other.2));
        histories = longer;
    }
    assert!(payers[1..].iter().all(|count| *count > 100), "{payers:?}");
}

#[test]
fn a_reservation_that_is_repeated_at_a_higher_cost_answers_as_the_first() {
    let text = "limits = [
      { name = 'plan', algorithm = 'fixed_window', limit = 4, period = '1m', payer = true },
      { name = 'credits', algorithm = 'fixed_window', limit = 90, period = '1m', payer = true },
    ]
    reservations = {}";
    let limits = limits(text);
    let mut words = vec![0; limits.words()];
    let mut ask =
        |cost| limits.operate(&mut words, at(0), &Act::Reserve(1, cost).operation()).unwrap();
    let first = ask(3);
    assert!(matches!(first.effect, Effect::Reserved { units: 3, by: Some(0), .. }));
    assert_eq!(ask(3), first);
    let higher = ask(80);
    assert_eq!((higher.effect, higher.decision), (first.effect, first.decision));
}

const PENALTY: &str = "limits = [
  { name = 'plan', algorithm = 'fixed_window', limit = 4, period = '1m', payer = true },
  { name = 'credits', algorithm = 'fixed_window', limit = 4, period = '1m', payer = true },
  { algorithm = 'penalty', refusals = 1, within = '1m', duration = '1m' },
]
reservations = {}";

#[test]
fn a_penalty_counts_an_id_that_comes_again_too_early() {
    let limits = limits(PENALTY);
    let mut words = vec![0; limits.words()];
    let mut ask = |act: Act| {
        let verdict = limits.operate(&mut words, at(0), &act.operation()).unwrap();
        verdict.decision.is_allowed()
    };
    let acts = [Act::Reserve(1, 1), Act::Commit(1, 1), Act::Check(1), Act::Reserve(1, 1)];
    assert_eq!(acts.map(&mut ask), [true, true, true, false]);
    assert!(!ask(Act::Check(1)), "the penalty lasts");
}

#[test]
fn a_reservation_that_is_repeated_under_a_penalty_is_refused_and_stays() {
    let limits = limits(PENALTY);
    let mut words = vec![0; limits.words()];
    let mut ask = |act: Act| {
        let verdict = limits.operate(&mut words, at(0), &act.operation()).unwrap();
        (verdict.decision.is_allowed(), verdict.effect)
    };
    let reserved = ask(Act::Reserve(1, 3)).1;
    assert!(matches!(reserved, Effect::Reserved { units: 3, by: Some(0), .. }));
    assert_eq!(ask(Act::Reserve(1, 3)), (true, reserved));
    assert_eq!(ask(Act::Check(4)), (true, Effect::Paid { by: 1 }));
    assert!(!ask(Act::Check(4)).0, "no payer has room, and the penalty begins");
    assert_eq!(ask(Act::Reserve(1, 3)), (false, Effect::Decision));
    let committed = Effect::Committed { charged: 3, late: false, by: Some(0) };
    assert_eq!(ask(Act::Commit(1, 3)), (true, committed));
}

#[test]
fn a_reservation_finds_no_place_if_no_payer_has_one() {
    let payers = "limits = [
      { name = 'plan', algorithm = 'fixed_window', limit = 9, period = '1m', payer = true },
      { name = 'credits', algorithm = 'fixed_window', limit = 9, period = '1m', payer = true },
    ]
    reservations = { most = 1 }";
    let limits = limits(payers);
    let mut words = vec![0; limits.words()];
    let mut ask =
        |operation: Operation| limits.operate(&mut words, at(0), &operation).unwrap().effect;
    let mut reserve = |number| ask(Act::Reserve(number, 1).operation());
    assert_eq!(reserve(1).payer(), Some(0));
    let explain = Operation::Explain(Request::of(1));
    assert_eq!(ask(explain), Effect::Paid { by: 0 }, "the credits have a place");
    let mut reserve = |number| ask(Act::Reserve(number, 1).operation());
    assert_eq!(reserve(2).payer(), Some(1));
    assert_eq!(reserve(3), Effect::Full { limit: 0, by: None });
    assert_eq!(ask(explain), Effect::Full { limit: 0, by: Some(0) }, "the plan pays for a check");
    assert_eq!(ask(Act::Commit(2, 1).operation()).payer(), Some(1));
    let mut reserve = |number| ask(Act::Reserve(number, 1).operation());
    assert_eq!(reserve(2), Effect::Decision, "it is refused for its id");
}

#[test]
fn a_late_commit_charges_the_first_payer_with_room_or_the_last() {
    let limits = limits(LARGE);
    let mut words = vec![0; limits.words()];
    for (number, actual, payer) in
        [(1, 5, 1), (2, 5, 2), (3, 8, 3), (4, 8, 3), (5, 1, 1), (1, 8, 1)]
    {
        let operation = Act::Commit(number, actual).operation();
        let effect = limits.operate(&mut words, at(0), &operation).unwrap().effect;
        let charged = if number == 1 { 5 } else { actual }; // the first commit counts
        assert_eq!(effect, Effect::Committed { charged, late: true, by: Some(payer) }, "{number}");
    }
}

#[test]
fn an_id_is_known_to_one_payer_at_most() {
    let limits = limits(LARGE);
    let mut words = vec![0; limits.words()];
    let mut ask = |second: u64, act: Act| {
        let verdict = limits.operate(&mut words, at(second * SECOND), &act.operation()).unwrap();
        (verdict, limits.payer_of(&words, at(second * SECOND), id(1)))
    };
    let (first, known) = ask(0, Act::Reserve(1, 5));
    assert_eq!((first.effect.payer(), known), (Some(1), Some((1, KnownFor::Live))));
    let known = ask(8, Act::Check(0)).1;
    assert_eq!(known, Some((1, KnownFor::Ended(Micros(REMEMBER)))), "before its state moves");
    let (refused, _) = ask(8, Act::Reserve(1, 5));
    assert_eq!(refused.decision.retry_after(), Micros(REMEMBER), "the credits have room at once");
    let mut waits = refused.limits.iter().map(Decision::retry_after);
    assert!(waits.all(|wait| wait == Micros(REMEMBER)), "{refused:?}");
    assert_eq!(ask(11, Act::Check(0)).1, None);
    let (again, known) = ask(11, Act::Reserve(1, 7));
    assert_eq!((again.effect.payer(), known), (Some(2), Some((2, KnownFor::Live))));
}

proptest! {
    #[test]
    fn random_acts_stay_with_their_payers(
        steps in proptest::collection::vec((0..5 * SECOND, 0..3_u8, 1..5_u64, 0..8_u64), 1..80),
    ) {
        let limits = limits(LARGE);
        let (mut words, mut held, mut now) = (vec![0; limits.words()], Held::of(&limits), START);
        for (span, kind, number, cost) in steps {
            now += span;
            let act = match kind {
                0 => Act::Check(cost),
                1 => Act::Reserve(number, cost.max(1)),
                _ => Act::Commit(number, cost),
            };
            if let Act::Check(0) = act {
                continue; // a peek
            }
            check_act(&limits, &mut words, &mut held, now, act);
        }
    }
}
