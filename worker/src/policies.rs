//! The policy file, read once in the life of an isolate.

use std::sync::OnceLock;

use js_sys::Reflect;
use tidegate_gate::Policies;

static POLICIES: OnceLock<Result<Policies, String>> = OnceLock::new();

/// # Errors
/// What is wrong with the policy file; the Worker serves nothing until it is mended.
pub(crate) fn policies() -> Result<&'static Policies, String> {
    POLICIES.get_or_init(read).as_ref().map_err(Clone::clone)
}

/// `index.js` puts the file's text there.
fn read() -> Result<Policies, String> {
    let text = Reflect::get(&js_sys::global(), &"TIDEGATE_POLICIES".into())
        .ok()
        .and_then(|text| text.as_string())
        .ok_or("the policy file is not part of this Worker")?;
    Policies::parse(&text).map_err(|error| format!("policies.toml: {error}"))
}
