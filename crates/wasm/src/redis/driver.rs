//! What drives the authority: the commands to send, and their replies.

use tidegate_gate::{Micros, Timestamp};
use tidegate_tier::authority::{Queued, Swap, SwapOutcome};
use wasm_bindgen::JsValue;

use super::arguments::Arguments;
use super::call::{Call, Outcomes, Step};
use super::flight::Flight;
use super::reply::Reply;
use super::tier::{Tier, Waiting};
use crate::number::{from_quantity, to_quantity};

/// How many calls are under way at once: as many as the host has.
const MOST_CALLS: usize = 4;

/// How many it is in a Cluster, where a call is about one partition.
const MOST_CALLS_OF_CLUSTER: usize = 256;

/// The time at which operations are decided, if it is known, and the time by a clock that never goes back.
type Times = (Option<Timestamp>, Micros);

impl Tier {
    /// Begins a call if one is due, or if operations wait and not too many calls are under way. Returns its number.
    pub(super) fn begin_call(&mut self, now: f64, at: f64) -> Option<usize> {
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
        let swap = self.authority.poll_swap(times, |_| false)?;
        let call = Call::new((&self.prefix, self.script), &mut self.authority, &swap);
        Some(self.calls.insert(Flight::Swap(swap, call)))
    }

    /// When [`begin_call`](Self::begin_call) is next of use without a new operation.
    pub(super) fn due_us(&self) -> Option<f64> {
        let due = [self.recovery.poll_timeout(), self.node.poll_timeout()];
        due.into_iter().flatten().min().map(|due| from_quantity(due.0))
    }

    /// The command that a call sends next; `None` if the call has ended.
    pub(super) fn command(&self, call: usize) -> Option<&Arguments> {
        self.calls.get(call)?.command()
    }

    /// The slot of a Cluster in which the states of a call are; `None` for a call about no states.
    pub(super) fn slot(&self, call: usize) -> Option<u16> {
        match self.calls.get(call)? {
            Flight::Swap(_, call) => Some(call.slot()),
            Flight::Announcement(_) | Flight::Ping(_) => None,
        }
    }

    /// Takes the reply to the command of a call: what the client returned, or the `Error` that it threw.
    pub(super) fn reply(&mut self, call: usize, reply: &JsValue, now: f64, at: f64) {
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
    pub(super) fn give_up(&mut self, call: usize, why: String, now: f64, at: f64) {
        let times = self.times(now, at);
        let ended = match self.calls.get(call) {
            Some(Flight::Swap(..)) => Ended::Swap(Err(why)),
            Some(Flight::Announcement(_)) => Ended::Announcement(None),
            Some(Flight::Ping(_)) | None => Ended::Ping(false),
        };
        self.end(call, ended, times);
    }

    /// Asks Redis to take back the units that this process holds, and ends what it asks by itself.
    pub(super) fn give_back(&mut self, now: f64, at: f64) {
        let (now, at) = self.times(now, at);
        self.recovery.close();
        for own in self.node.give_back(at) {
            self.ask_as_node(own, now.unwrap_or_default(), at);
        }
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
            && let Some(owed) = self.authority.poll_owed(now)
        {
            let (resolved, operation) = (owed.resolved.clone(), owed.operation);
            let token = self.waiting.insert(Waiting::Owed(owed));
            self.recovery.tell();
            self.authority.ask(Queued { resolved, now, at, operation, token });
        }
    }

    /// While an operation waits whose time the caller gave, no operation is decided at the time of the clock. A clock that says no
    /// time does not count.
    fn times(&self, now: f64, at: f64) -> Times {
        let now = to_quantity(now).filter(|_| self.timed == 0);
        (now.map(Timestamp), Micros(to_quantity(at).unwrap_or_default()))
    }

    fn end(&mut self, call: usize, ended: Ended, times: Times) {
        let Some(flight) = self.calls.try_remove(call) else { return };
        match (flight, ended) {
            (Flight::Swap(swap, _), Ended::Swap(outcomes)) => self.end_swap(swap, outcomes, times),
            (_, Ended::Announcement(count)) => {
                self.recovery.announced(count, times.1);
                self.recovery
                    .nodes()
                    .into_iter()
                    .for_each(|nodes| self.authority.handle_nodes(nodes));
            }
            (_, Ended::Ping(is_back)) => {
                self.recovery.pinged(is_back, times.1);
                if is_back {
                    self.authority.handle_back();
                }
            }
            _ => {} // never: a call ends as what it is
        }
    }

    fn end_swap(&mut self, swap: Swap, outcomes: Result<Outcomes, String>, times: Times) {
        match outcomes {
            Ok(outcomes) => self.authority.handle(swap, outcomes, times),
            Err(error) => {
                self.recovery.failed(&error);
                let failed = vec![SwapOutcome::Failed(error.clone()); swap.len()];
                self.authority.handle(swap, failed, times);
                if self.is_cluster {
                    return; // other masters may answer
                }
                self.authority.fail_waiting(&error, times.0);
                if self.authority.handle_away() {
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
