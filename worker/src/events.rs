//! The events of Analytics Engine: what was decided, by policy and outcome.

use wasm_bindgen::prelude::wasm_bindgen;
use worker::worker_sys::Context as JsContext;
use worker::{AnalyticsEngineDataPointBuilder, Context, Delay, Env};

use crate::bindings::EVENTS;
use crate::clock::{AFTER_RESPONSE, number};
use crate::exchanges::{Event, Running};
use crate::isolate::Isolate;
use crate::log::log_error;
use crate::node::with;

/// Analytics Engine takes at most this many events of a request.
const MOST_EVENTS: usize = 25;

#[wasm_bindgen]
impl Isolate {
    /// Writes an event for each policy and outcome of an exchange, after its response. `took_us` is how long it took.
    pub fn emit(exchange: u32, env: Env, context: JsContext, took_us: f64, now_ms: f64) {
        let events = with(now_ms, |node, _, _| {
            node.exchanges.get(exchange).map(Running::events).unwrap_or_default()
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
