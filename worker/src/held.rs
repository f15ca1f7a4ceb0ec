//! The lease of a request that passes: it is renewed until the exchange with the upstream has ended.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{AbortHandle, abortable};
use js_sys::futures::{JsFuture, spawn_local};
use js_sys::{Array, Date, Function, Promise};
use tidegate_http::Lease;
use wasm_bindgen::{JsCast as _, JsValue};
use worker::Delay;

/// The time for which a lease is renewed while the answer has not begun. The runtime does not notice that a client has closed
/// its connection in an orderly way until it writes something to that client.
const LONGEST_WAIT_MS: u64 = 600_000;

/// A lease that is held.
pub(crate) struct Held {
    lease: Rc<Lease>,
    hold: Function,
    has_answer: Rc<Cell<bool>>,
    renewals: AbortHandle,
}

impl Held {
    /// Renews a lease from now on. `hold` is that of `Isolate.forward`.
    pub(crate) fn begin(lease: Lease, hold: Function) -> Self {
        let every = Duration::from_micros(lease.renew_every.0).max(Duration::from_millis(1));
        let (lease, has_answer) = (Rc::new(lease), Rc::new(Cell::new(false)));
        let (own, answered, call) = (Rc::clone(&lease), Rc::clone(&has_answer), hold.clone());
        let (renewals, handle) = abortable(async move {
            let began = now_ms();
            loop {
                Delay::from(every).await;
                if answered.get() || now_ms().saturating_sub(began) < LONGEST_WAIT_MS {
                    drop(call_hold(&call, true, &own)); // the next renewal does not wait for this one
                }
            }
        });
        spawn_local(renewals.map(|_: Result<(), _>| ()));
        Self { lease, hold, has_answer, renewals: handle }
    }

    /// Takes note that the answer has begun.
    pub(crate) fn answered(&self) {
        self.has_answer.set(true);
    }

    /// Ends the renewals, and releases the lease.
    pub(crate) async fn release(self) {
        self.renewals.abort();
        if let Some(released) = call_hold(&self.hold, false, &self.lease) {
            let _ = JsFuture::from(released).await; // a failure is in the log
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.renewals.abort(); // without a release the lease expires
    }
}

fn call_hold(hold: &Function, renews: bool, lease: &Lease) -> Option<Promise> {
    let Lease { policy, key, name, .. } = lease;
    let arguments = Array::of4(&renews.into(), &policy.into(), &key.into(), &name.into());
    hold.apply(&JsValue::UNDEFINED, &arguments).ok()?.dyn_into().ok()
}

fn now_ms() -> u64 {
    crate::clock::whole(Date::now())
}
