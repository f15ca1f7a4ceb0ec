//! Who decides for a limiter on Durable Objects: a node answers what its policy lets it answer, and
//! asks the objects for the rest. The Worker's crate sends the questions, and hands the replies in.

mod native;
mod tier;

use tidegate_gate::Policies;

use crate::policy;
pub(crate) use tier::Tier;

/// Reads a policy, or the policy `name` of a policy file, as the limiter did that asks about it.
///
/// # Errors
/// Returns what is wrong with it.
pub fn policy_of(name: &str, text: &str) -> Result<Policies, String> {
    let name = Some(name).filter(|name| !name.is_empty());
    let read = policy::read(text, name).map(|(policy, _)| Policies::from(policy));
    read.map_err(|failure| failure.message())
}
