//! The end of WebAssembly by a panic or a trap: JavaScript learns of it and lets a new instance begin.

use std::panic;

use wasm_bindgen::handler::set_on_abort;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::log::log_error;

#[wasm_bindgen(raw_module = "../recovery.js")]
extern "C" {
    /// Lets WebAssembly begin anew.
    fn ended();
}

/// Called once by each instance of WebAssembly, before all else. The crate `worker` has set handlers of its own, which
/// would log without a bound and begin anew without a word to JavaScript.
#[wasm_bindgen]
pub fn watch() {
    panic::set_hook(Box::new(|panic| {
        log_error("WebAssembly begins anew", &panic.to_string().into());
    }));
    set_on_abort(ended);
}
