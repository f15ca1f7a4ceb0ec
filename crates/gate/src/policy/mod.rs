//! Policies: what is limited, by what, and what an outage means.

mod error;
mod file;
#[cfg(test)]
mod tests;
mod units;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Deserialize;
use tidegate_core::Micros;

use crate::fnv::fnv1a;
use crate::key::KeySource;
use crate::limit::Limit;
pub use error::PolicyError;
pub(crate) use units::Whole;

/// A validated policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies {
    /// Sorted by name.
    policies: Vec<Policy>,
    needs_token: bool,
}

impl Policies {
    /// Reads a policy file: TOML, or JSON of the same shape if it begins with `{`.
    ///
    /// # Errors
    /// [`PolicyError`], with the place in the file.
    ///
    /// ```
    /// use tidegate_gate::Policies;
    /// let policies = Policies::parse(r#"
    ///     [policies.api]
    ///     limits = [{ algorithm = "token_bucket", capacity = 500, rate = "100/s" }]
    /// "#).unwrap();
    /// assert_eq!(policies.get("api").unwrap().most_at_once(), 500);
    ///
    /// let error = Policies::parse("[policies.api]\nlimits = []").unwrap_err();
    /// assert_eq!((error.line, error.path.as_str()), (1, "policies.api"));
    /// ```
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        file::parse::<file::File>(text).map(Self::from)
    }

    fn from_named(policies: BTreeMap<file::Name, Policy>, needs_token: bool) -> Self {
        let policies = policies.into_iter().map(|(name, policy)| policy.named(name)).collect();
        Self { policies, needs_token }
    }

    /// The policy of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Policy> {
        self.index_of(name).and_then(|index| self.policies.get(index))
    }

    /// The place of the policy of that name in [`all`](Self::all).
    #[must_use]
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.policies.binary_search_by(|policy| policy.name().cmp(name)).ok()
    }

    /// All policies, sorted by name.
    #[must_use]
    pub fn all(&self) -> &[Policy] {
        &self.policies
    }

    /// Whether requests must carry a token: so unless the file says `auth = "none"`.
    #[must_use]
    pub const fn needs_token(&self) -> bool {
        self.needs_token
    }
}

/// A validated policy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "file::PolicyForm")]
pub struct Policy {
    name: String,
    description: Option<String>,
    limits: Vec<NamedLimit>,
    words: usize,
    period: Micros,
    fingerprint: u64,
    key: Vec<KeySource>,
    cost: Cost,
    on_error: OnError,
    placement: Placement,
}

/// A limit with the name that headers and reports call it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLimit {
    /// Letters, digits, `_`, `-` and `.`.
    pub name: String,
    /// The limiter.
    pub limit: Limit,
}

/// What a request costs that does not say so itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cost {
    /// Always this much.
    Fixed(u64),
    /// What a header of the request says.
    Header {
        /// Its name in lower case.
        name: String,
        /// For a request without it.
        default: u64,
    },
}

/// What a request gets when the store cannot be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// It passes.
    Open,
    /// It does not.
    #[default]
    Closed,
}

/// Which Durable Object a key belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
#[non_exhaustive]
pub enum Placement {
    /// One of its own.
    #[default]
    Key,
    /// One of so many, by a hash of the key.
    Shard(u32),
}

impl Policy {
    /// Reads a single policy, the table that a file has under `policies.NAME`.
    ///
    /// # Errors
    /// [`PolicyError`], with the place in the text.
    pub fn parse(name: &str, text: &str) -> Result<Self, PolicyError> {
        let policy: Self = file::parse(text)?;
        let name = file::Name::try_from(String::from(name)).map_err(PolicyError::at_start)?;
        Ok(policy.named(name))
    }

    /// A policy of these limits alone, for a runtime that decides and reads no policy file.
    ///
    /// # Errors
    /// What is wrong with their number.
    pub fn of_limits(limits: Vec<Limit>) -> Result<Self, String> {
        file::PolicyForm::of_limits(limits).try_into()
    }

    fn named(mut self, name: file::Name) -> Self {
        self.name = name.into();
        if let [only] = self.limits.as_mut_slice()
            && only.name.is_empty()
        {
            only.name.clone_from(&self.name);
        }
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is for.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Its limits, at least one.
    #[must_use]
    pub fn limits(&self) -> &[NamedLimit] {
        &self.limits
    }

    /// A state for a key never seen: this many zeros.
    #[must_use]
    pub const fn words(&self) -> usize {
        self.words
    }

    /// The longest period of its limits.
    #[must_use]
    pub const fn period(&self) -> Micros {
        self.period
    }

    /// A number that changes with the limits.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Where a gateway finds the key: the first that the request has.
    #[must_use]
    pub fn key_sources(&self) -> &[KeySource] {
        &self.key
    }

    /// What a request costs that does not say so itself.
    #[must_use]
    pub const fn cost(&self) -> &Cost {
        &self.cost
    }

    /// What a request gets when the store cannot be asked.
    #[must_use]
    pub const fn on_error(&self) -> OnError {
        self.on_error
    }

    /// Which Durable Object a key belongs to.
    #[must_use]
    pub const fn placement(&self) -> Placement {
        self.placement
    }

    /// The name of the Durable Object that a key belongs to. No two policies share one: their
    /// names have neither `:` nor `#` in them.
    #[must_use]
    pub fn object_name(&self, key: &str) -> String {
        let name = &self.name;
        match self.placement {
            Placement::Key => alloc::format!("{name}:{key}"),
            Placement::Shard(shards) => {
                let shard = fnv1a(key.bytes()).checked_rem(shards.into()).unwrap_or(0);
                alloc::format!("{name}#{shard}")
            }
        }
    }
}
