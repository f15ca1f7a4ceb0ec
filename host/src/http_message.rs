//! Requests and responses of the crate `http`, as an exchange reads and words them.

use std::borrow::Cow;

use http::header::{AsHeaderName, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use tidegate_http::Header;

pub(crate) use crate::random::random;

/// The value of a header as the Worker's runtime shows it: fields of one name are joined, and each byte
/// becomes a character.
pub(crate) fn joined(headers: &HeaderMap, name: impl AsHeaderName) -> Option<String> {
    let fields = headers.get_all(name).iter();
    let text = |value: &HeaderValue| match value.to_str() {
        Ok(ascii) => ascii.to_owned(),
        Err(_) => value.as_bytes().iter().copied().map(char::from).collect(),
    };
    fields.map(text).reduce(|all: String, next: String| all + ", " + &next)
}

/// The response that an exchange has worded, with this kind of body.
pub(crate) fn response<B>(
    answer: tidegate_http::Response,
    body: impl FnOnce(String) -> B,
) -> Response<B> {
    let mut response = Response::new(body(answer.body));
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
    let value = match value {
        Cow::Borrowed(value) => HeaderValue::from_static(value),
        Cow::Owned(value) => HeaderValue::try_from(value).ok()?,
    };
    Some((HeaderName::from_static(name), value))
}
