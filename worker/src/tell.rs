//! What the Worker tells of errors. JavaScript writes the log, because the bound on its lines must
//! outlive WebAssembly.

use std::time::Duration;

use js_sys::Promise;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use web_sys::WebSocket;

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

/// How long what is done after a response waits, so that the response has left.
pub(crate) const AFTER_RESPONSE: Duration = Duration::from_millis(1);
