//! Errors in a limit.

use crate::policy::{Policies, Policy};

#[test]
fn errors_name_the_place_and_what_was_expected_and_what_was_found() {
    let rate = (3, "policies.api.limits[0].rate");
    let bucket =
        |rate: &str| std::format!("algorithm = 'token_bucket', capacity = 5, rate = {rate}");
    for (found, message) in [
        ("'0/s'", "expected a whole number above 0, a slash and a span"),
        ("'-1/s'", "found \"-1/s\""),
        ("'+1/s'", "found \"+1/s\""),
        ("'1.5/s'", "found \"1.5/s\""),
        ("'NaN/s'", "found \"NaN/s\""),
        ("'9007199254740992/s'", "found \"9007199254740992/s\""),
        ("'99999999999999999999999/s'", "found"),
        ("'1/s/s'", "found"),
        ("'1/fortnight'", "found"),
        ("'1/0s'", "found"),
        ("'1/999999d'", "found"),
        ("'/s'", "found"),
        ("''", "found"),
        ("5", "expected a string, found the integer `5`"),
    ] {
        check(&bucket(found), rate, message);
    }
    let capacity = (3, "policies.api.limits[0].capacity");
    for found in ["0", "-5", "1.5", "nan", "inf", "'5'", "9007199254740992"] {
        let limit = std::format!("algorithm = 'token_bucket', capacity = {found}, rate = '1/s'");
        check(&limit, capacity, "expected a whole number from 1 to 9007199254740991");
    }
    let limit = (3, "policies.api.limits[0]");
    for (found, message) in [
        ("algorithm = 'token_bucket', rate = '1/s'", "missing field `capacity`"),
        (
            "algorithm = 'fixed_window', limit = 5, period = '1s', start = 'empty'",
            "`start`: expected \"aligned\" or \"first\" for `fixed_window`, found \"empty\"",
        ),
        (
            "algorithm = 'token_bucket', capacity = 5, rate = '1/s', start = 'first'",
            "`start`: expected \"full\" or \"empty\" for `token_bucket`, found \"first\"",
        ),
        (
            "algorithm = 'sliding_window', limit = 5, period = '1s', segments = 7",
            "`segments`: expected a number that divides the period 1s into whole microseconds, found 7; \
             the nearest period that 7 divides is 999999us",
        ),
        (
            "algorithm = 'fleet_usage', capacity = 10, reserve = '95%', time_to_live = '1m'",
            "`reserve`: expected 0.0001% to 90%, found 95%",
        ),
        (
            "algorithm = 'utilization', good = '80.5%', bad = '70%'",
            "`good`: expected 0% < good ≤ bad < 100%, found good = 80.5% and bad = 70%",
        ),
        (
            "algorithm = 'utilization', delay = '9000000000s', full = '9000000000s'",
            "because exact 64-bit arithmetic cannot hold more beside the other values; found",
        ),
        (
            "algorithm = 'penalty', refusals = 1, within = '1m', duration = '5m', max = '90s'",
            "`max`: expected 5m to 285 years, found 90s",
        ),
        (
            "algorithm = 'penalty', refusals = 1, within = '1m', duration = '100000d', \
             forgive_after = '100000d'",
            "`forgive_after`: expected at most 367199254740991us, because exact 64-bit arithmetic cannot \
             hold more beside the other values; found 100000d",
        ),
        (
            "algorithm = 'token_bucket', capacity = 9_007_199_254_740_991, rate = '7/d'",
            "expected at most 729",
        ),
        ("algorithm = 'sliding_window', limit = 5, period = '1s', segments = 500", "1 to 120"),
        ("algorithm = 'sliding_window', limit = 5, period = '1s', segments = 0", "1 to 120"),
        ("limit = 5", "missing field `algorithm`"),
    ] {
        check(found, limit, message);
    }
    check(
        "algorithm = 'leaky', limit = 5",
        (3, "policies.api.limits[0].algorithm"),
        "expected one of `token_bucket`, `fixed_window`, `sliding_window`, ",
    );
    check(
        "algorithm = 'fixed_window', limt = 5, period = '1s'",
        (3, "policies.api.limits[0].limt"),
        "expected one of `algorithm`, `name`, `depth`, `shadow`, `warn_at`, `payer`, `limit`, `period`, `start`; \
         found the field \"limt\"",
    );
    check(
        "algorithm = 'fixed_window', limit = 5, rate = '1/s', period = '1s'",
        (3, "policies.api.limits[0].rate"),
        "`payer`, `limit`, `period`, `start`; found the field \"rate\"",
    );
    check(
        "algorithm = 'fixed_window', limits = []",
        (3, "policies.api.limits[0].limits"),
        "; found the field \"limits\"",
    );
    check("limt = 5", (3, "policies.api.limits[0].limt"), "`forgive_after`, `timezone`, ");
    check(
        "algorithm = 'fixed_window', limit = 5, period = '1s', name = 'a b'",
        (3, "policies.api.limits[0].name"),
        "expected a name of 1 to 64 letters, digits, `_`, `-` and `.`; found \"a b\"",
    );
    for depth in ["-1", "256", "1.5"] {
        check(
            &std::format!("algorithm = 'fixed_window', limit = 5, period = '1s', depth = {depth}"),
            (3, "policies.api.limits[0].depth"),
            "expected a whole number from 0 to 255",
        );
    }
}

/// Reads a file with this limit on line 3, and checks the place and the message of the error.
#[track_caller]
fn check(limit: &str, place: (usize, &str), message: &str) {
    let text = std::format!("[policies.api]\nlimits = [\n  {{ {limit} }},\n]\n");
    let error = Policies::parse(&text).expect_err(limit);
    assert_eq!((error.line, error.path.as_str()), place, "{error}");
    assert!(error.message.contains(message), "{error}");
    assert!(error.column > 0);
}

#[test]
fn errors_in_a_calendar_name_the_place_and_what_was_expected() {
    let limit = (3, "policies.api.limits[0]");
    for (fields, place, message) in [
        (
            "period = '1d'",
            limit,
            "`period`: expected \"day\", \"week\", \"month\", \"quarter\" or \"year\" for `calendar`, found \"1d\"",
        ),
        ("timezone = 'UTC'", limit, "missing field `period`"),
        (
            "period = 'month', timezone = 'Europe/Madird'",
            limit,
            "`timezone`: expected a time zone such as \"Europe/Madrid\", or \"UTC\", found \"Europe/Madird\"",
        ),
        ("period = 'month', timezone = 'europe/madrid'", limit, "`timezone`: expected a time zone"),
        ("period = 'month', timezone = ''", limit, "expected a time zone"),
        ("period = 'month', timezone = 'a b'", limit, "found \"a b\""),
        (
            "period = 'month', week_start = 'monday'",
            limit,
            "`week_start`: expected no such field with `period = \"month\"`",
        ),
        ("period = 'week', week_start = 'mon'", limit, "found \"mon\""),
        (
            "period = 'week', anchor = 3",
            limit,
            "`anchor`: expected no such field with `period = \"week\"`",
        ),
        (
            "period = 'month', anchor = 32",
            (3, "policies.api.limits[0].anchor"),
            "expected a day from 1 to 31",
        ),
        ("period = 'month', anchor = '04-06'", limit, "`anchor`: expected a day from 1 to 31 with"),
        (
            "period = 'year', anchor = 6",
            limit,
            "`anchor`: expected a month and a day such as \"04-06\" with",
        ),
        (
            "period = 'year', anchor = '02-30'",
            (3, "policies.api.limits[0].anchor"),
            "found the string \"02-30\"",
        ),
        (
            "period = 'year', anchor = '4-6'",
            (3, "policies.api.limits[0].anchor"),
            "found the string \"4-6\"",
        ),
        (
            "period = 'month', zone_data = '2026b 0+0 9'",
            limit,
            "`zone_data`: expected no such field, because UTC needs none",
        ),
        (
            "period = 'month', timezone = 'Asia/Tokyo', zone_data = '2026b 9'",
            limit,
            "expected what `tidegate check --compile` writes",
        ),
        (
            "period = 'month', timezone = 'Asia/Tokyo', zone_data = '2026b 9+0 9'",
            limit,
            "found \"2026b 9+0 9\"",
        ),
        ("period = 'month', timezone = 'Asia/Tokyo', zone_data = ''", limit, "found"),
        (
            "period = 'month', timezone = 'Asia/Tokyo', zone_data = '2026b 0+93600 9'",
            limit,
            "found",
        ),
        (
            "period = 'month', timezone = 'Asia/Tokyo', zone_data = '2026b 0+99999999999 9'",
            limit,
            "found",
        ),
        (
            "period = 'month', timezone = 'Asia/Tokyo', zone_data = '2026b 0+0 99999999999'",
            limit,
            "found",
        ),
        (
            "period = 'month', segments = 3",
            (3, "policies.api.limits[0].segments"),
            "`week_start`, `zone_data`; found the field \"segments\"",
        ),
    ] {
        check(&std::format!("algorithm = 'calendar', limit = 5, {fields}"), place, message);
    }
    check(
        "algorithm = 'fixed_window', limit = 5, period = 'day'",
        limit,
        "`period`: expected a span of time such as \"1d\" for `fixed_window`, found \"day\"; `calendar` has such periods",
    );
}

#[test]
fn spans_are_taken_in_several_units_and_with_decimals() {
    let period = |span: &str| {
        let limit = std::format!("algorithm = 'fixed_window', limit = 1, period = '{span}'");
        Policy::parse("p", &std::format!("limits = [{{ {limit} }}]"))
            .map(|policy| policy.limits().iter().next().unwrap().limit.period().0)
            .map_err(|error| error.message)
    };
    for (span, micros) in [
        ("90s", 90_000_000),
        ("4 s", 4_000_000),
        ("1.5s", 1_500_000),
        ("1m30s", 90_000_000),
        ("1min 30 s", 90_000_000),
        ("1h0m0.25s", 3_600_250_000),
        ("1d1us", 86_400_000_001),
        ("0.000001s", 1),
        ("0.0010 ms", 1),
        ("0.5d", 43_200_000_000),
        ("9007199254740.991ms", 9_007_199_254_740_991),
        ("9007199254s740.991ms", 9_007_199_254_740_991),
    ] {
        assert_eq!(period(span), Ok(micros), "{span}");
    }
    for span in [
        "",
        " ",
        "4",
        "s",
        "4 ",
        " 4s",
        "4s ",
        "-4s",
        "+4s",
        "1e3s",
        "4S",
        "4 s s",
        "1s1s",
        "30s1m",
        "1m1min",
        "1.5m30s",
        "1.s",
        ".5s",
        "1.5.5s",
        "1,5s",
        "0s",
        "0.0s",
        "0.0000001s",
        "0.5us",
        "1.5",
        "9007199254740.992ms",
        "18446744073709551616s",
        "1.99999999999999999999s",
        "106751992d",
        "4\u{a0}s",
        "1sm",
        "٤s",
        "4µ",
    ] {
        let message = period(span).unwrap_err();
        assert!(message.starts_with("expected a span of time in whole microseconds"), "{message}");
        assert!(message.ends_with(&std::format!("found {span:?}")), "{span}: {message}");
    }
    for (rate, capacity) in [("5/1m30s", 90_000_000), ("5/1.5s", 1_500_000), ("5/s", 1_000_000)] {
        let limit = std::format!("{{ algorithm = 'sliding_log', rates = ['{rate}'] }}");
        let policy = Policy::parse("p", &std::format!("limits = [{limit}]")).unwrap();
        assert_eq!(policy.limits().iter().next().unwrap().limit.period().0, capacity);
    }
    check(
        "algorithm = 'token_bucket', capacity = 5, rate = '5/m30s'",
        (3, "policies.api.limits[0].rate"),
        "found \"5/m30s\"",
    );
}

#[test]
fn a_rate_of_a_log_that_is_too_large_is_named_by_its_place() {
    for (rates, place, found) in
        [("['1000000/s']", 0, "\"1000000/s\""), ("['1000/s', '1001/m']", 1, "\"1001/m\"")]
    {
        let limit = std::format!("algorithm = 'sliding_log', rates = {rates}");
        let path = std::format!("policies.api.limits[0].rates[{place}]");
        let message = "expected at most 1000 units, because a log remembers each of them, found ";
        check(&limit, (3, &path), &(std::string::String::from(message) + found));
    }
}
