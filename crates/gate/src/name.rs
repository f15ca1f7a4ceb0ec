//! Names of policies and limits.

use alloc::format;
use alloc::string::String;
use core::fmt;

use tidegate_form::{Error, Form, Node, Quoted};

const MAX_NAME_BYTES: usize = 64;

/// The name of a policy or a limit. Headers, URLs and the names of stored states contain it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name(String);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f) // in quotes
    }
}

impl Form for Name {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(Self::parse)
    }
}

impl Name {
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(allowed) {
            return Ok(Self(name.into()));
        }
        Err(format!(
            "expected a name of 1 to {MAX_NAME_BYTES} letters, digits, `_`, `-` and `.`; found {}",
            Quoted(name)
        ))
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}
