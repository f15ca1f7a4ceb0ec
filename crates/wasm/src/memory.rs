//! The memory of the module.

use std::hint::black_box;

use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::failure::Failure;

/// Checks that there is memory to read a policy of this many characters, because a failed allocation would
/// end the whole module. Reading takes less memory than is checked for.
///
/// # Errors
/// Throws an `Error` with the code `TABLE_FULL` if there is too little memory.
#[wasm_bindgen(js_name = requireMemory)]
pub fn require_memory(characters: usize) -> Result<(), JsValue> {
    let mut needed: Vec<u8> = Vec::new();
    let bytes = characters.saturating_mul(BYTES_PER_CHARACTER).saturating_add(4 << 20);
    let reserved = needed.try_reserve_exact(bytes);
    black_box(needed); // otherwise the compiler removes the allocation
    Ok(reserved.map_err(|_| Failure::NoMemory)?)
}

/// The memory into which the addresses of a limiter point.
#[wasm_bindgen(js_name = moduleMemory)]
#[must_use]
pub fn module_memory() -> JsValue {
    wasm_bindgen::memory()
}

/// The memory that a character of a policy takes at most while the policy is read.
pub(crate) const BYTES_PER_CHARACTER: usize = 256;
