//! The reservations of a limit: which are live, and how the others ended, without the code of the gate.

use tidegate_core::hold::{Committed, Config, OnExpiry, Terms};
use tidegate_core::window::calendar::Boundaries;
use tidegate_gate::{Decision, Id, Limiter, Micros, Operation, Request};

use super::done::Done;
use super::units::Units;
use crate::world::tally::Tally;

/// What a limit holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Reserved {
    live: Vec<Live>,
    ended: Vec<Ended>,
    units: Units,
    sums: Sums,
    /// The time of the last operation.
    last: u64,
    /// A clock went back over a crash. Nothing is known before all reservations are forgotten.
    is_blind: bool,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    id: Id,
    estimate: u64,
    until: u64,
    /// The number of its grant.
    grant: usize,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    id: Id,
    said: Committed,
    /// Whether it was committed.
    is_final: bool,
    /// Until when the key remembers it.
    until: u64,
}

/// The estimates, by what became of their reservations. What was reserved is all of the others, and what is live.
#[derive(Clone, Debug, Default)]
struct Sums {
    reserved: u64,
    committed: u64,
    released: u64,
    expired: u64,
}

/// What the limit must say of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    Nothing,
    /// It is not known what the limit says.
    Anything,
    Holds {
        units: u64,
        until: u64,
    },
    Committed(Committed),
    /// All places are taken.
    Full,
}

impl Reserved {
    /// Counts an operation. The state of the limit after it is given too.
    pub(super) fn count<B: Boundaries>(
        &mut self,
        config: &Config<B>,
        done: &Done<'_>,
        (said, words): (&Decision, &[u64]),
        tally: &mut Tally,
    ) -> Result<Says, String> {
        let now = done.now();
        self.is_blind |= now < self.last;
        self.last = now;
        let expired = self.sums.expired;
        self.expire(config.terms(), now);
        if self.sums.expired > expired {
            tally.add("a reservation expired");
        }
        self.units.begin(config.counter(), now);
        let (says, taken) = match done.operation {
            Operation::Decide(request) if request.cost > 0 => {
                self.decide(config, done, (request, said), tally)?
            }
            Operation::Commit(id, actual) => {
                (self.commit(config.terms(), now, (*id, *actual), tally), 0)
            }
            Operation::Budget(budget) if budget.unspent.is_none() => {
                self.units.take(now, done.taken(), false);
                (Says::Nothing, 0)
            }
            Operation::Refund(0) => (Says::Nothing, 0),
            Operation::Refund(units) => {
                let is_less = self.units.give_back(config.counter(), now, *units);
                if is_less && !self.live.is_empty() {
                    tally.add("a refund left what is held");
                }
                (Says::Nothing, 0)
            }
            Operation::Budget(_) => {
                self.units.lose(config.counter(), now);
                (Says::Nothing, 0)
            }
            _ => (Says::Nothing, 0),
        };
        self.check_state(config, words)?;
        self.units.note_debt(config.counter(), now);
        if self.live.is_empty() {
            self.units.find_again(config.counter(), now, (said.remaining(), taken));
        }
        self.units.check(config.counter(), now, said.remaining(), tally)?;
        Ok(if self.is_blind { Says::Anything } else { says })
    }

    /// It is not known how many units are left.
    pub(super) const fn lose_units(&mut self) {
        self.units.lose_for_ever();
    }

    /// Whatever is granted has room, and nothing is granted twice. A refusal has a reason. Also returns the units that
    /// were taken.
    fn decide<B: Boundaries>(
        &mut self,
        config: &Config<B>,
        done: &Done<'_>,
        (request, said): (&Request, &Decision),
        tally: &mut Tally,
    ) -> Result<(Says, u64), String> {
        let (now, id) = (done.now(), request.lease.filter(|_| request.reserves()));
        let Terms { most, longest, .. } = config.terms();
        let known = self.live.iter().find(|live| Some(live.id) == id);
        let has_ended = self.ended.iter().any(|ended| Some(ended.id) == id);
        let is_full = id.is_some() && self.places() >= most;
        let left = self.units.left(config.counter(), now);
        let is_granted = done.verdict.decision.is_allowed();
        let is_short = left.map(|left| left < i128::from(request.cost));
        let may_grant = known.is_some() || !has_ended && !is_full && is_short != Some(true);
        let may_refuse = known.is_none() && (has_ended || is_full || is_short != Some(false));
        if !self.is_blind && (said.is_allowed() && !may_grant || !said.is_allowed() && !may_refuse)
        {
            return Err(format!("{request:?} at {now}: {said:?}, {left:?} units left: {self:?}"));
        }
        if let Some(Live { estimate, until, .. }) = known
            && is_granted
        {
            tally.add("a reservation came again");
            return Ok((Says::Holds { units: *estimate, until: *until }, 0));
        }
        let counts_refused = !is_granted && self.units.refused(config.counter());
        if !said.is_allowed() && !self.is_blind && left.is_some() && !counts_refused {
            self.check_wait(config, now, request, said.retry_after())?;
            tally.add("a wait was that of a replay");
        }
        if !is_granted {
            if has_ended || is_full {
                tally.add("a reservation found no place");
            }
            let lacks_place = is_full && known.is_none() && !has_ended;
            return Ok((if lacks_place { Says::Full } else { Says::Nothing }, 0));
        }
        let grant = self.units.take(now, request.cost, id.is_some());
        let Some(id) = id else { return Ok((Says::Nothing, request.cost)) };
        let (units, until) = (request.cost, now.saturating_add(request.hold.min(longest).0));
        tally.add("units were reserved");
        self.sums.reserved += units;
        self.live.push(Live { id, estimate: units, until, grant });
        Ok((Says::Holds { units, until }, units))
    }

    /// A refused request would pass at the end of its wait if nobody else asked, and not a microsecond before.
    fn check_wait<B: Boundaries>(
        &self,
        config: &Config<B>,
        now: u64,
        request: &Request,
        wait: Micros,
    ) -> Result<(), String> {
        let end = now.saturating_add(wait.0);
        let [before, passes] = [end - 1, end].map(|at| self.would_pass(config, at, request));
        match !before && passes {
            true => Ok(()),
            false => {
                Err(format!("{request:?} must wait until {end}, {before}, {passes}: {self:?}"))
            }
        }
    }

    /// Whether a new request would pass at this time if nobody asked before.
    fn would_pass<B: Boundaries>(&self, config: &Config<B>, at: u64, request: &Request) -> bool {
        let mut then = self.clone();
        then.expire(config.terms(), at);
        let id = request.lease.filter(|_| request.reserves());
        let is_new = then.ended.iter().all(|ended| Some(ended.id) != id);
        let has_room = id.is_none() || is_new && then.places() < config.terms().most;
        let left = then.units.left(config.counter(), at);
        has_room && left.is_some_and(|left| left >= i128::from(request.cost))
    }

    fn commit(
        &mut self,
        terms: Terms,
        now: u64,
        (id, actual): (Id, u64),
        tally: &mut Tally,
    ) -> Says {
        let until = now.saturating_add(terms.remember.0);
        let live = self.live.iter().position(|live| live.id == id);
        let ended = self.ended.iter().position(|ended| ended.id == id);
        let said = match (live, ended.map(|place| self.ended[place])) {
            (Some(place), _) => {
                let Live { estimate, grant, .. } = self.live.remove(place);
                self.units.settle(grant, actual);
                let (sum, seen) = match actual {
                    0 => (&mut self.sums.released, "a reservation was released"),
                    _ if actual <= estimate => {
                        (&mut self.sums.committed, "a reservation was committed")
                    }
                    _ => (&mut self.sums.committed, "a commit was above its estimate"),
                };
                *sum += estimate;
                tally.add(seen);
                Committed { charged: actual, late: false }
            }
            (None, Some(Ended { said, is_final: true, .. })) => {
                tally.add("a commit came again");
                return Says::Committed(said);
            }
            (None, expired) => {
                tally.add(match expired {
                    Some(_) => "a commit came after the end",
                    None => "a commit came of what nobody reserved",
                });
                let charged = expired.map_or(0, |expired| expired.said.charged);
                self.units.take(now, actual.saturating_sub(charged), false);
                Committed { charged: actual.max(charged), late: true }
            }
        };
        if let Some(place) = ended {
            self.ended.remove(place);
        }
        self.remember(terms.most, Ended { id, said, is_final: true, until }, tally);
        Says::Committed(said)
    }

    /// A reservation has ended. If the key has no room for it, the one that would be forgotten next makes place.
    fn remember(&mut self, most: u64, ended: Ended, tally: &mut Tally) {
        if self.places() >= most {
            let next =
                self.ended.iter().enumerate().min_by_key(|(_, other)| (other.until, other.id));
            let Some((next, _)) = next else { return };
            if self.ended.remove(next).is_final {
                tally.add("a commit was forgotten early for want of a place");
            }
        }
        self.ended.push(ended);
    }

    fn places(&self) -> u64 {
        u64::try_from(self.live.len() + self.ended.len()).unwrap_or(u64::MAX)
    }

    fn expire(&mut self, terms: Terms, now: u64) {
        let Terms { remember, on_expiry, .. } = terms;
        for Live { id, estimate, until, grant } in
            self.live.extract_if(.., |live| live.until <= now)
        {
            let charged = match on_expiry {
                OnExpiry::Release => 0,
                OnExpiry::Charge => estimate,
            };
            self.units.settle(grant, charged);
            self.sums.expired += estimate;
            let (said, until) =
                (Committed { charged, late: true }, until.saturating_add(remember.0));
            self.ended.push(Ended { id, said, is_final: false, until });
        }
        self.ended.retain(|ended| ended.until > now);
    }

    /// The state holds what was reserved and has not ended, and nothing else.
    fn check_state<B: Boundaries>(
        &mut self,
        config: &Config<B>,
        words: &[u64],
    ) -> Result<(), String> {
        let state = config.state(words).map_err(|error| format!("{words:?}: {error:?}"))?;
        if self.is_blind {
            if config.has_no_holds(&state) {
                *self = Self { last: self.last, ..Self::default() };
                self.units.lose(config.counter(), self.last);
            }
            return Ok(());
        }
        let Sums { reserved, committed, released, expired } = self.sums;
        let held = config.held(&state);
        let has_each = self.live.iter().all(|live| {
            let found = config.find(&state, live.id);
            found.is_some_and(|(units, until)| (units, until.0) == (live.estimate, live.until))
        });
        let is_right = reserved == committed + released + expired + held
            && has_each
            && config.has_no_holds(&state) == (self.places() == 0);
        match is_right {
            true => Ok(()),
            false => Err(format!("{held} units are held, expected {self:?}")),
        }
    }
}
