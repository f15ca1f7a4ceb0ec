//! A store that keeps bytes by their names, as Redis and a Durable Object do.

use std::collections::BTreeMap;
use std::string::String;
use std::vec;
use std::vec::Vec;

use tidegate_core::Timestamp;

use crate::blob::{decode, encode, name};
use crate::decide::{Limits, Verdict};
use crate::limit::Operation;
use crate::policy::{Policy, Rule};

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
        let Rule::Limited(limits, key) = policy.rule(key) else { panic!("{key} is on a list") };
        let mut words = self.words(policy, limits, &key, now);
        let verdict = limits.operate(&mut words, now, &operation.into()).unwrap();
        for (record, words) in limits.split(&words) {
            self.0.insert(name(policy, record, &key), encode(policy, record, words));
        }
        verdict
    }

    /// The words of all parts of a canonical key.
    fn words(&self, policy: &Policy, limits: &Limits, key: &str, now: Timestamp) -> Vec<u64> {
        let words =
            limits.records().iter().map(|record| match self.0.get(&name(policy, record, key)) {
                Some(bytes) => decode(policy, record, bytes, now).unwrap(),
                None => vec![0; record.words()],
            });
        words.collect::<Vec<_>>().concat()
    }

    /// What could be granted at once.
    pub(super) fn remaining(&self, policy: &Policy, key: &str, now: Timestamp) -> u64 {
        self.clone().operate(policy, key, now, 0).decision.remaining()
    }
}
