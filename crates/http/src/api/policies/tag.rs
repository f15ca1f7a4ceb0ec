//! What tells a revision of the policy file apart, and where it came from.

use alloc::string::String;
use core::fmt;

use tidegate_gate::Timestamp;

use crate::answer::json::Object;
use crate::response::Response;

/// The version and the hash of a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevisionTag {
    /// The number of the revision.
    pub version: u64,
    /// A hash of the file.
    pub hash: String,
    /// Where the revision came from. `None` if the server does not know, as an isolate of a Worker.
    pub origin: Option<Origin>,
}

/// Where a revision came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// How the revision came into force.
    pub source: Source,
    /// When it came into force.
    pub at: Timestamp,
    /// Who put it in force: the actor of the call, or `deployment`.
    pub by: String,
}

/// How a revision came into force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The server has read it in its policy file.
    File,
    /// A caller put it: `PUT /v1/policies`, or an override of one key.
    Put,
    /// A caller restored it: `POST /v1/policies/restore`.
    Restored,
}

impl Source {
    /// The word for the source.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Put => "put",
            Self::Restored => "restored",
        }
    }
}

impl fmt::Display for RevisionTag {
    /// Such as `revision 3 (put by "alice")`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "revision {}", self.version)?;
        match &self.origin {
            None => Ok(()),
            Some(Origin { source: Source::File, .. }) => write!(f, " (file)"),
            Some(Origin { source, by, .. }) => write!(f, " ({} by {by:?})", source.name()),
        }
    }
}

impl RevisionTag {
    /// Writes the version, the hash and, if it is known, the origin.
    pub(crate) fn write(&self, it: &mut Object<'_>) {
        it.field("version", self.version);
        it.field("hash", self.hash.as_str());
        if let Some(Origin { source, at, by }) = &self.origin {
            it.field("source", source.name());
            it.field("since_us", at.0);
            it.field("by", by.as_str());
        }
    }

    pub(super) fn on(&self, mut response: Response) -> Response {
        response.headers.push(("etag", alloc::format!("\"{}\"", self.hash).into()));
        response
    }
}
