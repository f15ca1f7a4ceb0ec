//! The header `Retry-After` (RFC 9110 §10.2.3).

use std::time::{Duration, SystemTime};

use ::reqwest::{Response, StatusCode};
use http::header::RETRY_AFTER;

/// How long the server asks to wait; `None` if it does not. `may_repeat` says whether the request may be sent again although
/// a part of it may have been done: a 429 says that nothing was, a 503 does not.
pub(super) fn retry_after(response: &Response, may_repeat: bool) -> Option<Duration> {
    match response.status() {
        StatusCode::TOO_MANY_REQUESTS => {}
        StatusCode::SERVICE_UNAVAILABLE if may_repeat => {}
        _ => return None,
    }
    parse(response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim(), SystemTime::now())
}

/// A number of seconds, or a date.
fn parse(value: &str, now: SystemTime) -> Option<Duration> {
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        return value.parse().ok().map(Duration::from_secs);
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default()) // a date in the past asks for no wait
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_in_seconds_or_until_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (value, seconds) in [
            ("0", Some(0)),
            ("120", Some(120)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:49:27 GMT", Some(0)),
            ("-1", None),
            ("1.5", None),
            ("", None),
            ("soon", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(parse(value, now), seconds.map(Duration::from_secs), "{value}");
        }
    }
}
