//! What decides on the states of one server: the Redis, or a master of a Cluster. No server waits for another one.

use tidegate_tier::Authority;
use tidegate_tier::authority::Options;

use super::recovery::Recovery;
use super::slot::{Master, Masters};

/// What decides on the states of one server.
#[derive(Debug)]
pub(super) struct Server {
    /// Its number. Each number has one server.
    pub(super) number: Master,
    /// The slot of a Cluster that it was last asked about.
    slot: u16,
    pub(super) authority: Authority<usize, String>,
    pub(super) recovery: Recovery,
    /// How many swaps are under way.
    pub(super) swaps: usize,
}

/// The servers that have been asked.
#[derive(Debug, Default)]
pub(super) struct Servers(pub(super) Vec<Server>);

impl Servers {
    /// The server of this number, which has this slot. A new one is a master that was not known before, so others may be gone: those that
    /// have nothing to do are forgotten.
    pub(super) fn of(
        &mut self,
        (number, slot): (Master, u16),
        (options, nodes): (Options, Option<u64>),
        masters: &Masters,
    ) -> &mut Server {
        let place = self.0.iter().position(|server| server.number == number).unwrap_or_else(|| {
            let is_there = |server: &Server| masters.master(server.slot) == server.number;
            self.0.retain(|server| server.is_busy() || is_there(server));
            let (authority, recovery) = (Authority::new(options), Recovery::default());
            let mut server = Server { number, slot, authority, recovery, swaps: 0 };
            server.handle_nodes(nodes);
            self.0.push(server);
            self.0.len().saturating_sub(1)
        });
        self.0[place].slot = slot;
        &mut self.0[place]
    }

    /// The server of this number, if it is known.
    pub(super) fn get(&mut self, number: Master) -> Option<&mut Server> {
        self.0.iter_mut().find(|server| server.number == number)
    }
}

impl Server {
    /// Takes the number of nodes, if it is known.
    pub(super) fn handle_nodes(&mut self, nodes: Option<u64>) {
        nodes.into_iter().for_each(|nodes| self.authority.handle_nodes(nodes));
    }

    fn is_busy(&self) -> bool {
        self.authority.waiting() > 0 || self.swaps > 0 || self.recovery.is_busy()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_gate::{Micros, Policy, Resolved, Timestamp};
    use tidegate_tier::authority::Queued;

    use super::{Masters, Options, Server, Servers};

    #[test]
    fn a_new_server_takes_the_place_of_those_that_are_gone_and_have_nothing_to_do() {
        let policy = r#"{"limits":[{"algorithm":"fixed_window","limit":2,"period":"1m"}]}"#;
        let policy = Arc::new(Policy::parse("login", policy).unwrap());
        let mut servers = Servers::default();
        of(&mut servers, 1).recovery.await_back("a".into(), Micros(0));
        of(&mut servers, 2).swaps = 1;
        let (resolved, now) = (Resolved::new(&policy, "a").unwrap(), Timestamp(7));
        let asked = Queued { resolved, now, operation: 1.into(), at: Micros(0), token: 0 };
        of(&mut servers, 3).authority.ask(asked);
        for (number, expected) in [(4, [1, 2, 3, 4]), (5, [1, 2, 3, 5]), (5, [1, 2, 3, 5])] {
            of(&mut servers, number);
            let numbers = servers.0.iter().map(|server| server.number);
            assert_eq!(numbers.collect::<Vec<_>>(), expected);
        }
    }

    /// A server, while nobody knows the master of a slot.
    fn of(servers: &mut Servers, number: u32) -> &mut Server {
        servers.of((number, 0), (Options::default(), None), &Masters(None))
    }
}
