//! What a policy says of an outage: a time in which the store cannot be asked.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

use super::policy::{OnError, Policy};
use crate::decide::Limits;
use crate::limit::{Kind, Limit, NamedLimit};

/// Checks that nodes can decide by shares of these limits.
///
/// # Errors
/// The message names the first limit that has no shares.
pub(super) fn check(limits: &Limits) -> Result<(), String> {
    let expected = "`on_error`: expected under \"local\"";
    if let Some(payer) = limits.iter().find(|named| named.payer.is_some()) {
        return Err(format!(
            "{expected} no `payer`, because a share of several limits together is no share of each; found `{}`",
            payer.name
        ));
    }
    let has_shares = |named: &&NamedLimit| match named.limit {
        Limit::Penalty(_) | Limit::Utilization(_) => true, // each node has its own refusals, and its own signals
        ref limit => matches!(limit.kind(), Kind::Rate | Kind::Budget),
    };
    match limits.iter().find(|named| !has_shares(named)) {
        None => Ok(()),
        Some(named) => Err(format!(
            "{expected} only limits on units over time, `penalty` or `utilization`, because what is held or reported cannot be \
             divided among nodes that do not hear of each other; found `{}`",
            named.limit.algorithm()
        )),
    }
}

/// Checks that the number of nodes has a use.
pub(super) fn check_nodes(on_error: OnError, nodes: Option<u64>) -> Result<(), String> {
    let found = match on_error {
        OnError::Open => "open",
        OnError::Closed => "closed",
        OnError::Local => return Ok(()),
    };
    match nodes {
        Some(_) => Err(format!(
            "`nodes`: expected `on_error = \"local\"` beside it, because only then nodes share the limits; found \"{found}\""
        )),
        None => Ok(()),
    }
}

impl Policy {
    /// The least number of nodes among which the limits are divided in an outage; `None` if the policy does not say.
    #[must_use]
    pub const fn least_nodes(&self) -> Option<u64> {
        self.least_nodes
    }

    /// What an outage means, in words.
    ///
    /// ```
    /// use tidegate_gate::Policy;
    /// let policy = Policy::parse("api", r#"
    ///     limits = [{ algorithm = "token_bucket", capacity = 500, rate = "100/s" }]
    ///     on_error = "local"
    ///     nodes = 8
    /// "#).unwrap();
    /// let words = policy.describe_outage();
    /// assert!(words.starts_with("in an outage each node decides by its share of the limits"));
    /// assert!(words.contains("but at least 8"));
    /// ```
    #[must_use]
    pub fn describe_outage(&self) -> String {
        let nodes = match (self.on_error, self.least_nodes) {
            (OnError::Open, _) => return "in an outage a request passes".to_owned(),
            (OnError::Closed, _) => return "in an outage a request is refused".to_owned(),
            (OnError::Local, None) => {
                "the nodes last seen; a node that has seen none, such as an isolate of a Worker, refuses".to_owned()
            }
            (OnError::Local, Some(least)) => format!("the nodes last seen, but at least {least}"),
        };
        format!(
            "in an outage each node decides by its share of the limits, from what it last knew: they are divided by {nodes}; \
             in any period an outage costs at most one more limit"
        )
    }
}
