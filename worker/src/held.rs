//! What a request that passes holds until the exchange with the upstream has ended: leases, which are renewed, and reservations,
//! which are then committed. Each policy that decided on the request may have one of both.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{AbortHandle, abortable};
use js_sys::futures::{JsFuture, spawn_local};
use js_sys::{Array, Date, Function, Promise};
use tidegate_http::{AnswerEnd, Lease, Meter, Pass, Reservation};
use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::Response;
use worker::Delay;

/// The time for which a lease is renewed while the answer has not begun. The runtime does not notice that a client has closed
/// its connection in an orderly way until it writes something to that client.
const LONGEST_WAIT_MS: u64 = 600_000;

/// The codings of bodies that the runtime decodes.
const DECODED: [&str; 2] = ["gzip", "br"];

/// The leases and reservations of a request.
pub(crate) struct Held {
    leases: Vec<Lease>,
    reservations: Vec<Reservation>,
    hold: Function,
    has_answer: Rc<Cell<bool>>,
    /// Of each lease.
    renewals: Vec<AbortHandle>,
}

impl Held {
    /// Holds what the request has, and renews its leases from now on. `hold` is that of `Isolate.forward`. `None` if it has nothing.
    pub(crate) fn begin(pass: &mut Pass, hold: Function) -> Option<Self> {
        let (leases, reservations) =
            (std::mem::take(&mut pass.leases), std::mem::take(&mut pass.reservations));
        if leases.is_empty() && reservations.is_empty() {
            return None;
        }
        let has_answer = Rc::new(Cell::new(false));
        let renewals =
            leases.iter().map(|lease| renew(lease.clone(), &hold, &has_answer)).collect();
        Some(Self { leases, reservations, hold, has_answer, renewals })
    }

    /// Takes note that the answer has begun.
    pub(crate) fn answered(&mut self, answer: &Response) {
        self.has_answer.set(true);
        for Reservation { meter, .. } in &mut self.reservations {
            let headers = answer.headers();
            meter.answered(answer.status(), &|name| {
                let value = headers.get(name).ok().flatten()?;
                // the runtime itself decodes these
                (name != "content-encoding" || !DECODED.contains(&&*value)).then_some(value)
            });
        }
    }

    /// The meters that read the body of the answer.
    pub(crate) fn meters(&mut self) -> Vec<&mut Meter> {
        let meters = self.reservations.iter_mut().map(|reservation| &mut reservation.meter);
        meters.filter(|meter| meter.reads()).collect()
    }

    /// Ends the renewals, commits the reservations, and releases the leases.
    pub(crate) async fn end(mut self, end: AnswerEnd) {
        self.renewals.iter().for_each(AbortHandle::abort);
        let mut ended = Vec::new();
        for Reservation { policy, key, id, meter } in std::mem::take(&mut self.reservations) {
            // a commit releases the lease of the same name
            self.leases.retain(|lease| lease.policy != policy || lease.name != id);
            let units = Some(meter.finish(end));
            ended.extend(call_hold(&self.hold, false, [&policy, &key, &id], units));
        }
        for Lease { policy, key, name, .. } in &self.leases {
            ended.extend(call_hold(&self.hold, false, [policy, key, name], None));
        }
        for one in ended {
            let _ = JsFuture::from(one).await; // a failure is in the log
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.renewals.iter().for_each(AbortHandle::abort); // without an end leases expire, and reservations end by themselves
    }
}

/// Renews a lease from now on, until it is aborted.
fn renew(lease: Lease, hold: &Function, has_answer: &Rc<Cell<bool>>) -> AbortHandle {
    let (hold, has_answer) = (hold.clone(), Rc::clone(has_answer));
    let (renewals, handle) = abortable(async move {
        let Lease { policy, key, name, renew_every } = &lease;
        let every = Duration::from_micros(renew_every.0).max(Duration::from_millis(1));
        let began = now_ms();
        loop {
            Delay::from(every).await;
            if has_answer.get() || now_ms().saturating_sub(began) < LONGEST_WAIT_MS {
                drop(call_hold(&hold, true, [policy, key, name], None)); // the next renewal does not wait for this one
            }
        }
    });
    spawn_local(renewals.map(|_: Result<(), _>| ()));
    handle
}

fn call_hold(
    hold: &Function,
    renews: bool,
    names: [&str; 3],
    actual: Option<u64>,
) -> Option<Promise> {
    let [policy, key, name] = names.map(JsValue::from);
    let actual = actual.map(crate::clock::number);
    let arguments = Array::of5(&renews.into(), &policy, &key, &name, &actual.into());
    hold.apply(&JsValue::UNDEFINED, &arguments).ok()?.dyn_into().ok()
}

fn now_ms() -> u64 {
    crate::clock::whole(Date::now())
}
