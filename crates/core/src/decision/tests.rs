use std::string::ToString;

use super::{CostExceedsCapacity, Decision, InvalidState};
use crate::Micros;

#[test]
fn a_refusal_says_in_which_second_to_come_again_or_that_none_helps() {
    let refused = |limit, retry_after| Decision::Deny {
        limit,
        remaining: 0,
        retry_after,
        reset_after: Micros::ZERO,
    };
    for (limit, wait, seconds, is_listed) in [
        (5, Micros(1), Some(1), false),
        (5, Micros(1_000_000), Some(1), false),
        (5, Micros(1_000_001), Some(2), false),
        (0, Micros(1), Some(1), false),
        (5, Micros::MAX, None, false), // a cheaper request may pass
        (0, Micros::MAX, None, true),
    ] {
        let decision = refused(limit, wait);
        assert_eq!(decision.retry_after_secs(), seconds, "{wait:?}");
        assert_eq!(decision.is_listed(), is_listed, "{limit} {wait:?}");
    }
    let allowed = Decision::Allow { limit: 0, remaining: 0, reset_after: Micros::MAX };
    assert!(allowed.retry_after_secs().is_none() && !allowed.is_listed());
}

#[test]
fn an_error_says_what_was_found() {
    let beyond = CostExceedsCapacity { cost: 6, capacity: 5 };
    let expected = "a cost of 6 can never be granted: the most at once is 5";
    assert_eq!(beyond.to_string(), expected);
    assert!(InvalidState.to_string().starts_with("the stored words are not a state"));
}
