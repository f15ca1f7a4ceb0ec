//! `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header-07, as practised): a call that is repeated with the same key gets the
//! answer of the first one and takes nothing.

#[cfg(test)]
mod tests;

use alloc::string::{String, ToString};

use tidegate_gate::{Draw, Idempotency, Operation, Quoted, fnv1a};

use crate::answer::problem::{self, invalid_request};
use crate::head::Head;
use crate::plan::Check;
use crate::response::Response;

/// The longest key, in bytes.
const MAX_BYTES: usize = 255;

/// The key of a call, which its caller has chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdempotencyKey(String);

impl IdempotencyKey {
    /// The key in the header; `None` without the header. A structured string and its bare content are the same key, because
    /// many clients send it bare.
    pub(crate) fn of(head: &Head<'_>) -> Result<Option<Self>, Response> {
        let Some(value) = (head.header)("idempotency-key") else { return Ok(None) };
        match Self::parse(value.trim()) {
            Some(key) => Ok(Some(key)),
            None => Err(invalid_request(alloc::format!(
                "`idempotency-key`: expected 1 to {MAX_BYTES} printable ASCII characters, in double quotes or not, found {}",
                Quoted(&value)
            ))),
        }
    }

    fn parse(value: &str) -> Option<Self> {
        let key = match value.strip_prefix('"') {
            Some(quoted) => unescaped(quoted.strip_suffix('"')?)?,
            None => value.to_string(),
        };
        let is_printable = key.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        (is_printable && (1..=MAX_BYTES).contains(&key.len())).then_some(Self(key))
    }

    /// Makes repeats of this check known. `names_itself` says whether the server names its lease or reservation: a repeat must
    /// name the same one, so the name follows from the key.
    pub(crate) fn apply(&self, check: Check, names_itself: bool) -> Result<Check, Response> {
        let policy = check.resolved().policy().name(); // contains no space
        let id = check.resolved().lease_id(&alloc::format!("{policy} {}", self.0));
        let asked = if names_itself { check.asked.named_by(id) } else { check.asked };
        let request = fnv1a(content(asked.operation()));
        let asked = asked.known_by(Idempotency { id, request });
        Ok(Check { asked: asked.map_err(|error| problem::of(&error, ""))?, ..check })
    }
}

/// The refusal of a batch with a key: of a batch that differs from the first one, some checks could be new.
pub(crate) fn of_batch() -> Response {
    let detail = "`idempotency-key`: expected a request with one check, found a batch; send each check with a key of its own";
    invalid_request(detail.to_string())
}

/// What an operation asks, without the draw, which differs from one repeat to the next.
fn content(mut operation: Operation) -> impl Iterator<Item = u8> {
    if let Operation::Decide(request) | Operation::Peek(request) = &mut operation {
        request.draw = Draw(0);
    }
    operation.to_words().into_iter().flat_map(u64::to_le_bytes)
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
