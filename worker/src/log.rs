//! The log of errors. JavaScript writes it, because the bound on its lines must outlive WebAssembly.

use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen(raw_module = "../log.js")]
extern "C" {
    /// Writes a line about an error, or counts it if the last line is less than a second old. `undefined` is no cause.
    #[wasm_bindgen(js_name = logError)]
    pub(crate) fn log_error(what: &str, cause: &JsValue);
}
