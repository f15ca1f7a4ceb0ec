//! The one policy of a limiter, out of whatever the caller has.

use std::sync::Arc;

use tidegate_gate::{Policies, Policy, PolicyError};

use crate::failure::Failure;

/// The name of a policy that was given without one.
const UNNAMED: &str = "policy";

/// Reads one policy, or a whole policy file and the one of it that `name` says; without a name
/// the only one.
pub(crate) fn read(text: &str, name: Option<&str>) -> Result<Arc<Policy>, Failure> {
    match (Policies::parse(text), name) {
        (Ok(file), _) => choose(&file, name),
        (Err(error), Some(_)) => Err(Failure::Policy(error)),
        (Err(error), None) if is_of_file(&error) => Err(Failure::Policy(error)),
        (Err(_), None) => Policy::parse(UNNAMED, text).map(Arc::new).map_err(Failure::Policy),
    }
}

/// Whether the fault lies where only a policy file has anything.
fn is_of_file(error: &PolicyError) -> bool {
    matches!(error.path.split('.').next(), Some("auth" | "policies"))
}

fn choose(file: &Policies, name: Option<&str>) -> Result<Arc<Policy>, Failure> {
    let found = match (name, file.all()) {
        (Some(name), _) => file.get(name),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    found.cloned().ok_or_else(|| {
        let names: Vec<&str> = file.all().iter().map(|policy| policy.name()).collect();
        Failure::UnknownPolicy(format!(
            "`options.policy`: expected one of {names:?}, found {}",
            name.map_or("none".into(), |name| format!("{name:?}")),
        ))
    })
}
