//! What the bindings of the Worker say: its secrets, its variables, and the classes of its objects.

use js_sys::Reflect;
use tidegate_gate::Micros;
use tidegate_http::Tokens;
use wasm_bindgen::JsValue;
use worker::Env;

use crate::clock::whole;
use crate::exchange::Telemetry;

/// How long an isolate goes by the policies that it knows before it asks for those in force.
const POLICIES_DELAY: Micros = Micros(5_000_000);

/// How long after a write an object looks for states that have expired. Each alarm costs a write, and deleting a
/// database that is soon made anew costs more, so this is much longer than most states last.
const ALARM_AFTER_MS: u64 = 300_000;

/// The bindings that an isolate reads at its first request.
pub(crate) struct Bindings {
    pub(crate) tokens: Tokens,
    pub(crate) log_secret: Option<String>,
    pub(crate) telemetry: Telemetry,
    pub(crate) trusts_caller_time: bool,
    pub(crate) policies_delay: Micros,
}

impl Bindings {
    /// Reads all of them.
    ///
    /// # Errors
    /// Returns what is wrong with a binding. No policy opens for want of one.
    pub(crate) fn read(env: &Env) -> Result<Self, String> {
        let [decisions, administration, log_secret] =
            ["TIDEGATE_TOKEN", "TIDEGATE_ADMIN_TOKEN", "TIDEGATE_LOG_SECRET"];
        let tokens = Tokens {
            decisions: secret(env, decisions)?,
            administration: secret(env, administration)?,
        };
        let log_secret = secret(env, log_secret)?;
        for objects in ["KEYS", "POLICIES"] {
            if value(env, objects).is_undefined() {
                return Err(format!(
                    "{objects}: expected the binding of the Durable Objects, found none"
                ));
            }
        }
        Ok(Self {
            tokens,
            log_secret,
            telemetry: Telemetry {
                events: !value(env, EVENTS).is_undefined(),
                timing: is_true(env, "TIDEGATE_SERVER_TIMING"),
            },
            trusts_caller_time: trusts_caller_time(env),
            policies_delay: millis(env, "TIDEGATE_POLICIES_DELAY_MS")?
                .map_or(POLICIES_DELAY, |millis| Micros(millis.saturating_mul(1_000))),
        })
    }
}

/// The dataset of Analytics Engine.
pub(crate) const EVENTS: &str = "TIDEGATE_EVENTS";

/// Whether operations are decided at the times that callers give. Only a test environment may do that.
pub(crate) fn trusts_caller_time(env: &Env) -> bool {
    is_true(env, "TIDEGATE_TRUST_CALLER_TIME")
}

/// After how many milliseconds the alarm of an object rings. Tests wait less than others.
pub(crate) fn alarm_after_ms(env: &Env) -> u64 {
    millis(env, "TIDEGATE_ALARM_AFTER_MS").ok().flatten().unwrap_or(ALARM_AFTER_MS)
}

/// A secret. Any other value than a text would have a text that everybody knows, such as `[object Object]`.
fn secret(env: &Env, name: &str) -> Result<Option<String>, String> {
    let value = value(env, name);
    match value.as_string() {
        None if !value.is_undefined() => {
            Err(format!("{name}: expected a text, found {}", found(&value)))
        }
        text => Ok(text),
    }
}

/// What a value is, without what it says.
pub(crate) fn found(value: &JsValue) -> String {
    format!("a value of type {}", value.js_typeof().as_string().unwrap_or_default())
}

/// The value of a binding; `undefined` if it is missing.
pub(crate) fn value(env: &Env, name: &str) -> JsValue {
    Reflect::get(env, &name.into()).unwrap_or_default()
}

fn is_true(env: &Env, name: &str) -> bool {
    let value = value(env, name);
    value.as_bool() == Some(true) || value.as_string().as_deref() == Some("true")
}

/// A variable in milliseconds, which a configuration may give as a number or as a text.
fn millis(env: &Env, name: &str) -> Result<Option<u64>, String> {
    let value = value(env, name);
    if value.is_null_or_undefined() {
        return Ok(None);
    }
    let text = value.as_string();
    let number = match &text {
        // as JavaScript reads a number, because Rust's own reader is 8 KB
        Some(text) => (!text.trim().is_empty()).then(|| value.unchecked_into_f64()),
        None => value.as_f64(),
    };
    match number {
        Some(number) if number >= 0.0 => Ok(Some(whole(number))),
        _ => {
            let found = text.unwrap_or_else(|| found(&value));
            Err(format!("{name}: expected milliseconds, found {found}"))
        }
    }
}
