//! Several policies on one request, all or nothing: they are decided one after another, and if one refuses, the earlier ones get
//! back what they granted.
//!
//! A request at the same moment may be refused by units that come back a moment later. Nothing is ever granted beyond a limit,
//! because units are taken before the next policy is asked.
//!
//! A token bucket keeps what may have flowed in between its grant and the return: without the grant it might have been full. So it
//! is asked last where nobody sees the order, which is in front of an upstream. If others follow it all the same, all policies are
//! peeked at before, and those that would refuse are asked first. Then a bucket pays only for a race.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::ops::ControlFlow;

use tidegate_gate::{Asked, Metering};

use crate::answer::problem::{answer_json, internal_error};
use crate::answer::{CheckResult, Outcome, forms, headers};
use crate::plan::{Check, Form, gate};
use crate::response::Response;
use crate::served::{Lease, Pass, Reservation, Served};

/// The checks of a request that are decided one after another.
#[derive(Clone, Debug)]
pub(crate) struct Several {
    /// In the order of the request.
    checks: Vec<OneOf>,
    /// The places of those that are not asked yet.
    later: VecDeque<usize>,
    /// What is decided now.
    now: Vec<Check>,
    step: SeveralStep,
    form: Form,
    metering: Option<Arc<Metering>>,
}

#[derive(Clone, Copy, Debug)]
enum SeveralStep {
    /// All checks are peeked at.
    Look,
    /// The check at this place is decided.
    Decide(usize),
    /// What was granted comes back, because the check at this place was refused.
    Undo(usize),
}

/// One of several checks.
#[derive(Clone, Debug)]
struct OneOf {
    check: Check,
    /// The outcome of the check, or else of a peek.
    outcome: Option<Outcome>,
    /// Whether the check itself has passed.
    has_passed: bool,
    /// How many operations give back what it granted.
    undone_by: usize,
}

impl OneOf {
    fn result(&self) -> Option<CheckResult<'_>> {
        let (asked, outcome) = (&self.check.asked, self.outcome.as_ref()?);
        Some(CheckResult { asked, outcome, is_one_of_several: true })
    }

    fn passes(&self) -> bool {
        self.result().is_some_and(|result| result.passes())
    }

    /// The operations that give back what the check granted.
    fn undone(&mut self) -> Vec<Check> {
        let outcome = self.outcome.as_ref().filter(|_| self.has_passed);
        let undone = outcome.map(|outcome| self.check.undone(outcome)).unwrap_or_default();
        self.undone_by = undone.len();
        undone
    }
}

impl Several {
    /// Begins with these checks.
    pub(crate) fn new(
        checks: Vec<Check>,
        form: Form,
        metering: Option<Arc<Metering>>,
    ) -> Box<Self> {
        let keeps =
            |place: &usize| !checks.get(*place).is_none_or(|check| check.asked.leaves_nothing());
        let mut later: Vec<usize> = (0..checks.len()).collect();
        if matches!(form, Form::Pass(..)) {
            later = last_where(later, keeps);
        }
        let looks = later.split_last().is_some_and(|(_, earlier)| earlier.iter().any(keeps));
        let one = |check| OneOf { check, outcome: None, has_passed: false, undone_by: 0 };
        let checks = checks.into_iter().map(one).collect();
        let step = SeveralStep::Look;
        let (later, now) = (later.into(), Vec::new());
        let mut several = Self { checks, later, now, step, form, metering };
        match looks {
            true => several.now = several.checks.iter().map(|one| one.check.looked()).collect(),
            false => several.ask_next(),
        }
        Box::new(several)
    }

    /// What to decide now.
    pub(crate) fn checks(&self) -> &[Check] {
        &self.now
    }

    /// Goes on with one outcome for each of the [`checks`](Self::checks). `Break` says what becomes of the request.
    pub(crate) fn decided(
        mut self: Box<Self>,
        outcomes: Vec<Outcome>,
    ) -> ControlFlow<Served, Box<Self>> {
        if outcomes.len() != self.now.len() {
            let error = internal_error("not every check was decided".to_string());
            return ControlFlow::Break(Served::Response(error));
        }
        match self.step {
            SeveralStep::Look => self.looked(outcomes),
            SeveralStep::Decide(place) => self.asked(place, outcomes),
            SeveralStep::Undo(refused) => {
                return ControlFlow::Break(self.refuse(refused, &outcomes));
            }
        }
        match self.step {
            SeveralStep::Undo(refused) if self.now.is_empty() => {
                ControlFlow::Break(self.refuse(refused, &[]))
            }
            _ if self.now.is_empty() => ControlFlow::Break(self.pass()),
            _ => ControlFlow::Continue(self),
        }
    }

    /// Lets those be asked first that would refuse.
    fn looked(&mut self, outcomes: Vec<Outcome>) {
        for (one, mut outcome) in self.checks.iter_mut().zip(outcomes) {
            one.check.say(&mut outcome);
            one.outcome = Some(outcome);
        }
        let passes = |place: &usize| self.checks.get(*place).is_some_and(OneOf::passes);
        self.later = last_where(mem::take(&mut self.later), passes).into();
        self.ask_next();
    }

    fn asked(&mut self, place: usize, outcomes: Vec<Outcome>) {
        let Some(one) = self.checks.get_mut(place) else { return };
        one.outcome = outcomes.into_iter().next();
        one.outcome.iter_mut().for_each(|outcome| one.check.say(outcome));
        one.has_passed = one.passes();
        match one.has_passed {
            true => self.ask_next(),
            false => {
                self.step = SeveralStep::Undo(place);
                self.now = self.checks.iter_mut().flat_map(OneOf::undone).collect();
            }
        }
    }

    fn ask_next(&mut self) {
        let next = self.later.pop_front();
        let check = next.and_then(|place| self.checks.get(place)).map(|one| one.check.clone());
        self.now = check.into_iter().collect();
        if let Some(place) = next {
            self.step = SeveralStep::Decide(place);
        }
    }

    /// All checks have passed.
    fn pass(self) -> Served {
        let Self { checks, form, metering, .. } = self;
        match form {
            Form::Pass(pass, _) => Served::Pass(passed(pass, &checks, metering.as_ref())),
            _ => Served::Response(all_or_nothing(&checks, None)),
        }
    }

    /// The check at this place was refused. `undone` are the outcomes of the operations that gave back what was granted.
    fn refuse(self, refused: usize, undone: &[Outcome]) -> Served {
        let mut undone = undone.iter();
        let is_known = |outcome: &Outcome| matches!(outcome, Outcome::Decided(_));
        let returned = |one: &OneOf| {
            let own = undone.by_ref().take(one.undone_by);
            let are_undone = own.fold(true, |all, outcome| all & is_known(outcome));
            are_undone && one.outcome.as_ref().is_none_or(is_known)
        };
        let returned: Vec<bool> = self.checks.iter().map(returned).take(refused).collect();
        let result = self.checks.get(refused).and_then(OneOf::result);
        Served::Response(match (self.form, result) {
            (Form::Pass(..), Some(result)) => gate(&result, None),
            (_, _) => all_or_nothing(&self.checks, Some(&returned)),
        })
    }
}

fn passed(mut pass: Box<Pass>, checks: &[OneOf], metering: Option<&Arc<Metering>>) -> Box<Pass> {
    for one in checks {
        let Some(result @ CheckResult { asked, outcome, .. }) = one.result() else { continue };
        if let Outcome::Decided(verdict) = outcome {
            let mut fields = Vec::new();
            headers::add(&mut fields, &result, verdict, None);
            headers::join(&mut pass.headers, fields);
            pass.leases.extend(Lease::of(asked, verdict));
        }
        let reservation = metering.and_then(|metering| Reservation::of(metering, asked, outcome));
        pass.reservations.extend(reservation);
    }
    pass
}

/// The answer of the API. `returned` says of each check before the refused one whether what it granted came back; `None` if all
/// passed.
fn all_or_nothing(checks: &[OneOf], returned: Option<&[bool]>) -> Response {
    let count = returned.map_or(checks.len(), |returned| returned.len().saturating_add(1));
    let results: Vec<_> = checks.iter().filter_map(OneOf::result).take(count).collect();
    answer_json(200, forms::all_or_nothing(&results, returned))
}

/// The same places, those last of which this is true. A sort would take 12 KB of code.
fn last_where(places: impl IntoIterator<Item = usize>, is: impl Fn(&usize) -> bool) -> Vec<usize> {
    let (last, mut first): (Vec<usize>, Vec<usize>) = places.into_iter().partition(is);
    first.extend(last);
    first
}

/// All checks but the last.
fn earlier(checks: &[Check]) -> impl Iterator<Item = &Check> {
    checks.split_last().map_or(&[][..], |(_, earlier)| earlier).iter()
}

/// The place of the first check but the last whose units could not come back.
pub(crate) fn keeps_units(checks: &[Check]) -> Option<(usize, &Asked)> {
    let mut asked = earlier(checks).map(|check| &check.asked).enumerate();
    asked.find(|(_, asked)| asked.keeps_units())
}
