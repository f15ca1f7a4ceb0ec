//! A limit with its name.

use alloc::string::String;

use super::Limit;
use crate::key::Depth;

/// A limit with its name, which headers and answers contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLimit {
    /// The name: letters, digits, `_`, `-` and `.`.
    pub name: String,
    /// The part of the key that the limit counts by.
    pub depth: Depth,
    /// The limiter.
    pub limit: Limit,
    /// A hash of the name in the policy file, by which the limit is found again after an edit; 0 if the file
    /// gives no name.
    pub(crate) tag: u64,
}
