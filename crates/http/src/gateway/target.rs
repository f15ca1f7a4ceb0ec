//! The target of a request: its host, path and query, which a route matches and the upstream gets.

use alloc::format;
use alloc::string::ToString;

use tidegate_gate::{Path, TwoRoutes, is_authority};

use crate::answer::problem::Problem;
use crate::head::Head;
use crate::response::Response;

/// The longest path and query together, in bytes.
const MAX_TARGET_BYTES: usize = 16_384;

/// The reason why a target is refused.
#[derive(Debug)]
pub(super) enum TargetError {
    TooLong(usize),
    /// The message names the part of the target and what is expected of it.
    Invalid(&'static str),
}

impl From<TwoRoutes> for TargetError {
    fn from(TwoRoutes: TwoRoutes) -> Self {
        Self::Invalid(
            "the path: expected a path of one route; found one that takes another route in lower case, without its \
             parameters after `;`, or decoded once more",
        )
    }
}

impl TargetError {
    pub(super) fn response(&self) -> Response {
        match self {
            Self::TooLong(bytes) => Problem::TargetTooLong.response(format!(
                "expected a path and a query of at most {MAX_TARGET_BYTES} bytes, found {bytes}"
            )),
            Self::Invalid(message) => Problem::InvalidRequest.response((*message).to_string()),
        }
    }
}

/// The path of a request, of which all parts of the target are well formed.
pub(super) fn read(head: &Head<'_>) -> Result<Path, TargetError> {
    let length = head.path.len().saturating_add(head.query.len());
    if length > MAX_TARGET_BYTES {
        return Err(TargetError::TooLong(length));
    }
    if !is_authority(head.authority.strip_suffix(':').unwrap_or(head.authority)) {
        let expected = "the host: expected a name or an address, with or without a port";
        return Err(TargetError::Invalid(expected));
    }
    if !head.query.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(TargetError::Invalid("the query: expected printable ASCII without `#`"));
    }
    Path::of(head.path).map_err(TargetError::Invalid)
}
