//! What drives the authority: JavaScript sends the commands that it is handed, and hands the replies in.

use tidegate_gate::{Micros, Operation, Resolved, Timestamp, Verdict};
use tidegate_tier::authority::{Failure as TierFailure, Queued, Swap, SwapOutcome};
use tidegate_tier::cache::{NodeStep, Transmit, VerdictOf};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use super::call::{Call, Outcomes, Step};
use super::flight::Flight;
use super::reply::Reply;
use super::{Authority, Caller, Times, Waiting};
use crate::number::from_quantity;

/// How many calls are under way at once: as many as the host has.
const MOST_CALLS: usize = 4;

/// How many it is in a Cluster, where a call is about one partition.
const MOST_CALLS_OF_CLUSTER: usize = 256;

#[wasm_bindgen(js_class = NativeAuthority)]
impl Authority {
    /// Begins a call if one is due, or if operations wait and not too many calls are under way. Returns its number.
    #[wasm_bindgen(js_name = beginCall)]
    pub fn begin_call(&mut self, now: f64, at: f64) -> Option<usize> {
        let times = self.times(now, at);
        self.ask_what_is_due(times);
        if let Some(flight) = self.recovery.poll(&self.prefix, times.1) {
            return Some(self.calls.insert(flight));
        }
        let most = if self.is_cluster { MOST_CALLS_OF_CLUSTER } else { MOST_CALLS };
        if self.calls.len() >= most {
            return None;
        }
        self.tell(times);
        let swap = self.tier.poll_swap(times, |_| false)?;
        let call = Call::new((&self.prefix, self.script), &mut self.tier, &swap);
        Some(self.calls.insert(Flight::Swap(swap, call)))
    }

    /// When [`begin_call`](Self::begin_call) is next of use without a new operation.
    #[wasm_bindgen(js_name = dueUs)]
    #[must_use]
    pub fn due_us(&self) -> Option<f64> {
        let due = [self.recovery.poll_timeout(), self.node.poll_timeout()];
        due.into_iter().flatten().min().map(|due| from_quantity(due.0))
    }

    /// The words of the command that a call sends next, one after another; `undefined` if the call has ended.
    #[must_use]
    pub fn command(&self, call: usize) -> Option<Vec<u8>> {
        self.calls.get(call)?.command().map(|command| command.bytes().to_vec())
    }

    /// Where each word of [`command`](Self::command) ends.
    #[must_use]
    pub fn ends(&self, call: usize) -> Option<Vec<u32>> {
        self.calls.get(call)?.command().map(|command| command.ends().to_vec())
    }

    /// The slot of a Cluster in which the states of a call are; `undefined` for a call about no states.
    #[must_use]
    pub fn slot(&self, call: usize) -> Option<u16> {
        match self.calls.get(call)? {
            Flight::Swap(_, call) => Some(call.slot()),
            Flight::Announcement(_) | Flight::Ping(_) => None,
        }
    }

    /// Takes the reply to the command of a call: what the client returned, or the `Error` that it threw.
    pub fn reply(&mut self, call: usize, reply: &JsValue, now: f64, at: f64) {
        let times = self.times(now, at);
        let Some(under_way) = self.calls.get_mut(call) else { return };
        let reply = Reply::read(reply, self.script.has_texts);
        let ended = match under_way {
            Flight::Swap(_, call) => match call.reply(reply) {
                Step::Send => return,
                Step::End(outcomes) => Ended::Swap(outcomes),
            },
            Flight::Announcement(announcement) => match announcement.reply(reply) {
                Ok(None) => return,
                counted => Ended::Announcement(counted.ok().flatten()),
            },
            Flight::Ping(_) => Ended::Ping(!matches!(reply, Reply::Error(_))),
        };
        self.end(call, ended, times);
    }

    /// Ends a call that gets no reply, for this reason.
    #[wasm_bindgen(js_name = giveUp)]
    pub fn give_up(&mut self, call: usize, why: String, now: f64, at: f64) {
        let times = self.times(now, at);
        let ended = match self.calls.get(call) {
            Some(Flight::Swap(..)) => Ended::Swap(Err(why)),
            Some(Flight::Announcement(_)) => Ended::Announcement(None),
            Some(Flight::Ping(_)) | None => Ended::Ping(false),
        };
        self.end(call, ended, times);
    }

    /// Asks Redis to take back the units that this process holds, and ends what it asks by itself.
    #[wasm_bindgen(js_name = giveBack)]
    pub fn give_back(&mut self, now: f64, at: f64) {
        let (now, at) = self.times(now, at);
        self.recovery.close();
        for own in self.node.give_back(at) {
            self.ask_as_node(own, now.unwrap_or_default(), at);
        }
    }

    /// The token of the next answer, which then is the last answer.
    #[wasm_bindgen(js_name = pollAnswer)]
    pub fn poll_answer(&mut self, at: f64) -> Option<usize> {
        let (_, at) = self.times(0.0, at);
        if let Some((token, verdict)) = self.answered.pop_front() {
            if let Some(Waiting::Caller(caller)) = self.waiting.try_remove(token) {
                self.said = self.say(caller, Ok(verdict));
            }
            return Some(token);
        }
        loop {
            let (token, answer) = self.tier.poll_answer()?;
            match self.waiting.try_remove(token)? {
                Waiting::Caller(caller) => {
                    self.timed = self.timed.saturating_sub(usize::from(caller.is_timed));
                    if !caller.is_timed || !asks(&caller.operation) {
                        self.learn(&caller.resolved, caller.operation, &answer, (caller.at, at));
                    }
                    self.said = self.say(caller, answer);
                    return Some(token);
                }
                Waiting::Node(Transmit { resolved, operation }, sent) => {
                    self.learn(&resolved, operation, &answer, (sent, at));
                }
                Waiting::Owed(owed) => {
                    let told = self.recovery.told(&answer, at);
                    self.tier.handle_told(owed, told);
                }
            }
        }
    }
}

impl Authority {
    /// Takes an operation. Unless the node answers it, the authority is asked.
    pub(super) fn queue(&mut self, caller: Caller, now: Timestamp) -> usize {
        let Caller { operation, is_timed, explains, at, .. } = caller;
        let resolved = caller.resolved.clone();
        self.timed = self.timed.saturating_add(usize::from(is_timed));
        let token = self.waiting.insert(Waiting::Caller(caller));
        if is_timed || explains || !self.policy.lets_nodes_answer() {
            self.tier.ask(Queued { resolved, now, at, operation, token });
            return token;
        }
        let NodeStep { answer, own } = self.node.ask(&resolved, &operation, now, at);
        match answer {
            Some(answer) => self.answered.push_back((token, answer.verdict())),
            None => self.tier.ask(Queued { resolved, now, at, operation, token }),
        }
        own.into_iter().for_each(|own| self.ask_as_node(own, now, at));
        token
    }

    /// Asks what the node itself asks. No caller waits for the answer.
    fn ask_as_node(&mut self, own: Transmit, now: Timestamp, at: Micros) {
        let (resolved, operation) = (own.resolved.clone(), own.operation);
        let token = self.waiting.insert(Waiting::Node(own, at));
        self.tier.ask(Queued { resolved, now, at, operation, token });
    }

    /// Asks what is due.
    fn ask_what_is_due(&mut self, (now, at): Times) {
        let Some(now) = now else { return };
        while let Some(own) = self.node.poll_transmit(now, at) {
            self.ask_as_node(own, now, at);
        }
    }

    /// Tells Redis what the node has decided by itself.
    fn tell(&mut self, (now, at): Times) {
        let Some(now) = now else { return };
        while self.recovery.may_tell(at)
            && let Some(owed) = self.tier.poll_owed(now)
        {
            let (resolved, operation) = (owed.resolved.clone(), owed.operation);
            let token = self.waiting.insert(Waiting::Owed(owed));
            self.recovery.tell();
            self.tier.ask(Queued { resolved, now, at, operation, token });
        }
    }

    /// The node learns from an answer of Redis, by the times at which it was asked and answered.
    fn learn(
        &mut self,
        resolved: &Resolved,
        operation: Operation,
        answer: &Result<Verdict, TierFailure<String>>,
        (sent, at): (Micros, Micros),
    ) {
        if let Ok(verdict) = answer
            && !verdict.degraded
            && self.policy.lets_nodes_answer()
        {
            let operation = &operation;
            self.node.handle_verdict(&VerdictOf { resolved, operation, verdict, sent, at });
        }
    }

    /// Why Redis cannot be asked.
    pub(super) fn cause(&self) -> &str {
        self.recovery.cause()
    }

    fn end(&mut self, call: usize, ended: Ended, times: Times) {
        let Some(flight) = self.calls.try_remove(call) else { return };
        match (flight, ended) {
            (Flight::Swap(swap, _), Ended::Swap(outcomes)) => self.end_swap(swap, outcomes, times),
            (_, Ended::Announcement(count)) => {
                self.recovery.announced(count, times.1);
                self.recovery.nodes().into_iter().for_each(|nodes| self.tier.handle_nodes(nodes));
            }
            (_, Ended::Ping(is_back)) => {
                self.recovery.pinged(is_back, times.1);
                if is_back {
                    self.tier.handle_back();
                }
            }
            _ => {} // never: a call ends as what it is
        }
    }

    fn end_swap(&mut self, swap: Swap, outcomes: Result<Outcomes, String>, times: Times) {
        match outcomes {
            Ok(outcomes) => self.tier.handle(swap, outcomes, times),
            Err(error) => {
                self.recovery.failed(&error);
                let failed = vec![SwapOutcome::Failed(error.clone()); swap.len()];
                self.tier.handle(swap, failed, times);
                if self.is_cluster {
                    return; // other masters may answer
                }
                self.tier.fail_waiting(&error, times.0);
                if self.tier.handle_away() {
                    self.recovery.await_back(times.1);
                }
            }
        }
    }
}

/// How a call has ended.
enum Ended {
    Swap(Result<Outcomes, String>),
    Announcement(Option<u64>),
    Ping(bool),
}

/// Whether an operation asks for a grant, or only looks.
const fn asks(operation: &Operation) -> bool {
    matches!(operation, Operation::Decide(_) | Operation::Peek(_))
}
