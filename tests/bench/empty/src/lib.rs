//! A Worker in Rust that does nothing. It is built as the Worker of Tidegate is.

use wasm_bindgen::prelude::wasm_bindgen;

/// The body of the answer to a request with this URL.
#[wasm_bindgen]
#[must_use]
pub fn answer(url: String) -> String {
    url
}
