//! The world itself.

use std::collections::BTreeMap;

use tidegate_gate::{Limit, Limits, Micros, Operation, Timestamp, Verdict};
use tidegate_tier::Authority;
use tidegate_tier::authority::{Queued, Swap, SwapOutcome};

use super::account::Account;
use crate::world::act::Act;
use crate::world::compared::{Compared, compared};
use crate::world::event::Event;
use crate::world::happens::Happens;
use crate::world::network::nth;
use crate::world::places::Places;
use crate::world::replay::States;
use crate::world::setup::Setup;
use crate::world::tally::Tally;
use crate::world::violation::{Checked, Invariant, Seen, check};

/// The most swaps that are under way.
const MOST_CALLS: usize = 64;

/// The most rounds that a time without faults takes.
const MOST_ROUNDS: usize = 300;

/// The most units that a request asks for.
const MOST_UNITS: u64 = 3;

#[derive(Debug)]
pub(in crate::world) struct World {
    setup: Setup,
    places: Places,
    now: u64,
    hosts: Vec<Host>,
    store: States,
    /// The store answers nobody.
    is_away: bool,
    calls: Vec<Call>,
    asked: BTreeMap<usize, Asked>,
    last: usize,
    account: Account,
    tally: Tally,
}

/// A host and what its driver knows.
#[derive(Debug)]
struct Host {
    authority: Authority<usize, Late>,
    /// How often it has lost its memory.
    life: u64,
    /// It asks whether the store is back.
    waits: bool,
}

/// No answer of the store came in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Late;

/// A swap under way to the store and back.
#[derive(Debug)]
struct Call {
    host: usize,
    life: u64,
    /// `None` once the host does not wait for it any more.
    swap: Option<Swap>,
    sent: u64,
    partitions: Vec<Vec<Compared>>,
    outcomes: Vec<SwapOutcome<Late>>,
}

/// An operation that is not answered.
#[derive(Debug)]
struct Asked {
    host: usize,
    key: usize,
    operation: Operation,
}

impl Happens for World {
    fn happen(&mut self, _: usize, event: Event) -> Checked {
        let hosts = self.hosts.len();
        match event {
            Event::Ask { node, key, act } => self.ask(node % hosts, key, act),
            Event::Advance(span) => self.advance(span),
            Event::Poll(node) if self.calls.len() < MOST_CALLS => self.poll(node % hosts)?,
            Event::Execute(index) => self.execute_nth(index),
            Event::Reply(index) => self.reply_nth(index),
            Event::Deadline(index) => self.deadline_nth(index),
            Event::Refuse(_) if !self.is_away => {
                self.is_away = true;
                self.account.begin();
            }
            Event::Accept(_) => self.is_away = false,
            Event::Crash(node, _) => self.crash(node % hosts),
            Event::Calm() => self.calm()?,
            _ => {}
        }
        (0..hosts).try_for_each(|host| self.hear(host))
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}

impl World {
    pub(in crate::world) fn new(setup: &Setup) -> anyhow::Result<Self> {
        let host =
            |_| Host { authority: Authority::new(setup.authority(false)), life: 0, waits: false };
        Ok(Self {
            places: Places::new(setup)?,
            now: 0,
            hosts: (0..setup.nodes).map(host).collect(),
            store: States::default(),
            is_away: false,
            calls: Vec::new(),
            asked: BTreeMap::new(),
            last: 0,
            account: Account::default(),
            tally: Tally::default(),
            setup: setup.clone(),
        })
    }

    fn times(&self) -> (Timestamp, Micros) {
        (Timestamp(self.setup.start + self.now), Micros(self.now))
    }

    fn ask(&mut self, host: usize, key: usize, act: Act) {
        let key = key % self.places.of_revision;
        let operation = match act {
            Act::Take(units) => Operation::from(1 + units % MOST_UNITS),
            _ => Operation::from(0),
        };
        let ((now, at), token) = (self.times(), self.last);
        let resolved = self.places.keys[key].resolved.clone();
        self.last += 1;
        self.asked.insert(token, Asked { host, key, operation });
        self.hosts[host].authority.ask(Queued { resolved, now, at, operation, token });
    }

    /// Time passes. What takes longer than the network may take is lost.
    fn advance(&mut self, span: u64) {
        self.now += span;
        let oldest = self.now.saturating_sub(self.setup.linger);
        self.calls.retain(|call| call.swap.is_some() || call.sent >= oldest);
    }

    /// A host notices that the store is back, and sends a swap.
    fn poll(&mut self, host: usize) -> Checked {
        let (now, at) = self.times();
        if self.hosts[host].waits && !self.is_away {
            self.hosts[host].waits = false;
            self.hosts[host].authority.handle_back(at);
        }
        let Host { authority, life, .. } = &mut self.hosts[host];
        let Some(swap) = authority.poll_swap((Some(now), at), |_| false) else { return Ok(()) };
        let of = |partition| compared(authority, (&swap, partition), &self.places);
        let partitions = (0..swap.len()).map(of).collect::<Result<_, _>>()?;
        let (life, sent, swap) = (*life, self.now, Some(swap));
        let outcomes = Vec::new();
        self.calls.push(Call { host, life, swap, sent, partitions, outcomes });
        Ok(())
    }

    fn find(&self, is: impl Fn(&Call) -> bool, index: usize) -> Option<usize> {
        let found = self.calls.iter().enumerate().filter(|(_, call)| is(call));
        nth(&found.map(|(place, _)| place).collect::<Vec<_>>(), index)
    }

    /// The store takes a swap. The host may have given the swap up: a store that stood still also takes the swaps that came meanwhile.
    fn execute_nth(&mut self, index: usize) {
        if self.is_away {
            return;
        }
        if let Some(call) = self.find(|call| !call.partitions.is_empty(), index) {
            self.execute(call);
        }
    }

    fn execute(&mut self, call: usize) {
        for partition in std::mem::take(&mut self.calls[call].partitions) {
            let held = |record: usize| self.store.get(record).map(<[u8]>::to_vec);
            if partition.iter().any(|each| held(each.record) != each.found) {
                let found = partition.iter().map(|each| held(each.record)).collect();
                self.calls[call].outcomes.push(SwapOutcome::Found(found));
                continue;
            }
            for each in partition.iter().filter(|each| each.becomes.is_some()) {
                self.store.put(each.record, each.becomes.as_deref());
            }
            self.calls[call].outcomes.push(SwapOutcome::Swapped);
        }
        if self.calls[call].swap.is_none() {
            self.tally.add("a swap came late");
        }
    }

    fn reply_nth(&mut self, index: usize) {
        let is_done = |call: &Call| call.swap.is_some() && call.partitions.is_empty();
        if !self.is_away
            && let Some(call) = self.find(is_done, index)
        {
            self.reply(call);
        }
    }

    fn reply(&mut self, call: usize) {
        let (now, at) = self.times();
        let Call { host, life, swap, outcomes, .. } = self.calls.remove(call);
        let nodes = u64::try_from(self.hosts.len()).unwrap_or(u64::MAX);
        if let (Some(swap), true) = (swap, self.hosts[host].life == life) {
            self.account.answered(host, life);
            self.hosts[host].authority.handle_nodes(nodes);
            self.hosts[host].authority.handle(swap, outcomes, (Some(now), at));
        }
    }

    /// A host gives a swap up, and everything that waits with it.
    fn deadline_nth(&mut self, index: usize) {
        let Some(call) = self.find(|call| call.swap.is_some(), index) else { return };
        let (now, at) = self.times();
        let Some(swap) = self.calls[call].swap.take() else { return };
        let Host { authority, waits, .. } = &mut self.hosts[self.calls[call].host];
        let (failed, asked_at) = (vec![SwapOutcome::Failed(Late); swap.len()], swap.at());
        authority.handle(swap, failed, (Some(now), at));
        authority.fail_waiting(&Late, Some(now));
        *waits |= authority.handle_away(Late, asked_at);
        self.tally.add("a deadline passed");
    }

    fn crash(&mut self, host: usize) {
        let own = |call: &Call| call.host == host && call.swap.is_some();
        while let Some(call) = self.find(own, 0) {
            self.calls[call].swap = None;
        }
        let Host { authority, life, waits } = &mut self.hosts[host];
        *authority = Authority::new(self.setup.authority(false));
        (*life, *waits) = (*life + 1, false);
        self.asked.retain(|_, asked| asked.host != host);
        self.tally.add("a host crashed");
    }

    /// Takes the answers of a host.
    fn hear(&mut self, host: usize) -> Checked {
        while let Some((token, answer, _)) = self.hosts[host].authority.poll_answer() {
            let Some(asked) = self.asked.remove(&token) else {
                return Err(Seen(Invariant::Once, format!("nobody waits for {token}: {answer:?}")));
            };
            match (asked.operation, answer) {
                (Operation::Decide(request), Ok(verdict)) if verdict.decision.is_allowed() => {
                    self.granted(host, asked.key, (request.cost, &verdict))?;
                }
                (_, Ok(verdict)) if verdict.degraded => self.tally.add("a share refused"),
                _ => {}
            }
        }
        Ok(())
    }

    fn granted(&mut self, host: usize, key: usize, (cost, said): (u64, &Verdict)) -> Checked {
        let nodes = u64::try_from(self.hosts.len()).unwrap_or(u64::MAX);
        for record in self.places.keys[key].records.clone() {
            let of = (record, self.limit(record)?);
            match said.degraded {
                true => self.account.by_share(of, (host, self.hosts[host].life, nodes), cost)?,
                false => self.account.by_store(of, cost)?,
            }
        }
        self.tally.add(if said.degraded { "a share granted" } else { "the store granted" });
        Ok(())
    }

    /// The limit of a record.
    fn limit(&self, record: usize) -> Result<u64, Seen> {
        let (key, place) = self.place_of(record)?;
        let limit = self.limits(key).nth(place).map(Limit::capacity);
        limit.ok_or_else(|| Seen(Invariant::Reason, format!("record {record} has no limit")))
    }

    fn limits(&self, key: usize) -> impl Iterator<Item = &Limit> {
        let limits = self.places.keys[key].resolved.limits().into_iter().flat_map(Limits::iter);
        limits.map(|named| &named.limit)
    }

    /// A key whose limit of this place has the record. Each record has one limit.
    fn place_of(&self, record: usize) -> Result<(usize, usize), Seen> {
        let place =
            |key: usize| self.places.keys[key].records.iter().position(|own| *own == record);
        let mut found = (0..self.places.of_revision).filter_map(|key| Some((key, place(key)?)));
        found.next().ok_or_else(|| Seen(Invariant::Stored, format!("no key has record {record}")))
    }

    /// The store is there, and nothing fails until every operation is answered.
    fn calm(&mut self) -> Checked {
        self.is_away = false;
        for _ in 0..MOST_ROUNDS {
            for host in 0..self.hosts.len() {
                self.poll(host)?;
            }
            while let Some(call) = self.find(|call| !call.partitions.is_empty(), 0) {
                self.execute(call);
            }
            while let Some(call) = self.find(|call| call.swap.is_some(), 0) {
                self.reply(call);
            }
            self.advance(1_000);
            (0..self.hosts.len()).try_for_each(|host| self.hear(host))?;
        }
        let waiting = self.asked.len();
        check(waiting == 0, Invariant::Live, || {
            format!("nothing has failed for long, and {waiting} operations wait")
        })
    }
}
