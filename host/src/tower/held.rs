//! What a request that passes holds until its response has ended: a lease, which is renewed, and a reservation, which is then
//! committed.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use tidegate_gate::{Id, Operation, Resolved};
use tidegate_http::{AnswerEnd, Lease, Meter, Reservation};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::limit::Limit;
use crate::http_message::joined;

/// The leases and reservations of one request. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    reservations: Vec<Reservation>,
    /// Tells the task that renews the leases that the response has ended. `None` once it has.
    end: Option<oneshot::Sender<Vec<Commit>>>,
}

/// A reservation, and the units that the request has really cost.
#[derive(Debug)]
struct Commit {
    policy: String,
    key: String,
    id: String,
    units: u64,
}

impl Held {
    /// Holds these from now on, in a box, because few requests have any. `None` if no runtime could renew and end them: they then
    /// expire.
    pub(super) fn begin(
        limit: &Arc<Limit>,
        leases: Vec<Lease>,
        reservations: Vec<Reservation>,
    ) -> Option<Box<Self>> {
        let (end, ended) = oneshot::channel();
        Handle::try_current().ok()?.spawn(hold(Arc::clone(limit), leases, ended));
        Some(Box::new(Self { reservations, end: Some(end) }))
    }

    /// Takes note of the head of the response.
    pub(super) fn answered<B>(&mut self, response: &Response<B>) {
        for Reservation { meter, .. } in &mut self.reservations {
            meter.answered(response.status().as_u16(), &|name| joined(response.headers(), name));
        }
    }

    /// Takes note of the next bytes of the response.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let meters = self.reservations.iter_mut().map(|reservation| &mut reservation.meter);
        meters.filter(|meter| meter.reads()).for_each(|meter| meter.push(bytes));
    }

    /// Ends what is held. The first call counts.
    pub(super) fn end(&mut self, end: AnswerEnd) {
        let Some(task) = self.end.take() else { return };
        let reservations = mem::take(&mut self.reservations).into_iter();
        let commits = reservations.map(|Reservation { policy, key, id, meter }| {
            let units = Meter::finish(meter, end);
            Commit { policy, key, id, units }
        });
        let _ = task.send(commits.collect()); // without its runtime nobody can end them, and they expire
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end(AnswerEnd::CutOff);
    }
}

/// Renews the leases until the response has ended, then ends everything.
async fn hold(
    limit: Arc<Limit>,
    mut leases: Vec<Lease>,
    mut ended: oneshot::Receiver<Vec<Commit>>,
) {
    let commits = loop {
        let Some(every) = leases.iter().map(|lease| lease.renew_every).min() else {
            break ended.await;
        };
        let every = Duration::from_micros(every.0).max(Duration::from_millis(1));
        match timeout(every, &mut ended).await {
            Ok(commits) => break commits,
            Err(_) => leases = renewed(&limit, leases).await,
        }
    };
    let commits = commits.unwrap_or_default(); // a `Held` sends them before it goes
    // a commit releases the lease of the same name
    let ends = |commit: &Commit, lease: &Lease| {
        (&commit.policy, &commit.key, &commit.id) == (&lease.policy, &lease.key, &lease.name)
    };
    leases.retain(|lease| !commits.iter().any(|commit| ends(commit, lease)));
    for Commit { policy, key, id, units } in commits {
        do_named(&limit, [&policy, &key, &id], |id| Operation::Commit(id, units)).await;
    }
    for Lease { policy, key, name, .. } in leases {
        do_named(&limit, [&policy, &key, &name], Operation::Release).await;
    }
}

/// The leases that live on.
async fn renewed(limit: &Limit, leases: Vec<Lease>) -> Vec<Lease> {
    let mut live = Vec::new();
    for lease in leases {
        let Lease { policy, key, name, .. } = &lease;
        if do_named(limit, [policy, key, name], Operation::Heartbeat).await != Some(false) {
            live.push(lease);
        }
    }
    live
}

/// Does an operation on the lease of this name. Returns whether the lease was live; `None` if that is not known.
async fn do_named(
    limit: &Limit,
    [policy, key, name]: [&str; 3],
    operation: impl FnOnce(Id) -> Operation,
) -> Option<bool> {
    let resolved = Resolved::new(&limit.asks(policy)?.policy, key).ok()?; // it was resolved before
    let id = resolved.lease_id(name);
    limit.note(&resolved, operation(id)).await
}

/// The leases and reservations that a store may grant to a request whose client may leave before. It ends them if it is dropped.
#[derive(Debug)]
pub(super) struct Ungiven<'a> {
    limit: &'a Arc<Limit>,
    ends: Vec<(Resolved, Operation)>,
}

impl<'a> Ungiven<'a> {
    pub(super) fn new<'r>(
        limit: &'a Arc<Limit>,
        asked: impl Iterator<Item = (&'r Resolved, Operation)>,
    ) -> Self {
        let ends = asked.filter_map(|(resolved, operation)| {
            let Operation::Decide(request) = operation else { return None };
            let id = request.lease?;
            let end =
                if request.reserves() { Operation::Commit(id, 0) } else { Operation::Release(id) };
            Some((Resolved::clone(resolved), end))
        });
        Self { limit, ends: ends.collect() }
    }

    /// The store has answered.
    pub(super) fn are_given(mut self) {
        self.ends.clear();
    }
}

impl Drop for Ungiven<'_> {
    fn drop(&mut self) {
        let ends = mem::take(&mut self.ends);
        if ends.is_empty() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return }; // then they expire
        let limit = Arc::clone(self.limit);
        runtime.spawn(async move {
            for (resolved, end) in ends {
                limit.note(&resolved, end).await;
            }
        });
    }
}
