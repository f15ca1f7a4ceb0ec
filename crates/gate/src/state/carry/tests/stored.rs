//! A store that keeps bytes by their names, as Redis and a Durable Object do.

use std::collections::BTreeMap;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;

use tidegate_core::Timestamp;

use crate::decide::Verdict;
use crate::limit::Operation;
use crate::policy::{Policy, Resolved};
use crate::state::Transaction;

#[derive(Clone, Debug, Default)]
pub(super) struct Stored(pub(super) BTreeMap<String, Vec<u8>>);

impl Stored {
    pub(super) fn operate(
        &mut self,
        policy: &Policy,
        key: &str,
        now: Timestamp,
        operation: impl Into<Operation>,
    ) -> Verdict {
        let resolved = Resolved::new(&Arc::new(policy.clone()), key).unwrap();
        let mut transaction = Transaction::default();
        let joined = transaction.join(&resolved);
        let found: Vec<_> = transaction.names().map(|name| self.0.get(name).cloned()).collect();
        transaction.load(found);
        let answered = transaction.operate(&joined, now, &operation.into()).unwrap();
        let writes = transaction.writes().map(|write| (write.name.into(), write.bytes.into()));
        self.0.extend(writes);
        answered.verdict
    }

    /// What could be granted at once.
    pub(super) fn remaining(&self, policy: &Policy, key: &str, now: Timestamp) -> u64 {
        self.clone().operate(policy, key, now, 0).decision.remaining()
    }
}
