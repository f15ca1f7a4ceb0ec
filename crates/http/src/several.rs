//! Several policies on one request, all or nothing: they are decided one after another, and if one refuses, the earlier ones get
//! back what they granted.
//!
//! A request at the same moment may be refused by units that come back a moment later. Nothing is ever granted beyond a limit,
//! because units are taken before the next policy is asked.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_gate::{Asked, Metering};

use crate::answer::problem::{answer_json, internal_error};
use crate::answer::{CheckResult, Outcome, forms, headers};
use crate::plan::{Check, Form, gate};
use crate::served::{Lease, Reservation, Served};
use crate::state::State;

/// The checks of a request that are decided one after another.
#[derive(Clone, Debug)]
pub(crate) struct Several {
    /// What is decided now: the next check, or the operations that give back what was granted.
    now: Vec<Check>,
    later: VecDeque<Check>,
    /// The checks that passed, in their order.
    passed: Vec<Decided>,
    /// The check that did not pass, from when the others get back what they granted.
    refused: Option<Decided>,
    form: Form,
    metering: Option<Arc<Metering>>,
}

/// A check and its outcome.
#[derive(Clone, Debug)]
struct Decided {
    check: Check,
    outcome: Outcome,
    /// How many operations give back what it granted.
    undone_by: usize,
}

impl Decided {
    const fn result(&self) -> CheckResult<'_> {
        CheckResult { asked: &self.check.asked, outcome: &self.outcome, is_one_of_several: true }
    }

    /// The operations that give back what the check granted.
    fn undone(&mut self) -> Vec<Check> {
        let undone = self.check.undone(&self.outcome);
        self.undone_by = undone.len();
        undone
    }
}

impl Several {
    /// Begins with the first of these checks.
    pub(crate) fn new(
        checks: impl IntoIterator<Item = Check>,
        form: Form,
        metering: Option<Arc<Metering>>,
    ) -> Box<Self> {
        let mut later: VecDeque<Check> = checks.into_iter().collect();
        let now = later.pop_front().into_iter().collect();
        Box::new(Self { now, later, passed: Vec::new(), refused: None, form, metering })
    }

    /// What to decide now.
    pub(crate) fn checks(&self) -> &[Check] {
        &self.now
    }

    /// Goes on with one outcome for each of the [`checks`](Self::checks).
    pub(crate) fn decided(mut self: Box<Self>, outcomes: Vec<Outcome>) -> State {
        if outcomes.len() != self.now.len() {
            let error = internal_error("not every check was decided".to_string());
            return State::Done(Served::Response(error));
        }
        if self.refused.is_some() {
            return State::Done(self.served(&outcomes));
        }
        for (check, outcome) in self.now.drain(..).zip(outcomes) {
            let outcome = check.said(outcome);
            let decided = Decided { check, outcome, undone_by: 0 };
            match decided.result().passes() {
                true => self.passed.push(decided),
                false => self.refused = Some(decided),
            }
        }
        self.now = match self.refused {
            None => self.later.pop_front().into_iter().collect(),
            Some(_) => self.passed.iter_mut().flat_map(Decided::undone).collect(),
        };
        match self.now.is_empty() {
            true => State::Done(self.served(&[])),
            false => State::Several(self),
        }
    }

    /// What becomes of the request. `undone` are the outcomes of the operations that gave back what was granted.
    fn served(self, undone: &[Outcome]) -> Served {
        let Self { passed, refused, form, metering, .. } = self;
        match (form, refused) {
            (Form::Pass(pass, _), None) => {
                let mut pass = *pass;
                for one in &passed {
                    let Decided { check: Check { asked, .. }, outcome, .. } = one;
                    if let Outcome::Decided(verdict) = outcome {
                        let mut fields = Vec::new();
                        headers::add(&mut fields, &one.result(), verdict, None);
                        headers::join(&mut pass.headers, fields);
                        pass.leases.extend(Lease::of(asked, verdict));
                    }
                    let reservation =
                        metering.as_ref().map(|metering| Reservation::of(metering, asked, outcome));
                    pass.reservations.extend(reservation.flatten());
                }
                Served::Pass(pass)
            }
            (Form::Pass(..), Some(refused)) => Served::Response(gate(&refused.result(), None)),
            (_, refused) => {
                let mut undone = undone.iter();
                let returned = |one: &Decided| {
                    let own = undone.by_ref().take(one.undone_by);
                    own.fold(true, |all, outcome| all & matches!(outcome, Outcome::Decided(_)))
                };
                let returned: Option<Vec<bool>> =
                    refused.is_some().then(|| passed.iter().map(returned).collect());
                let all = passed.iter().chain(&refused).map(Decided::result).collect::<Vec<_>>();
                let text = forms::all_or_nothing(&all, returned.as_deref());
                Served::Response(answer_json(200, text))
            }
        }
    }
}

/// The place of the first check but the last whose units could not come back.
pub(crate) fn keeps_units(checks: &[Check]) -> Option<(usize, &Asked)> {
    let earlier = checks.split_last().map_or(&[][..], |(_, earlier)| earlier);
    let mut asked = earlier.iter().map(|check| &check.asked).enumerate();
    asked.find(|(_, asked)| asked.keeps_units())
}
