//! What drives the authority: the commands to send, and their replies.

use tidegate_gate::{Micros, Timestamp};
use wasm_bindgen::JsValue;

use super::arguments::Arguments;
use super::call::{Call, Group, Step};
use super::flight::Flight;
use super::reply::Reply;
use super::tier::Tier;
use super::under_way::{Then, UnderWay};
use crate::number::{from_quantity, to_quantity};

/// How many swaps of a server are under way at once: as many as the host has.
const MOST_SWAPS: usize = 4;

/// The time at which operations are decided, if it is known, and the time by a clock that never goes back.
type Times = (Option<Timestamp>, Micros);

impl Tier {
    /// Begins a call if one is due, or if operations wait and not too many calls are under way. Returns its number.
    pub(super) fn begin_call(&mut self, now: f64, at: f64) -> Option<usize> {
        let times = self.times(now, at);
        self.has_own = false;
        self.ask_what_is_due(times);
        if let Some((slot, command)) = self.presence.poll(times.1) {
            return Some(self.calls.insert(Flight::Announcement(slot, command)));
        }
        if let Some(swap) = self.again.pop_front() {
            self.begin_again(swap);
        }
        for place in 0..self.servers.0.len() {
            if !self.begun.is_empty() {
                break;
            }
            self.begin_calls(place, times);
        }
        self.begun.pop_front()
    }

    /// Begins the next calls of a server.
    fn begin_calls(&mut self, place: usize, times: Times) {
        let Some(server) = self.servers.0.get_mut(place) else { return };
        if let Some((slot, command)) = server.recovery.poll(times.1) {
            let ping = Flight::Ping(server.number, slot, command);
            self.begun.push_back(self.calls.insert(ping));
        }
        if server.swaps >= MOST_SWAPS {
            return;
        }
        let Some(swap) = server.authority.poll_swap(times, |_| false) else { return };
        server.swaps = server.swaps.saturating_add(1);
        let mut swap = UnderWay::new(server.number, swap);
        let (to, masters) = ((&*self.prefix, self.has_texts), (&self.masters, self.runs_across));
        let calls = swap.begin(to, &mut server.authority, masters);
        let number = self.swaps.insert(swap);
        self.begin_all(number, calls);
    }

    /// Begins the calls by slot of a swap.
    fn begin_again(&mut self, number: usize) {
        let Some(swap) = self.swaps.get_mut(number) else { return };
        let Some(server) = self.servers.get(swap.server) else { return };
        let to = (&*self.prefix, self.has_texts);
        let calls = swap.begin_again(to, &mut server.authority, &self.masters);
        self.begin_all(number, calls);
    }

    /// Begins calls of a swap.
    fn begin_all(&mut self, swap: usize, calls: Vec<Call>) {
        let calls = calls.into_iter().map(|call| self.calls.insert(Flight::Swap(swap, call)));
        self.begun.extend(calls);
    }

    /// When [`begin_call`](Self::begin_call) is next of use without a new operation.
    pub(super) fn due_us(&mut self) -> Option<f64> {
        self.told = self.node.poll_timeout();
        let servers = self.servers.0.iter().map(|server| server.recovery.poll_timeout());
        let due = servers.chain([self.presence.poll_timeout(), self.told]);
        due.flatten().min().map(|due| from_quantity(due.0))
    }

    /// Whether [`begin_call`](Self::begin_call) is of use at another time than JavaScript knows.
    pub(super) fn is_due_otherwise(&self) -> bool {
        self.has_own || self.node.poll_timeout() != self.told
    }

    /// The command that a call sends next; `None` if the call has ended.
    pub(super) fn command(&self, call: usize) -> Option<&Arguments> {
        Some(self.calls.get(call)?.command())
    }

    /// The slot of a Cluster that a call is about.
    pub(super) fn slot(&self, call: usize) -> Option<u16> {
        Some(self.calls.get(call)?.slot())
    }

    /// Takes the reply to the command of a call: what the client returned, or the `Error` that it threw.
    pub(super) fn reply(&mut self, call: usize, reply: &JsValue, now: f64, at: f64) {
        let times = self.times(now, at);
        let Some(under_way) = self.calls.get_mut(call) else { return };
        let reply = Reply::read(reply, self.has_texts);
        let ended = match under_way {
            Flight::Swap(_, call) => match call.reply(reply) {
                Step::Send => return,
                step => Ended::Swap(step),
            },
            Flight::Announcement(..) | Flight::Ping(..) => Ended::Other(Ok(reply)),
        };
        self.end(call, ended, times);
    }

    /// Ends a call that gets no reply, for this reason.
    pub(super) fn give_up(&mut self, call: usize, why: String, now: f64, at: f64) {
        let times = self.times(now, at);
        let ended = match self.calls.get(call) {
            Some(Flight::Swap(..)) => Ended::Swap(Step::End(Err(why))),
            _ => Ended::Other(Err(why)),
        };
        self.end(call, ended, times);
    }

    /// Asks Redis to take back the units that this process holds, and ends what it asks by itself.
    pub(super) fn give_back(&mut self, now: f64, at: f64) {
        let (now, at) = self.times(now, at);
        self.presence.close();
        self.servers.0.iter_mut().for_each(|server| server.recovery.close());
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

    /// While an operation waits whose time the caller gave, no operation is decided at the time of the clock. A clock that says no
    /// time does not count.
    fn times(&self, now: f64, at: f64) -> Times {
        let now = to_quantity(now).filter(|_| self.timed == 0);
        (now.map(Timestamp), Micros(to_quantity(at).unwrap_or_default()))
    }

    fn end(&mut self, call: usize, ended: Ended, times: Times) {
        let Some(flight) = self.calls.try_remove(call) else { return };
        match (flight, ended) {
            (Flight::Swap(swap, call), Ended::Swap(step)) => {
                self.end_call(swap, &call.group, step, times);
            }
            (Flight::Announcement(..), Ended::Other(reply)) => {
                self.presence.announced(reply.as_ref().ok(), times.1);
                let nodes = self.presence.nodes();
                let servers = self.servers.0.iter_mut();
                servers.for_each(|server| server.handle_nodes(nodes));
            }
            (Flight::Ping(server, ..), Ended::Other(reply)) => {
                let Some(server) = self.servers.get(server) else { return };
                let is_back = match reply {
                    Ok(Reply::Error(error)) | Err(error) => {
                        server.authority.handle_away(error, times.1);
                        false
                    }
                    Ok(_) => {
                        server.authority.handle_back(times.1);
                        true
                    }
                };
                server.recovery.asked(is_back, times.1);
            }
            _ => {} // never: a call ends as what it is
        }
    }

    /// Takes the end of a call of a swap.
    fn end_call(&mut self, number: usize, group: &Group, step: Step, times: Times) {
        if let Step::End(Err(error)) = &step
            && group.is_across
            && error.starts_with(UNKNOWN_FLAGS)
        {
            self.runs_across = false;
        }
        let Some(swap) = self.swaps.get_mut(number) else { return };
        match swap.end(group, step, self.masters.are_cluster()) {
            Then::Wait => {}
            Then::Again => self.again.push_back(number),
            Then::End(error) => self.end_swap(number, error, times),
        }
    }

    /// All calls of a swap have ended; with an error if the server did not answer.
    fn end_swap(&mut self, number: usize, error: Option<String>, times: Times) {
        let Some(mut swap) = self.swaps.try_remove(number) else { return };
        let Some(server) = self.servers.get(swap.server) else { return };
        server.swaps = server.swaps.saturating_sub(1);
        let name = swap.name(&self.prefix, &mut server.authority, 0);
        let outcomes = core::mem::take(&mut swap.outcomes);
        // an event loop that stood still since then is no other writer, so the time at which this swap was asked counts
        let asked_at = swap.swap.at();
        server.authority.handle(swap.swap, outcomes, (times.0, asked_at));
        let Some(error) = error else { return };
        server.authority.fail_waiting(&error, times.0);
        if self.is_local && server.authority.handle_away(error, asked_at) {
            server.recovery.await_back(name.unwrap_or_default(), times.1);
        }
    }
}

/// How a call has ended.
enum Ended {
    Swap(Step),
    /// By this reply, or without one for this reason.
    Other(Result<Reply, String>),
}

/// What begins the error of a server that refuses a script for its flags, which Redis 6.2 does not know.
const UNKNOWN_FLAGS: &str = "ERR ";
