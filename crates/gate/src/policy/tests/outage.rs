//! What a policy may say of an outage.

use std::format;
use std::string::ToString;

use crate::{OnError, Policy};

const BUCKET: &str = "{ algorithm = 'token_bucket', capacity = 5, rate = '5/h' }";

fn parse(limits: &str, rest: &str) -> Result<Policy, std::string::String> {
    let text = format!("{rest}\nlimits = [{limits}]");
    Policy::parse("p", &text).map_err(|error| error.to_string())
}

#[test]
fn limits_that_can_be_divided_may_be_local() {
    for limits in [
        BUCKET,
        "{ algorithm = 'fixed_window', limit = 5, period = '1h', depth = 0 }",
        "{ algorithm = 'sliding_log', rates = ['5/h'] }",
        "{ algorithm = 'utilization' }",
        &format!(
            "{BUCKET}, {{ algorithm = 'penalty', refusals = 3, within = '1m', duration = '1m' }}"
        ),
        &format!(
            "{BUCKET}, {{ algorithm = 'fixed_window', limit = 1, period = '1h', shadow = true }}"
        ),
        &format!("{BUCKET}, {{ algorithm = 'budget', most = 5, time = '1m' }}"),
    ] {
        let policy = parse(limits, "on_error = 'local'");
        assert_eq!(policy.map(|policy| policy.on_error()), Ok(OnError::Local), "{limits}");
    }
    let rest = "on_error = 'local'\nlocal = { most = 1, time = '1s' }\nreservations = {}\nremember = '1s'\nnodes = 3";
    assert_eq!(parse(BUCKET, rest).unwrap().least_nodes(), Some(3));
}

#[test]
fn limits_that_cannot_be_divided_are_refused() {
    let two_payers = "{ algorithm = 'fixed_window', limit = 1, period = '1h', payer = true }, \
                      { algorithm = 'fixed_window', limit = 2, period = '1h', payer = true }";
    for (limits, found) in [
        ("{ algorithm = 'concurrency', capacity = 5, time_to_live = '1m' }", "found `concurrency`"),
        ("{ algorithm = 'connections', limit = 5, expiry = '1m' }", "found `connections`"),
        ("{ algorithm = 'suppression', rate = '5/s' }", "found `suppression`"),
        (two_payers, "expected under \"local\" no `payer`"),
    ] {
        let error = parse(limits, "on_error = 'local'").unwrap_err();
        assert!(
            error.contains("`on_error`: expected under \"local\"") && error.contains(found),
            "{error}"
        );
        assert!(parse(limits, "on_error = 'open'").is_ok(), "{limits}");
    }
}

#[test]
fn a_number_of_nodes_stands_beside_local_alone() {
    for rest in ["nodes = 3", "nodes = 3\non_error = 'open'", "nodes = 3\non_error = 'closed'"] {
        let error = parse(BUCKET, rest).unwrap_err();
        assert!(error.contains("`nodes`: expected `on_error = \"local\"` beside it"), "{error}");
    }
    let error = parse(BUCKET, "nodes = 0\non_error = 'local'").unwrap_err();
    assert!(error.contains("nodes: expected a whole number from 1"), "{error}");
}
