//! `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header-07, as practised): a call that is repeated with the same key gets the
//! answer of the first one and takes nothing.

#[cfg(test)]
mod tests;

use alloc::string::{String, ToString};

use tidegate_gate::{Idempotency, Quoted, fnv1a};

use crate::answer::problem::{self, invalid_request};
use crate::head::Head;
use crate::plan::Check;
use crate::response::Response;

/// The longest key, in bytes.
const MAX_BYTES: usize = 255;

/// The key of a call, which its caller has chosen, and the path of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdempotencyKey {
    key: String,
    path: String,
}

impl IdempotencyKey {
    /// The key in the header; `None` without the header. A structured string and its bare content are the same key, because
    /// many clients send it bare.
    pub(crate) fn of(head: &Head<'_>) -> Result<Option<Self>, Response> {
        let Some(value) = (head.header)("idempotency-key") else { return Ok(None) };
        match parse(value.trim()) {
            Some(key) => Ok(Some(Self { key, path: head.path.to_string() })),
            None => Err(invalid_request(alloc::format!(
                "`idempotency-key`: expected 1 to {MAX_BYTES} printable ASCII characters, in double quotes or without a comma, found {}",
                Quoted(&value)
            ))),
        }
    }

    /// Makes repeats of this check known. `names_itself` says whether the server names its lease or reservation: a repeat must
    /// name the same one, so the name follows from the key.
    ///
    /// A repeat has the same path and body: an edit of the policy between the two changes nothing about that.
    pub(crate) fn apply(
        &self,
        body: &str,
        check: Check,
        names_itself: bool,
    ) -> Result<Check, Response> {
        let policy = check.resolved().policy().name(); // contains no space
        let id = check.resolved().lease_id(&alloc::format!("{policy} {}", self.key));
        let asked = if names_itself { check.asked.named_by(id) } else { check.asked };
        let request = fnv1a(self.path.bytes().chain([b'\n']).chain(body.bytes()));
        let asked = asked.known_by(Idempotency { id, request });
        Ok(Check { asked: asked.map_err(|error| problem::of(&error, ""))?, ..check })
    }
}

/// The key in a value of the header. Two lines of the header are one value with a comma, so a bare key has none.
fn parse(value: &str) -> Option<String> {
    let key = match value.strip_prefix('"') {
        Some(quoted) => unescaped(quoted.strip_suffix('"')?)?,
        None if value.contains(',') => return None,
        None => value.to_string(),
    };
    let is_printable = key.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    (is_printable && (1..=MAX_BYTES).contains(&key.len())).then_some(key)
}

/// The refusal of a batch with a key: of a batch that differs from the first one, some checks could be new.
pub(crate) fn of_batch() -> Response {
    let detail = "`idempotency-key`: expected a request with one check, found a batch; send each check with a key of its own";
    invalid_request(detail.to_string())
}

/// The content of a structured string (RFC 9651 §4.2.5).
fn unescaped(quoted: &str) -> Option<String> {
    let (mut content, mut chars) = (String::new(), quoted.chars());
    while let Some(char) = chars.next() {
        content.push(match char {
            '"' => return None,
            '\\' => chars.next().filter(|char| matches!(char, '"' | '\\'))?,
            char => char,
        });
    }
    Some(content)
}
