//! The lease of a request that passes: it is renewed until the exchange with the upstream has ended.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{AbortHandle, abortable};
use js_sys::futures::{JsFuture, spawn_local};
use js_sys::{Date, Function, Promise};
use tidegate_http::Lease;
use wasm_bindgen::JsValue;
use worker::{Delay, Env};

use crate::clock::whole;
use crate::node::with;

/// The time for which a lease is renewed while the answer has not begun. The runtime does not notice that a client has closed
/// its connection in an orderly way until it writes something to that client.
const LONGEST_WAIT_MS: u64 = 600_000;

/// A lease that is held.
pub(crate) struct Held {
    lease: Rc<Questions>,
    has_answer: Rc<Cell<bool>>,
    renewals: AbortHandle,
}

/// What is asked of a lease.
struct Questions {
    lease: Lease,
    env: Env,
    /// Sends the questions that are due, and returns the calls.
    transmit: Function,
}

impl Held {
    /// Renews a lease from now on. `transmit` is that of `Isolate.forward`.
    pub(crate) fn begin(lease: Lease, env: Env, transmit: Function) -> Self {
        let every = Duration::from_micros(lease.renew_every.0).max(Duration::from_millis(1));
        let (lease, has_answer) =
            (Rc::new(Questions { lease, env, transmit }), Rc::new(Cell::new(false)));
        let (own, answered) = (Rc::clone(&lease), Rc::clone(&has_answer));
        let (renewals, handle) = abortable(async move {
            let began = now_ms();
            loop {
                Delay::from(every).await;
                if answered.get() || now_ms().saturating_sub(began) < LONGEST_WAIT_MS {
                    drop(own.ask(true)); // the next renewal does not wait for this one
                }
            }
        });
        spawn_local(renewals.map(|_: Result<(), _>| ()));
        Self { lease, has_answer, renewals: handle }
    }

    /// Takes note that the answer has begun.
    pub(crate) fn answered(&self) {
        self.has_answer.set(true);
    }

    /// Ends the renewals, and releases the lease.
    pub(crate) async fn release(self) {
        self.renewals.abort();
        if let Some(released) = self.lease.ask(false) {
            let _ = JsFuture::from(released).await; // a failure is in the log
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.renewals.abort(); // without a release the lease expires
    }
}

impl Questions {
    /// Asks for another term, or for the end of the lease. Returns what ends with the calls. If they fail, the lease expires.
    fn ask(&self, renews: bool) -> Option<Promise> {
        with(Date::now(), |node, now, at| node.hold(&self.lease, renews, now, at));
        let calls = self.transmit.call1(&JsValue::UNDEFINED, self.env.as_ref()).ok()?;
        Some(Promise::all(&calls))
    }
}

fn now_ms() -> u64 {
    whole(Date::now())
}
