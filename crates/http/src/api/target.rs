//! The policy and the key that a call is about.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_gate::{Ask, Bounded, Chance, Policies, Policy, Quoted, Timestamp};

use crate::answer::problem::{self, Problem};
use crate::check::Check;
use crate::plan::Plan;
use crate::response::Response;

/// The policy, key and time of an operation.
pub(super) struct Target {
    pub(super) policy: String,
    pub(super) key: String,
    pub(super) now_us: Option<Bounded<0>>,
}

impl Target {
    pub(super) fn plan(
        self,
        policies: &Policies,
        ask: Ask,
        random: Chance<'_>,
    ) -> Result<Plan, Response> {
        let check = self.check(policies, ask, random, "")?;
        Ok(Plan::of_one(check))
    }

    /// `at` is the place in the body that an error names.
    pub(super) fn check(
        self,
        policies: &Policies,
        ask: Ask,
        random: Chance<'_>,
        at: &str,
    ) -> Result<Check, Response> {
        let policy = find(policies, &self.policy, at)?;
        let asked =
            ask.resolve(policy, &self.key, random).map_err(|error| problem::of(&error, at))?;
        Ok(Check { asked, now: self.now_us.map(|now| Timestamp(now.get())), draw: None })
    }
}

/// The policy of this name.
pub(super) fn find<'a>(
    policies: &'a Policies,
    name: &str,
    at: &str,
) -> Result<&'a Arc<Policy>, Response> {
    policies.get(name).ok_or_else(|| {
        let names = policies.all().iter().map(|policy| policy.name()).take(20);
        let names = names.collect::<Vec<_>>().join(", ");
        let found = Quoted(name);
        let detail = alloc::format!("{at}`policy`: expected one of {names}; found {found}");
        Problem::UnknownPolicy.response(detail)
    })
}
