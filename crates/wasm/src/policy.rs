//! The policy of a limiter, from one policy or from a policy file.

use std::sync::Arc;

use tidegate_gate::{
    Gateway, Kind, Limits, NamedLimit, Policies, Policy, PolicyError, Quoted, Rule,
};

use crate::failure::Failure;

/// The name of a policy without a name.
pub(crate) const UNNAMED: &str = "policy";

/// Reads one policy, or the policy `name` of a policy file. Without a name, the file must have only one
/// policy. Also returns what the file says about the sources of keys.
pub(crate) fn read(text: &str, name: Option<&str>) -> Result<(Arc<Policy>, Gateway), Failure> {
    match (Policies::parse(text), name) {
        (Ok(file), _) => Ok((choose(&file, name)?, file.into_gateway())),
        (Err(error), Some(_)) => Err(Failure::Policy(error)),
        (Err(of_file), None) => match Policy::parse(UNNAMED, text) {
            Ok(policy) => Ok((Arc::new(policy), Gateway::default())),
            Err(error) if is_of_file(&of_file) || is_of_file(&error) => {
                Err(Failure::Policy(of_file))
            }
            Err(error) => Err(Failure::Policy(error)),
        },
    }
}

/// Whether the error is in a field that only a policy file has.
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
            name.map_or("none".into(), |name| Quoted(name).to_string()),
        ))
    })
}

/// The names of the limits of a rule, and beside each the version of its time zone's data or nothing, for JavaScript to split at zeros.
pub(crate) fn limit_names(policy: &Policy, rule: usize) -> String {
    let limits = policy.limits_of_rule(rule).into_iter().flat_map(Limits::iter);
    let texts = limits.flat_map(|NamedLimit { name, limit, .. }| {
        [name.as_str(), "\0", limit.zone_version().unwrap_or_default(), "\0"]
    });
    texts.collect()
}

/// Whether the key has a limit of this kind.
pub(crate) fn has(policy: &Policy, key: &str, kind: Kind) -> bool {
    match policy.rule(key) {
        Rule::Limited(limits, _) => limits.iter().any(|each| each.limit.kind() == kind),
        Rule::Listed(_) => false,
    }
}
