//! What a request that passes holds until the exchange with the upstream has ended: a lease, which is renewed, and a reservation,
//! which is then committed.

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

/// A lease or a reservation, or both under one name.
pub(crate) struct Held {
    lease: Option<Rc<Lease>>,
    reservation: Option<Box<Reservation>>,
    hold: Function,
    has_answer: Rc<Cell<bool>>,
    renewals: AbortHandle,
}

impl Held {
    /// Holds what the request has, and renews its lease from now on. `hold` is that of `Isolate.forward`. `None` if it has nothing.
    pub(crate) fn begin(pass: &mut Pass, hold: Function) -> Option<Self> {
        let (lease, reservation) = (pass.lease.take().map(Rc::new), pass.reservation.take());
        let has_answer = Rc::new(Cell::new(false));
        let (own, answered, call) = (lease.clone(), Rc::clone(&has_answer), hold.clone());
        let (renewals, handle) = abortable(async move {
            let Some(own) = own else { return };
            let every = Duration::from_micros(own.renew_every.0).max(Duration::from_millis(1));
            let began = now_ms();
            loop {
                Delay::from(every).await;
                if answered.get() || now_ms().saturating_sub(began) < LONGEST_WAIT_MS {
                    let Lease { policy, key, name, .. } = &*own;
                    drop(call_hold(&call, true, [policy, key, name], None)); // the next renewal does not wait for this one
                }
            }
        });
        match (&lease, &reservation) {
            (None, None) => return None,
            (None, Some(_)) => {}
            (Some(_), _) => spawn_local(renewals.map(|_: Result<(), _>| ())),
        }
        Some(Self { lease, reservation, hold, has_answer, renewals: handle })
    }

    /// Takes note that the answer has begun.
    pub(crate) fn answered(&mut self, answer: &Response) {
        self.has_answer.set(true);
        if let Some(reservation) = &mut self.reservation {
            let headers = answer.headers();
            reservation.meter.answered(answer.status(), &|name| {
                let value = headers.get(name).ok().flatten()?;
                // the runtime itself decodes these
                (name != "content-encoding" || !DECODED.contains(&&*value)).then_some(value)
            });
        }
    }

    /// The meter, if it reads the body of the answer.
    pub(crate) fn meter(&mut self) -> Option<&mut Meter> {
        let meter = self.reservation.as_mut().map(|reservation| &mut reservation.meter);
        meter.filter(|meter| meter.reads())
    }

    /// Ends the renewals, commits the reservation, and releases the lease.
    pub(crate) async fn end(mut self, end: AnswerEnd) {
        self.renewals.abort();
        let ended = match (self.reservation.take(), &self.lease) {
            (Some(reservation), _) => {
                let Reservation { policy, key, id, meter } = *reservation;
                call_hold(&self.hold, false, [&policy, &key, &id], Some(meter.finish(end)))
            }
            (None, Some(lease)) => {
                call_hold(&self.hold, false, [&lease.policy, &lease.key, &lease.name], None)
            }
            (None, None) => None,
        };
        if let Some(ended) = ended {
            let _ = JsFuture::from(ended).await; // a failure is in the log
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.renewals.abort(); // without an end the lease expires, and the reservation ends by itself
    }
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
