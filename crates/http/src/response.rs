//! A response, as adapters send it.

use alloc::string::String;
use alloc::vec::Vec;

/// A response, which the server sends unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The names and values of the headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body: JSON, or empty.
    pub body: String,
}
