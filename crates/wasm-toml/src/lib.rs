//! TOML for the npm package `tidegate`, whose limiters read only JSON: a policy in TOML becomes JSON, and the place of an error in the
//! JSON leads back to the TOML. So the code that reads TOML is loaded only where it is used.

use std::hint::black_box;

use tidegate_form::{Error, Translation, toml};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

/// The memory that a byte of TOML takes at most while it is read.
const BYTES_PER_BYTE: usize = 256;

/// TOML as JSON in one line.
///
/// # Errors
/// Throws a text that `errors.js` reads, with the place in the TOML.
#[wasm_bindgen(js_name = fromToml)]
pub fn from_toml(text: &str) -> Result<String, JsValue> {
    require_memory(text.len())?;
    let text = without_mark(text);
    translated(text).map(|translation| translation.json).map_err(|error| thrown(text, &error))
}

/// The place in the TOML that corresponds to a column of its JSON: a line and a column, or nothing if the TOML cannot be read. Lines and
/// columns count from 1, columns in characters.
#[wasm_bindgen(js_name = placeInToml)]
#[must_use]
pub fn place_in_toml(text: &str, column: usize) -> Vec<usize> {
    let text = without_mark(text);
    let place = translated(text).map(|translation| translation.place(column, text));
    place.map_or_else(|_| Vec::new(), |(line, column)| vec![line, column])
}

fn translated(text: &str) -> Result<Translation, Error> {
    toml(text)?.as_json()
}

/// Some editors begin UTF-8 with this mark.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The code, the line, the column and the length of the path in UTF-16, each with a zero after it; then the path and the message. The
/// limiter throws the errors of a policy in the same form.
fn thrown(text: &str, error: &Error) -> JsValue {
    let (line, column) = error.line_and_column(text);
    let (path, message) = (error.path(), error.message("a table"));
    let (units, colon) = (path.encode_utf16().count(), if path.is_empty() { "" } else { ": " });
    JsValue::from_str(&format!(
        "INVALID_POLICY\0{line}\0{column}\0{units}\0{path}line {line}, column {column}: {path}{colon}{message}"
    ))
}

/// Checks that there is memory to read this many bytes, because a failed allocation would end the whole module.
fn require_memory(bytes: usize) -> Result<(), JsValue> {
    let mut needed: Vec<u8> = Vec::new();
    let reserved = needed.try_reserve_exact(bytes.saturating_mul(BYTES_PER_BYTE));
    black_box(needed); // otherwise the compiler removes the allocation
    reserved
        .map_err(|_| JsValue::from_str("TABLE_FULL\x000\x000\x000\0no memory is left to read TOML"))
}
