//! Sends commands to the masters of their slots, and follows redirects.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, ServerErrorKind, Value};
use tokio::time::{Instant, sleep};

use super::slots::NodeAddress;
use super::{Cluster, Master};
use crate::store::error::StoreError;
use crate::store::redis::named::said_by;

/// From this round on, and for a slot whose states are being moved, the next round waits.
const WAITS_FROM: u32 = 2;

/// How long it waits.
const WAIT: Duration = Duration::from_millis(5);

/// The most rounds, however long the deadline is.
const MOST_ROUNDS: u32 = 100;

/// A command without an answer.
struct Open<'c> {
    index: usize,
    slot: u16,
    command: &'c Cmd,
    /// The node that gets this slot, for a state that its master does not have any more.
    asked: Option<Arc<Master>>,
    /// The next round must wait.
    waits: bool,
}

impl Cluster {
    /// Sends each command to the master of its slot, those of one master together, and returns their answers.
    ///
    /// A command is sent again only if a node said that it has not executed it: after `MOVED`, `ASK` and `TRYAGAIN`. No
    /// round begins once the first one is a deadline ago.
    pub(in super::super) async fn send<'c>(
        self: &Arc<Self>,
        commands: &[(u16, &'c Cmd)],
    ) -> Vec<Result<Value, StoreError>> {
        if let Err(error) = self.know().await {
            return vec![Err(error); commands.len()];
        }
        let began = Instant::now();
        let mut answers: Vec<_> = commands.iter().map(|_| Err(StoreError::Abandoned)).collect();
        let open = |(index, (slot, command)): (usize, &(u16, &'c Cmd))| Open {
            index,
            slot: *slot,
            command,
            asked: None,
            waits: false,
        };
        let mut open: Vec<Open<'c>> = commands.iter().enumerate().map(open).collect();
        for round in 1..=MOST_ROUNDS {
            let groups = self.group(open);
            let told = join_all(groups.iter().map(|(master, group)| ask(master, group))).await;
            open = Vec::new();
            for ((master, group), told) in groups.into_iter().zip(told) {
                for (sent, answer) in group.into_iter().zip(told) {
                    let index = sent.index;
                    open.extend(self.next(&master, sent, &answer));
                    if let Some(place) = answers.get_mut(index) {
                        *place = answer.map(|answer| said_by(&master.connection.server, answer));
                    }
                }
            }
            if open.is_empty() || began.elapsed() >= self.dialer.deadline {
                break;
            }
            if round >= WAITS_FROM || open.iter().any(|open| open.waits) {
                sleep(WAIT).await;
            }
        }
        answers
    }

    /// The commands for each master. A slot without a master is any master's: it says what is wrong.
    fn group<'c>(&self, open: Vec<Open<'c>>) -> Vec<(Arc<Master>, Vec<Open<'c>>)> {
        let state = self.state();
        let mut groups: Vec<(Arc<Master>, Vec<Open<'c>>)> = Vec::new();
        for open in open {
            let owner = || state.slots.owner(open.slot).or(state.slots.masters.first());
            let Some(master) = open.asked.as_ref().or_else(owner) else { continue };
            match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, master)) {
                Some((_, group)) => group.push(open),
                None => groups.push((Arc::clone(master), vec![open])),
            }
        }
        groups
    }

    /// What to send after this answer, if the node has not executed the command.
    fn next<'c>(
        self: &Arc<Self>,
        master: &Master,
        sent: Open<'c>,
        answer: &Result<Value, StoreError>,
    ) -> Option<Open<'c>> {
        let error = match answer {
            Ok(Value::ServerError(error)) => error,
            Ok(_) => return None,
            Err(_) => {
                self.learn(); // another node may be the master by now
                return None;
            }
        };
        let again = Open { asked: None, waits: false, ..sent };
        let place = || {
            let error = RedisError::from(error.clone());
            error.redirect_node().and_then(|(node, _)| NodeAddress::read(node, &master.place))
        };
        match error.kind()? {
            ServerErrorKind::Moved => {
                self.moved(again.slot, &place()?);
                Some(again)
            }
            ServerErrorKind::Ask => Some(Open { asked: Some(self.master_at(&place()?)), ..again }),
            ServerErrorKind::TryAgain => Some(Open { waits: true, ..again }),
            ServerErrorKind::ClusterDown
            | ServerErrorKind::ReadOnly
            | ServerErrorKind::MasterDown
            | ServerErrorKind::BusyLoading => {
                self.learn();
                None
            }
            _ => None,
        }
    }
}

/// Sends these commands in one piece.
async fn ask(master: &Master, group: &[Open<'_>]) -> Vec<Result<Value, StoreError>> {
    let mut pipeline = Pipeline::with_capacity(group.len());
    for open in group {
        if open.asked.is_some() {
            pipeline.cmd("ASKING");
        }
        pipeline.add_command(open.command.clone());
    }
    let (pipeline, count) = (&pipeline, pipeline.len());
    let ask = |mut to: MultiplexedConnection| async move {
        to.send_packed_commands(pipeline, 0, count).await
    };
    let told = match master.connection.wake().await {
        Ok(()) => master.connection.ask(ask).await,
        Err(error) => Err(error),
    };
    match told {
        Ok(told) => {
            let mut told = told.into_iter();
            let answer = |open: &Open<'_>| {
                let asking = if open.asked.is_some() { told.next() } else { None };
                let own = told.next().ok_or(StoreError::Abandoned)?; // never: each command has an answer
                Ok(match (asking, own) {
                    // not allowed to this user; then the node sends the command back
                    (Some(refused @ Value::ServerError(_)), Value::ServerError(_)) => refused,
                    (_, own) => own,
                })
            };
            group.iter().map(answer).collect()
        }
        Err(error) => vec![Err(error); group.len()],
    }
}
