//! A Redis Cluster: which master has which slot, and a connection to each master.
//!
//! The client of the library has this, too. But it tells nobody which master has a slot, so swaps could not wait for
//! their master's connection together; and it sends a command again after a lost connection, which may have been executed.

mod send;
mod slots;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use redis::{
    AsyncCommands, ConnectionAddr, ErrorKind, RedisConnectionInfo, RedisError, ServerErrorKind,
    Value, cmd,
};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

pub(super) use self::slots::slot_of;
use self::slots::{ClusterSlots, NodeAddress, Slots};
use super::connection::{Connection, Destination, To};
use super::dialer::Dialer;
use super::named::with_address;
use crate::store::error::StoreError;

/// The store asks for the slots at most this often.
const LEARNED_AFTER: Duration = Duration::from_millis(100);

/// How many nodes are asked for the slots at once.
const MOST_ASKED: usize = 4;

/// The masters of a Cluster.
pub(super) struct Cluster {
    dialer: Dialer,
    login: RedisConnectionInfo,
    /// The nodes of the URL.
    seeds: Vec<NodeAddress>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    slots: Slots<Master>,
    replicas: Vec<NodeAddress>,
    /// The newest attempt to learn the slots.
    learning: Option<Learning>,
    /// The number of attempts. Each begins with another node.
    attempts: usize,
    /// The number of masters so far.
    masters: u64,
}

/// An attempt to learn the slots.
#[derive(Clone)]
struct Learning {
    began: Instant,
    /// `None` until the attempt has ended.
    ended: watch::Receiver<Option<Result<(), StoreError>>>,
}

/// A master, and the connection to it.
pub(super) struct Master {
    /// Not 0. Another connection to the same master has another number.
    number: u64,
    place: NodeAddress,
    connection: Connection,
}

impl Cluster {
    /// The Cluster that has these nodes, at least. It connects at the first question.
    pub(super) fn new(
        dialer: Dialer,
        login: RedisConnectionInfo,
        nodes: Vec<ConnectionAddr>,
    ) -> Self {
        let place = |node| match node {
            ConnectionAddr::Tcp(host, port) => Some(NodeAddress { host, port }),
            _ => None, // never: the address of a Cluster has hosts
        };
        let seeds = nodes.into_iter().filter_map(place).collect();
        Self { dialer, login, seeds, state: Mutex::default() }
    }

    /// Asks the master of this number whether it answers, or all masters if it is 0.
    pub(super) async fn ping(self: &Arc<Self>, number: u64) -> Result<(), StoreError> {
        self.know().await?;
        let mut masters = self.state().slots.masters.clone();
        masters.retain(|master| number == 0 || master.number == number);
        let ping = async |master: &Arc<Master>| {
            master.connection.ask(|mut connection| async move { connection.ping().await }).await
        };
        let answers: Result<(), StoreError> =
            join_all(masters.iter().map(ping)).await.into_iter().collect();
        if answers.is_err() {
            self.learn(); // another node may be the master by now
        }
        answers
    }

    /// The number of the master that has the slot; 0 if it is unknown.
    pub(super) fn number(&self, slot: u16) -> u64 {
        self.state().slots.owner(slot).map_or(0, |master| master.number)
    }

    /// Whether a master of this number is known.
    pub(super) fn has(&self, number: u64) -> bool {
        self.state().slots.masters.iter().any(|master| master.number == number)
    }

    /// Goes by this error of the master that has the slot.
    pub(super) fn doubt(self: &Arc<Self>, slot: u16, error: &RedisError) {
        let owner = self.state().slots.owner(slot).cloned();
        if let Some(master) = owner {
            master.connection.doubt(error);
        }
        self.learn();
    }

    /// Waits until the slots are known.
    async fn know(self: &Arc<Self>) -> Result<(), StoreError> {
        if !self.state().slots.masters.is_empty() {
            return Ok(());
        }
        let mut learning = self.learn();
        let ended = learning.ended.wait_for(Option::is_some);
        match timeout(self.dialer.deadline, ended).await {
            Ok(Ok(ended)) => ended.clone().unwrap_or(Ok(())),
            Ok(Err(_)) => Err(StoreError::Abandoned),
            Err(_) => {
                let nodes: Vec<String> = self.nodes().iter().map(NodeAddress::to_string).collect();
                let (within, server) = (self.dialer.deadline, Some(nodes.join(", ").into()));
                Err(StoreError::Deadline { within, server })
            }
        }
    }

    /// Asks for the slots, unless they were asked for just now. Does so in a task of its own, so a caller that goes away
    /// does not end it.
    fn learn(self: &Arc<Self>) -> Learning {
        let mut state = self.state();
        if let Some(learning) = &state.learning {
            let is_under_way =
                learning.ended.borrow().is_none() && learning.ended.has_changed().is_ok();
            if is_under_way || learning.began.elapsed() < LEARNED_AFTER {
                return learning.clone();
            }
        }
        let (sender, ended) = watch::channel(None);
        let learning = Learning { began: Instant::now(), ended };
        state.learning = Some(learning.clone());
        state.attempts = state.attempts.wrapping_add(1);
        drop(state);
        let cluster = Arc::clone(self);
        tokio::spawn(async move {
            let told = cluster.ask_nodes().await.map(|told| cluster.take(told));
            let _ = sender.send(Some(told)); // nobody may wait for it
        });
        learning
    }

    /// Asks some nodes at a time for the slots, until two of them tell the same, or all have answered: a master that was
    /// away and comes back does not know yet that it is a replica.
    async fn ask_nodes(&self) -> Result<ClusterSlots, StoreError> {
        let mut failed = StoreError::Abandoned;
        for places in self.nodes().chunks(MOST_ASKED) {
            let mut asked: FuturesUnordered<_> =
                places.iter().map(|place| self.ask_node(place)).collect();
            let mut told: Vec<ClusterSlots> = Vec::new();
            while let Some(answer) = asked.next().await {
                match answer {
                    Ok(answer) if told.iter().any(|told| told.ranges == answer.ranges) => {
                        return Ok(answer);
                    }
                    Ok(answer) => told.push(answer),
                    Err(error) => failed = error,
                }
            }
            if let Some(told) = told.pop() {
                return Ok(told);
            }
        }
        Err(failed)
    }

    async fn ask_node(&self, place: &NodeAddress) -> Result<ClusterSlots, StoreError> {
        let known = {
            let state = self.state();
            state.slots.masters.iter().find(|master| master.place == *place).cloned()
        };
        let question = cmd("CLUSTER").arg("SLOTS").take();
        let ask = async |connection: &Connection| {
            let question = &question;
            connection.read(|mut to| async move { to.send_packed_command(question).await }).await
        };
        let told = match known {
            Some(master) => ask(&master.connection).await?,
            None => ask(&self.connection(place)).await?,
        };
        if let Value::ServerError(error) = told {
            let is_no_cluster =
                error.details().is_some_and(|told| told.contains("cluster support disabled"));
            return Err(match is_no_cluster {
                true => StoreError::Address(
                    "expected a node of a Cluster, found a Redis without cluster support: write `redis://HOST:PORT` \
                     instead of `redis+cluster://HOST:PORT`"
                        .to_owned(),
                ),
                false => with_address(RedisError::from(error), place).into(),
            });
        }
        let told = ClusterSlots::read(told, place);
        match told.ranges.is_empty() {
            false => Ok(told),
            true => Err(RedisError::from((
                ErrorKind::Server(ServerErrorKind::ClusterDown),
                "no node of the Cluster has slots",
                format!("({place})"),
            ))
            .into()),
        }
    }

    /// The nodes that may know the slots, another one first each time.
    fn nodes(&self) -> Vec<NodeAddress> {
        let state = self.state();
        let masters = state.slots.masters.iter().map(|master| &master.place);
        let mut nodes: Vec<NodeAddress> = Vec::new();
        for place in masters.chain(&state.replicas).chain(&self.seeds) {
            if !nodes.contains(place) {
                nodes.push(place.clone());
            }
        }
        let first = state.attempts.checked_rem(nodes.len()).unwrap_or_default();
        nodes.rotate_left(first);
        nodes
    }

    /// Goes by these slots from now on. Connections to masters that still are masters stay.
    fn take(&self, told: ClusterSlots) {
        let mut state = self.state();
        let known = std::mem::take(&mut state.slots).masters;
        let mut known: HashMap<NodeAddress, Arc<Master>> =
            known.into_iter().map(|master| (master.place.clone(), master)).collect();
        for (first, last, place) in told.ranges {
            let master = match known.get(&place) {
                Some(master) => Arc::clone(master),
                None => self.begin(&mut state, &place),
            };
            state.slots.give((first, last), &master);
            known.insert(place, master);
        }
        state.replicas = told.replicas;
    }

    /// Goes by what a master says of one slot from now on.
    fn moved(self: &Arc<Self>, slot: u16, place: &NodeAddress) {
        let master = self.master_at(place);
        self.state().slots.give((slot, slot), &master);
        self.learn();
    }

    /// The master at this place. It need not have slots yet.
    fn master_at(&self, place: &NodeAddress) -> Arc<Master> {
        let mut state = self.state();
        let known = state.slots.masters.iter().find(|master| master.place == *place);
        if let Some(master) = known {
            return Arc::clone(master);
        }
        let master = self.begin(&mut state, place);
        state.slots.masters.push(Arc::clone(&master)); // the next one who asks for it finds it
        master
    }

    fn begin(&self, state: &mut State, place: &NodeAddress) -> Arc<Master> {
        state.masters += 1;
        let (number, connection) = (state.masters, self.connection(place));
        Arc::new(Master { number, place: place.clone(), connection })
    }

    fn connection(&self, place: &NodeAddress) -> Connection {
        let to = To::Server(ConnectionAddr::Tcp(place.host.clone(), place.port));
        Connection::new(Destination { dialer: self.dialer.clone(), login: self.login.clone(), to })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
