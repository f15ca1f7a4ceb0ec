//! Windows that start at a key's first request, beside what `record.mjs` recorded of libraries that users come from.

use std::fs;

use serde::Deserialize;
use tidegate_gate::{Limit, Request, Timestamp};
use tidegate_tests::file;

use crate::SECOND;

/// What a library said of requests at a cost of 1.
#[derive(Deserialize)]
struct Recorded {
    library: String,
    limit: u64,
    period_s: u64,
    /// The time in ms, the number of requests in the window with this one, and the ms until its end.
    requests: Vec<(u64, u64, u64)>,
}

#[test]
fn windows_from_the_first_request_are_those_of_other_libraries() {
    let text = fs::read_to_string(file("differential/first.json")).unwrap();
    let recorded: Vec<Recorded> = serde_json::from_str(&text).unwrap();
    assert_eq!(recorded.len(), 8);
    for Recorded { library, limit, period_s, requests } in recorded {
        let own = Limit::from_parameters(&[2, limit, period_s * SECOND, 1]).unwrap();
        let mut words = vec![0; own.words()];
        let mut refused = 0;
        for (place, (at_ms, count, until_end_ms)) in requests.into_iter().enumerate() {
            let at = Timestamp(at_ms * 1_000);
            let decision = own.decide(&mut words, at, &Request::of(1)).unwrap();
            let wait = if count > limit { until_end_ms * 1_000 } else { 0 };
            let found = (
                decision.is_allowed(),
                decision.remaining(),
                decision.retry_after().0,
                decision.reset_after().0,
            );
            let expected =
                (count <= limit, limit.saturating_sub(count), wait, until_end_ms * 1_000);
            assert_eq!(found, expected, "{library}, {limit} in {period_s} s, request {place}");
            refused += u32::from(count > limit);
        }
        assert!(refused > 30, "{library}, {limit} in {period_s} s: {refused} refusals");
    }
}
