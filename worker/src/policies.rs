//! The policy file, which each isolate reads once.

use std::sync::OnceLock;

use js_sys::Reflect;
use tidegate_gate::Policies;

static POLICIES: OnceLock<Result<Policies, String>> = OnceLock::new();

/// The policies of this Worker.
///
/// # Errors
/// Returns what is wrong with the policy file. The Worker serves nothing until the file is corrected.
pub(crate) fn policies() -> Result<&'static Policies, String> {
    POLICIES.get_or_init(read).as_ref().map_err(Clone::clone)
}

/// Reads the text of the file from the global variable in which `index.js` puts it.
fn read() -> Result<Policies, String> {
    let text = Reflect::get(&js_sys::global(), &"TIDEGATE_POLICIES".into())
        .ok()
        .and_then(|text| text.as_string())
        .ok_or("the policy file is not part of this Worker")?;
    Policies::parse(&text).map_err(|error| format!("policies.toml: {error}"))
}
