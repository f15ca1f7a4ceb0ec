//! The variables of a Worker, and what its bindings are.

use js_sys::Reflect;
use wasm_bindgen::JsValue;
use worker::Env;

use crate::clock::whole;

/// How long after a write an object looks for states that have expired. Each alarm costs a write, and deleting a
/// database that is soon made anew costs more, so this is much longer than most states last.
const ALARM_AFTER_MS: u64 = 300_000;

/// Whether operations are decided at the times that callers give. Only a test environment may do that.
pub(crate) fn trusts_caller_time(env: &Env) -> bool {
    is_true(env, "TIDEGATE_TRUST_CALLER_TIME")
}

/// After how many milliseconds the alarm of an object rings. Tests wait less than others.
pub(crate) fn alarm_after_ms(env: &Env) -> u64 {
    millis(env, "TIDEGATE_ALARM_AFTER_MS").ok().flatten().unwrap_or(ALARM_AFTER_MS)
}

/// The value of a binding; `undefined` if it is missing.
pub(crate) fn value(env: &Env, name: &str) -> JsValue {
    Reflect::get(env, &name.into()).unwrap_or_default()
}

pub(crate) fn is_true(env: &Env, name: &str) -> bool {
    let value = value(env, name);
    value.as_bool() == Some(true) || value.as_string().as_deref() == Some("true")
}

/// A variable in milliseconds, which a configuration may give as a number or as a text.
pub(crate) fn millis(env: &Env, name: &str) -> Result<Option<u64>, String> {
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
            let found = match text {
                Some(text) if text.trim().is_empty() => "a blank text".to_owned(),
                Some(text) => text,
                None => found(&value),
            };
            Err(format!("{name}: expected milliseconds, found {found}"))
        }
    }
}

/// The type of a value, for an error that must not show the value.
pub(crate) fn found(value: &JsValue) -> String {
    format!("a value of type {}", value.js_typeof().as_string().unwrap_or_default())
}
