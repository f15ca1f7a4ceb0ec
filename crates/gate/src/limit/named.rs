//! A limit with its name.

use alloc::format;
use alloc::string::String;

use tidegate_core::Decision;
use tidegate_core::shed::Share;

use super::Limit;
use super::describe::percent;
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
    /// Whether the limit is in shadow: it decides and counts, and never refuses.
    pub shadow: bool,
    /// The used share of the limit from which on answers warn; `None` if they never do.
    pub warn_at: Option<Share>,
    /// The place of the limit among those that [pay](crate::Effect::payer), in the order of the policy file: 0 for the first one. `None`
    /// if the limit holds for each request.
    pub payer: Option<u8>,
    /// A hash of the name in the policy file, by which the limit is found again after an edit; 0 if the file
    /// gives no name.
    pub(crate) tag: u64,
}

impl NamedLimit {
    /// A limit that is known by its algorithm and its numbers alone.
    pub(crate) const fn unnamed(limit: Limit, depth: Depth) -> Self {
        Self {
            name: String::new(),
            depth,
            limit,
            shadow: false,
            warn_at: None,
            payer: None,
            tag: 0,
        }
    }

    /// What the limit does beside refusing, in words; empty for most.
    #[must_use]
    pub fn describe_softness(&self) -> String {
        let shadow = if self.shadow { ", in shadow: it refuses nothing" } else { "" };
        let pays = match self.payer {
            None => String::new(),
            Some(0) => ", pays first".into(),
            Some(before) => format!(", pays if {before} before it have no room"),
        };
        let warns = self.warn_at.map(|share| format!(", warns at {}", percent(share)));
        format!("{shadow}{pays}{}", warns.unwrap_or_default())
    }

    /// Whether an answer of this limit warns: the used units have reached the share. A started unit is used.
    #[must_use]
    pub fn warns(&self, said: &Decision) -> bool {
        self.warn_at.is_some_and(|share| {
            let used = u128::from(said.limit().saturating_sub(said.remaining()));
            let least = u128::from(said.limit()).saturating_mul(share.ppm().into());
            used.saturating_mul(Share::WHOLE.ppm().into()) >= least
        })
    }
}
