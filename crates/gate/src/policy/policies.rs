//! All policies of a file.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::policy::Policy;
use super::routes::Gateway;
use super::source::{JoinedSources, KeySource};

/// A validated policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies {
    /// Sorted by name.
    pub(super) policies: Vec<Arc<Policy>>,
    pub(super) needs_token: bool,
    pub(super) gateway: Gateway,
}

/// The only policy of a file that says nothing else.
impl From<Arc<Policy>> for Policies {
    fn from(policy: Arc<Policy>) -> Self {
        Self { policies: vec![policy], needs_token: true, gateway: Gateway::default() }
    }
}

impl Policies {
    /// The same policies, which share with `earlier` what is equal. What is kept about a shared policy stays valid.
    #[must_use]
    pub fn sharing(mut self, earlier: &Self) -> Self {
        for policy in &mut self.policies {
            if let Some(same) = earlier.get(policy.name()).filter(|same| *same == policy) {
                *policy = Arc::clone(same);
            }
        }
        self
    }

    /// The policy of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Policy>> {
        let place = self.policies.binary_search_by(|policy| policy.name().cmp(name));
        place.ok().and_then(|place| self.policies.get(place))
    }

    /// All policies, sorted by name.
    #[must_use]
    pub fn all(&self) -> &[Arc<Policy>] {
        &self.policies
    }

    /// Whether requests must carry a token: yes, unless the file says `auth = "none"`.
    #[must_use]
    pub const fn needs_token(&self) -> bool {
        self.needs_token
    }

    /// What the file says of the gateway.
    #[must_use]
    pub const fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// What the file says of the gateway, without the policies.
    #[must_use]
    pub fn into_gateway(self) -> Gateway {
        self.gateway
    }

    /// The first policy whose keys need verified tokens, for a server that cannot verify them.
    #[must_use]
    pub fn needs_verification(&self) -> Option<&Arc<Policy>> {
        self.policies.iter().find(|policy| policy.key.iter().any(JoinedSources::needs_verification))
    }

    /// Whether the key of some policy depends on the client's country.
    #[must_use]
    pub fn reads_country(&self) -> bool {
        self.policies.iter().any(|policy| policy.reads(|source| *source == KeySource::Country))
    }
}
