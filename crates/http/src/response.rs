//! A response, as adapters send it.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

/// The names and values of headers.
pub type Headers = Vec<Header>;

/// The name and the value of a header.
pub type Header = (&'static str, Cow<'static, str>);

/// A response, which the server sends unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: Headers,
    /// The body: JSON, or empty.
    pub body: String,
}
