//! The exchanges of an isolate that are under way: what each waits for, and how it ends.

use std::collections::BTreeMap;
use std::iter;
use std::rc::Rc;

use js_sys::Function;
use tidegate_gate::{Micros, Timestamp};
use tidegate_http::{Counted, Exchange, Outcome, PolicyCall, Served, Step, Verify, Watched};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::in_force::InForce;

/// An exchange that is not finished after this time never will be: its client has gone, and JavaScript is not
/// called again.
const LONGEST_EXCHANGE: Micros = Micros(120_000_000);

/// The exchanges by their numbers, as `u64` and in boxes because the maps of `tidegate-tier` are so: all of them then have the same
/// code.
#[derive(Default)]
pub(crate) struct Exchanges(BTreeMap<u64, Box<Running>>);

impl Exchanges {
    pub(crate) fn get(&mut self, id: u32) -> Option<&mut Running> {
        self.0.get_mut(&u64::from(id)).map(Box::as_mut)
    }

    pub(crate) fn insert(&mut self, id: u32, running: Box<Running>) {
        self.0.insert(u64::from(id), running);
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Box<Running>> {
        self.0.remove(&u64::from(id))
    }

    /// Gives up the exchanges whose clients have gone.
    pub(crate) fn forget(&mut self, at: Micros) {
        while let Some(first) = self.0.first_entry()
            && at.0.saturating_sub(first.get().began.0) > LONGEST_EXCHANGE.0
        {
            first.remove();
        }
    }
}

/// An exchange under way.
pub(crate) struct Running {
    pub(crate) in_force: Rc<InForce>,
    pub(crate) exchange: Exchange,
    began: Micros,
    /// The outcomes of the checks that are being decided, and how many are missing.
    outcomes: Vec<Option<Outcome>>,
    missing: usize,
    /// When its first checks were asked for, and when the last answer of an object came.
    asked: Option<Micros>,
    answered: Option<Micros>,
    /// The checks that were counted, by policy and outcome: how many, and their cost.
    events: Vec<Event>,
    pub(crate) end: Option<End>,
    /// Lets the exchange go on if it waits for another one's call.
    pub(crate) go_on: Option<Function>,
}

/// The checks of an exchange under one policy that had one outcome.
pub(crate) struct Event {
    pub(crate) policy: String,
    pub(crate) outcome: &'static str,
    pub(crate) checks: u32,
    pub(crate) cost: u64,
}

/// What an exchange waits for.
pub(crate) enum Waits {
    /// The verification of this token.
    Token(Verify),
    /// A copy of the body.
    Copy,
    /// Who is limited in the whole Worker.
    Lists(Watched, bool),
}

/// The end of an exchange.
pub(crate) enum End {
    Served(Served),
    /// The object of the revisions must answer this call.
    Asks(PolicyCall),
    /// The object has answered it. The response is in fields.
    Answered(String),
}

impl Running {
    pub(crate) fn new(in_force: &Rc<InForce>, exchange: Exchange, began: Micros) -> Self {
        Self {
            in_force: Rc::clone(in_force),
            exchange,
            began,
            outcomes: Vec::new(),
            missing: 0,
            asked: None,
            answered: None,
            events: Vec::new(),
            end: None,
            go_on: None,
        }
    }

    /// Takes the outcomes of the checks that are to be decided, as far as they are known. Returns whether all are.
    pub(crate) fn ask(&mut self, outcomes: Vec<Option<Outcome>>, at: Micros) -> bool {
        self.missing = outcomes.iter().filter(|outcome| outcome.is_none()).count();
        self.outcomes = outcomes;
        self.asked.get_or_insert(at);
        self.missing == 0
    }

    /// Takes the outcome of a check, whose answer came at `answered`. Returns whether it was the last one that was missing.
    pub(crate) fn answer(&mut self, place: usize, outcome: Outcome, answered: Micros) -> bool {
        let Some(empty @ None) = self.outcomes.get_mut(place) else { return false };
        *empty = Some(outcome);
        self.missing = self.missing.saturating_sub(1);
        self.answered = Some(answered);
        self.missing == 0
    }

    /// Goes on once all checks that were being decided have outcomes, to the end or to the checks of the next policy.
    pub(crate) fn decided(&mut self, now: Timestamp) {
        let Self { in_force, exchange, outcomes, asked, answered, events, .. } = self;
        let outcomes: Vec<Outcome> = outcomes.drain(..).flatten().collect();
        if let Step::Decide(checks) = exchange.step() {
            for (check, outcome) in checks.iter().zip(&outcomes) {
                if in_force.metrics.count(check, outcome) {
                    in_force.limited.borrow_mut().count(check, outcome, now);
                }
                if in_force.telemetry.events
                    && let Some(counted) = Counted::of(check, outcome)
                {
                    let Counted { policy, outcome, cost, warned } = counted;
                    for outcome in iter::once(outcome).chain(warned.then_some("warned")) {
                        let same =
                            |one: &&mut Event| (&*one.policy, one.outcome) == (policy, outcome);
                        match events.iter_mut().find(same) {
                            Some(event) => {
                                event.checks = event.checks.saturating_add(1);
                                event.cost = event.cost.saturating_add(cost);
                            }
                            None => events.push(Event {
                                policy: policy.to_owned(),
                                outcome,
                                checks: 1,
                                cost,
                            }),
                        }
                    }
                }
            }
        }
        exchange.decided(outcomes);
        if let Step::Done(mut served) = exchange.step() {
            if in_force.telemetry.timing {
                let took = answered.zip(*asked);
                let took = took.map(|(answered, asked)| Micros(answered.0.saturating_sub(asked.0)));
                served.headers_mut().push(("server-timing", timing(took).into()));
            }
            self.end = Some(End::Served(served));
        }
    }

    pub(crate) fn wake(&mut self) {
        if let Some(go_on) = self.go_on.take() {
            let _ = go_on.call0(&JsValue::UNDEFINED); // settles a promise
        }
    }

    /// What the exchange waits for, unless it is an answer of an object.
    pub(crate) fn waits(&mut self) -> Option<Waits> {
        match self.exchange.step() {
            Step::Verify(token) => Some(Waits::Token(token.clone())),
            Step::Copy => Some(Waits::Copy),
            Step::Watch { what, clear } => Some(Waits::Lists(what, clear)),
            _ => None,
        }
    }

    /// The checks that were counted. Can be taken once.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}

/// The header `Server-Timing`. `took` is the time that objects took, if they were asked.
fn timing(took: Option<Micros>) -> String {
    match took {
        None => "tidegate;desc=\"isolate\"".to_owned(),
        Some(Micros(us)) => {
            format!("tidegate;dur={}.{:03};desc=\"object\"", us / 1_000, us % 1_000)
        }
    }
}

/// What JavaScript must do next with an exchange.
#[wasm_bindgen]
#[derive(Clone, Copy, Debug)]
pub enum NextStep {
    /// Finish it.
    Finish = 0,
    /// Send the questions that are due, and finish it meanwhile: the node itself asks them.
    Send = 1,
    /// Send the questions that are due, and finish it when the replies have come.
    Wait = 2,
    /// Read the body, and begin again with it.
    Body = 3,
    /// Let WebAssembly await what it waits for, by `proceed`.
    Await = 4,
}

impl NextStep {
    /// How many bits a step takes.
    pub(crate) const BITS: u32 = 3;

    /// The number of the exchange, and this behind it, in 32 bits.
    pub(crate) const fn of(self, exchange: u32) -> u32 {
        let next = match self {
            Self::Finish => 0,
            Self::Send => 1,
            Self::Wait => 2,
            Self::Body => 3,
            Self::Await => 4,
        };
        exchange << Self::BITS | next
    }
}
