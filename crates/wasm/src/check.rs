//! What the command `tidegate check` says of a policy file, in the words of the native command.

use tidegate_gate::{Policies, describe, describe_routes};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::failure::Failure;

/// Describes a policy file: its description, and then the warnings about it.
///
/// # Errors
/// Throws a text that `errors.js` reads, with the place of what is wrong.
#[wasm_bindgen]
pub fn described(text: &str) -> Result<Vec<String>, JsValue> {
    let policies = Policies::parse(text).map_err(Failure::Policy)?;
    let routes = describe_routes(policies.gateway()).map(|routes| routes + "\n");
    let each = policies.all().iter().map(|policy| describe(policy));
    let mut said = vec![routes.into_iter().chain(each).collect()];
    for policy in policies.all() {
        let warnings = policies.warnings_about(policy).into_iter();
        said.extend(warnings.map(|warning| format!("policies.{}: {warning}", policy.name())));
    }
    Ok(said)
}
