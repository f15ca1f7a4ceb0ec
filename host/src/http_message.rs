//! Requests and responses of the crate `http`, as an exchange reads and words them.

use std::borrow::Cow;

use http::header::{AsHeaderName, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use tidegate_http::Header;

pub(crate) use crate::random::random;

/// The value of a header as the Worker's runtime shows it: fields of one name are joined, and each byte
/// becomes a character.
pub(crate) fn joined(headers: &HeaderMap, name: impl AsHeaderName) -> Option<String> {
    text(headers, name).map(Cow::into_owned)
}

/// The same, without a copy of a value in ASCII.
pub(crate) fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<Cow<'_, str>> {
    let fields = headers.get_all(name).iter();
    let texts = fields.map(|value| match value.to_str() {
        Ok(ascii) => Cow::Borrowed(ascii),
        Err(_) => Cow::Owned(value.as_bytes().iter().copied().map(char::from).collect()),
    });
    texts.reduce(|all, next| Cow::Owned(all.into_owned() + ", " + &next))
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
    let name = match name {
        "ratelimit" => RATE_LIMIT.clone(),
        "ratelimit-policy" => RATE_LIMIT_POLICY.clone(),
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
