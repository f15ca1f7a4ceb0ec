//! Requests and responses of the crate `http`, as an exchange reads and words them.

use std::borrow::Cow;
use std::cell::RefCell;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use tidegate_http::Header;

pub(crate) use crate::random::random;

/// The value of a header as the Worker's runtime shows it: fields of one name are joined, and each byte
/// becomes a character.
pub(crate) fn joined(headers: &HeaderMap, name: &str) -> Option<String> {
    // a request has few fields, so comparing their names costs less than hashing this one
    let fields = headers.iter().filter(|(own, _)| own.as_str().eq_ignore_ascii_case(name));
    let texts = fields.map(|(_, value)| text(value).into_owned());
    texts.reduce(|all, next| all + ", " + &next)
}

/// A value, of which each byte becomes a character.
pub(crate) fn text(value: &HeaderValue) -> Cow<'_, str> {
    match value.to_str() {
        Ok(ascii) => Cow::Borrowed(ascii),
        Err(_) => Cow::Owned(value.as_bytes().iter().copied().map(char::from).collect()),
    }
}

/// The response that an exchange has worded, with this kind of body.
pub(crate) fn response<B>(
    answer: tidegate_http::Response,
    body: impl FnOnce(String) -> B,
) -> Response<B> {
    let mut response = Response::new(body(answer.body));
    response.headers_mut().reserve(answer.headers.len());
    match StatusCode::from_u16(answer.status) {
        Ok(status) => *response.status_mut() = status,
        Err(_) => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
    }
    for (name, value) in answer.headers.into_iter().filter_map(header) {
        response.headers_mut().insert(name, value);
    }
    response
}

/// A header that an exchange has worded. `None` if HTTP cannot carry the value.
pub(crate) fn header((name, value): Header) -> Option<(HeaderName, HeaderValue)> {
    // at run time `from_static` reads each byte, so what most responses have is made before
    static RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
    static RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
    static JSON: HeaderValue = HeaderValue::from_static("application/json");
    static NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
    if name == "ratelimit-policy"
        && let Cow::Owned(value) = value
    {
        return Some((RATE_LIMIT_POLICY.clone(), quota(value)?));
    }
    let name = match name {
        "content-type" => CONTENT_TYPE,
        "cache-control" => CACHE_CONTROL,
        "ratelimit" => RATE_LIMIT.clone(),
        _ => HeaderName::from_static(name),
    };
    let value = match value {
        Cow::Borrowed("application/json") => JSON.clone(),
        Cow::Borrowed("no-store") => NO_STORE.clone(),
        Cow::Borrowed(value) => HeaderValue::from_static(value),
        Cow::Owned(value) => HeaderValue::try_from(value).ok()?,
    };
    Some((name, value))
}

/// The value of `RateLimit-Policy`. Most requests of a thread are under one policy, so the last value is kept: a copy of it costs less
/// than reading each byte of a new one.
fn quota(value: String) -> Option<HeaderValue> {
    thread_local! {
        static LAST: RefCell<HeaderValue> = const { RefCell::new(HeaderValue::from_static("")) };
    }
    LAST.with_borrow_mut(|last| {
        if last.as_bytes() != value.as_bytes() {
            *last = HeaderValue::try_from(value).ok()?;
        }
        Some(last.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_has_its_own_quota_in_turn() {
        for quota in ["\"a\";q=5;w=30", "\"b\";q=5;w=30", "\"b\";q=5;w=30", "\"a\";q=5;w=30"] {
            let (name, value) = header(("ratelimit-policy", quota.to_owned().into())).unwrap();
            assert_eq!((name.as_str(), value.to_str().unwrap()), ("ratelimit-policy", quota));
        }
        assert!(header(("ratelimit-policy", "a\nb".to_owned().into())).is_none());
    }
}
