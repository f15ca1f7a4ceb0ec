//! Bounds on the limits that callers give with their requests.

use std::format;
use std::string::{String, ToString};
use std::sync::Arc;

use tidegate_core::{Micros, Timestamp};

use super::super::{CallLimits, CallLimitsError, MAX_CALL_LIMITS, Table};
use crate::limit::Operation;
use crate::policy::Policy;

const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

fn large() -> (Table, CallLimits, Arc<Policy>) {
    let text = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1h' }]";
    let table = Table::new(1 << 22, super::KeyHasher::new(1));
    let (table, policy) =
        table.counting_apart(&Policy::parse("p", text).unwrap()).unwrap().unwrap();
    (table, CallLimits::default(), policy)
}

fn of(limit: u64) -> String {
    format!(
        "{{\"limits\":[{{\"algorithm\":\"fixed_window\",\"limit\":{limit},\"period\":\"1h\"}}]}}"
    )
}

#[test]
fn the_number_of_different_limits_is_bounded() {
    let (mut table, mut call_limits, policy) = large();
    let mut last = NOW;
    let mut add = |limit: u64, later: u64| {
        last = NOW.saturating_add(Micros(later));
        let own = call_limits.policy(&mut table, &policy, &of(limit), last)?;
        assert!(table.decide(&own, &format!("key-{limit}"), last, 1).unwrap().is_allowed());
        Ok(table.len())
    };
    let most = u64::try_from(MAX_CALL_LIMITS).unwrap();
    for limit in 10..10 + most {
        add(limit, 0).unwrap();
    }
    assert_eq!(add(7, 0), Err(CallLimitsError::TooMany), "every one is in use");
    assert_eq!(add(10, 0), Ok(MAX_CALL_LIMITS), "a known one");
    assert_eq!(add(7, 3_600_000_000), Ok(1), "all others have expired");
    call_limits.clear();
    assert_eq!(call_limits.texts().count(), 0);
}

#[test]
fn a_count_that_is_too_large_for_a_smaller_limit_stays_with_the_larger_one() {
    let (mut table, mut call_limits, policy) = large();
    for (limit, units) in [(100, 50), (5, 1)] {
        let own = call_limits.policy(&mut table, &policy, &of(limit), NOW).unwrap();
        table.operate(&own, "k", NOW, Operation::Charge(units)).unwrap();
    }
    let dump = table.dump(&policy, &call_limits).unwrap();
    let text = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1h' }]";
    let written = Arc::new(Policy::parse("p", text).unwrap());
    let (restored, ..) = large().0.restored(&written, &dump).unwrap();
    assert_eq!(restored.len(), 1);
}

#[test]
fn a_text_may_have_4096_bytes() {
    let (mut table, mut call_limits, policy) = large();
    for (bytes, fits) in [(4_096, true), (4_097, false)] {
        let text = format!("{:bytes$}", of(5));
        assert_eq!(call_limits.policy(&mut table, &policy, &text, NOW).is_ok(), fits, "{bytes}");
    }
}

/// A limit that changes with the load takes a new number each time.
#[test]
fn one_count_takes_the_room_of_one_limit_however_often_its_number_changes() {
    let (mut table, mut call_limits, policy) = large();
    for limit in 10_000..20_000 {
        let own = call_limits.policy(&mut table, &policy, &of(limit), NOW).unwrap();
        assert!(table.decide(&own, "k", NOW, 1).unwrap().is_allowed());
    }
    assert_eq!(table.len(), 1);
    assert!(!table.decide(&policy, "k", NOW, 1).unwrap().is_allowed());
}

/// Otherwise a caller whose requests all fail could keep others from being asked under their limits.
#[test]
fn limits_without_a_state_take_no_room_from_others() {
    let (mut table, mut call_limits, policy) = large();
    let written = Arc::clone(&policy);
    let mut left = |limit: u64, cost: u64| {
        let own = call_limits.policy(&mut table, &policy, &of(limit), NOW).unwrap();
        let said = table.decide(&own, "k", NOW, cost).map(|said| said.remaining());
        (said, table.dump(&policy, &call_limits).unwrap())
    };
    let (_, empty) = left(1, 0);
    for limit in 1..2_500 {
        assert!(left(limit, 1_000_000).0.is_err());
        assert_eq!(left(limit, 0), (Ok(limit), empty.clone()));
    }
    assert_eq!(left(7_777, 1).0, Ok(7_776));
    for limit in 1..2_500 {
        let _ = left(limit, 0);
    }
    let (said, dump) = left(7_777, 1);
    assert_eq!(said, Ok(7_775), "they have a state");
    let (mut restored, _, policy) = large().0.restored(&written, &dump).unwrap();
    assert_eq!(restored.decide(&policy, "k", NOW, 3).unwrap().remaining(), 0, "2 were used before");
}

#[test]
fn limits_that_cannot_be_read_or_are_too_long_are_refused() {
    let (mut table, mut call_limits, policy) = large();
    for text in ["", "{", "{\"limits\":[]}", "{\"limits\":[],\"shadow\":true}", "[]", "\0"] {
        let error = call_limits.policy(&mut table, &policy, text, NOW).unwrap_err();
        assert!(matches!(error, CallLimitsError::Policy(_)), "{text:?}: {error}");
    }
    let long = of(5) + &" ".repeat(4_096);
    let error = call_limits.policy(&mut table, &policy, &long, NOW).unwrap_err();
    assert_eq!(error, CallLimitsError::Length(long.len()));
    assert!(error.to_string().starts_with("`limits`: expected at most 4096 bytes, found 4"));
}
