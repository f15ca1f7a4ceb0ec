//! Reads any text as a policy file. The result is an error that can be shown, or policies that decide.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_gate::{Id, Policies, Request, Timestamp};

fuzz_target!(|text: &str| {
    match Policies::parse(text) {
        Ok(policies) => {
            for policy in policies.all() {
                assert_eq!(policies.get(policy.name()), Some(policy));
                let own = policy.overrides().iter().map(|(_, limits)| limits);
                for limits in own.chain([policy.limits()]) {
                    let mut words = vec![0; limits.words()];
                    let lease = Some(Id([1, 1]));
                    let most = Request { lease, ..Request::of(limits.capacity()) };
                    assert!(limits.decide(&mut words, Timestamp(0), &most).is_ok());
                    for (part, words) in limits.split(&words) {
                        assert!(part.accepts(words).is_ok());
                    }
                }
            }
        }
        Err(error) => {
            assert!(error.line <= text.matches('\n').count() + 1, "{error}");
            assert!(!error.to_string().is_empty());
        }
    }
});
