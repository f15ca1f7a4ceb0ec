//! Any text as a policy file: an error that can be shown, or policies that decide.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_gate::{Policies, Timestamp};

fuzz_target!(|text: &str| {
    match Policies::parse(text) {
        Ok(policies) => {
            for policy in policies.all() {
                assert_eq!(policies.get(policy.name()), Some(policy));
                let mut words = vec![0; policy.words()];
                let decision = policy.decide(&mut words, Timestamp(0), policy.most_at_once());
                assert!(decision.is_ok_and(|decision| decision.is_allowed()));
                assert!(policy.accepts(&words).is_ok());
            }
        }
        Err(error) => {
            assert!(error.line <= text.matches('\n').count() + 1, "{error}");
            assert!(!error.to_string().is_empty());
        }
    }
});
