//! What the Worker tells about itself: errors and events. JavaScript writes the log, because the bound on its lines must
//! outlive WebAssembly.

use std::time::Duration;

use js_sys::Promise;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use web_sys::WebSocket;
use worker::worker_sys::Context as JsContext;
use worker::{AnalyticsEngineDataPointBuilder, Context, Delay, Env};

use crate::bindings::EVENTS;
use crate::clock::number;
use crate::isolate::Isolate;
use crate::node::{Event, with};

#[wasm_bindgen(raw_module = "../tell.js")]
extern "C" {
    /// Writes a line about an error, or counts it if the last line is less than a second old. `undefined` is no cause.
    #[wasm_bindgen(js_name = logError)]
    pub(crate) fn log_error(what: &str, cause: &JsValue);
}

#[wasm_bindgen(raw_module = "../recovery.js")]
extern "C" {
    /// Says that WebAssembly is about to end. In a future no caller would learn of it.
    pub(crate) fn panicked();

    /// Closes both ends if WebAssembly ends before the promise, which is `true` once they have closed.
    pub(crate) fn guard(closed: &Promise, one: &WebSocket, other: &WebSocket);
}

/// Analytics Engine takes at most this many events of a request.
const MOST_EVENTS: usize = 25;

/// How long what is done after a response waits, so that the response has left.
pub(crate) const AFTER_RESPONSE: Duration = Duration::from_millis(1);

#[wasm_bindgen]
impl Isolate {
    /// Writes an event for each policy and outcome of an exchange, after its response. `took_us` is how long it took.
    pub fn tell(exchange: u32, env: Env, context: JsContext, took_us: f64, now_ms: f64) {
        let events = with(now_ms, |node, _, _| {
            node.exchanges.get_mut(&exchange).map(|own| own.events()).unwrap_or_default()
        });
        if events.is_empty() {
            return;
        }
        Context::new(context).wait_until(async move {
            Delay::from(AFTER_RESPONSE).await;
            if let Err(error) = write(&env, &events, took_us) {
                log_error("the events could not be written", &error.into());
            }
        });
    }
}

fn write(env: &Env, events: &[Event], took_us: f64) -> worker::Result<()> {
    let dataset = env.analytics_engine(EVENTS)?;
    for Event { policy, outcome, checks, cost } in events.iter().take(MOST_EVENTS) {
        AnalyticsEngineDataPointBuilder::new()
            .indexes([policy.as_str()])
            .blobs([policy.as_str(), outcome])
            .doubles([f64::from(*checks), number(*cost), took_us])
            .write_to(&dataset)?;
    }
    Ok(())
}
