//! Lines for a log: they name the policy and a hash of the key, and come at a bounded rate.

use alloc::format;
use alloc::string::String;
use core::fmt::{Debug, Display, Formatter};

use sha2::{Digest, Sha256};
use tidegate_gate::{Resolved, Timestamp};

/// The shortest span between two lines.
const SPAN_US: u64 = 1_000_000;

/// Makes the lines of a log, at most one a second, because in an outage every request has an error. The others are
/// counted. `worker/log.js` does the same for the Worker, where the count must outlive WebAssembly.
///
/// ```
/// use tidegate_gate::Timestamp;
/// use tidegate_http::Log;
/// let mut log = Log::default();
/// assert_eq!(log.line(Timestamp(8_000_000), &"away").as_deref(), Some("away"));
/// assert_eq!(log.line(Timestamp(8_999_999), &"away"), None);
/// let next = log.line(Timestamp(9_000_000), &"away");
/// assert_eq!(next.as_deref(), Some("away; 1 more error since the last line"));
/// ```
#[derive(Debug, Default)]
pub struct Log {
    /// The time of the last line.
    last: Option<Timestamp>,
    /// The number of errors since then.
    errors: u64,
}

impl Log {
    /// The line for an error; `None` if the error is only counted.
    pub fn line(&mut self, now: Timestamp, error: &dyn Display) -> Option<String> {
        self.due(now).map(|more| match more.0 {
            0 => format!("{error}"),
            _ => format!("{error}; {more}"),
        })
    }

    /// Counts an error, or says that a line is due and how many errors came since the last one.
    pub fn due(&mut self, now: Timestamp) -> Option<More> {
        if self.last.is_some_and(|last| now.0.abs_diff(last.0) < SPAN_US) {
            self.errors = self.errors.saturating_add(1);
            return None;
        }
        self.last = Some(now);
        Some(self.rest().unwrap_or_default())
    }

    /// The number of errors since the last line; `None` without such errors.
    pub fn rest(&mut self) -> Option<More> {
        let errors = core::mem::take(&mut self.errors);
        (errors > 0).then_some(More(errors))
    }
}

/// How many errors came since the last line of a [`Log`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct More(pub u64);

impl Display for More {
    fn fmt(&self, f: &mut Formatter<'_>) -> core::fmt::Result {
        let s = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} more error{s} since the last line", self.0)
    }
}

/// The secret of the hashes that stand for keys in a log, so that a reader of the log who does not know the secret cannot
/// find a key by trying keys. Two servers with the same secret write the same hash of a key.
pub struct LogSecret([u8; 32]);

impl Debug for LogSecret {
    fn fmt(&self, f: &mut Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("LogSecret").finish_non_exhaustive()
    }
}

impl LogSecret {
    /// The secret out of bytes of any length.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret).into())
    }

    /// The text for an error of an operation. It has a hash of the key in place of the key.
    #[must_use]
    pub fn describe(&self, resolved: &Resolved, error: &dyn Display) -> String {
        let policy = resolved.policy().name();
        let hash = self.hash(policy, resolved.key());
        format!("policy {policy:?}, key {hash:016x}: {error}")
    }

    /// The hash that stands for a key of a policy.
    //
    // The secret has the length of a block's half and comes first, and only a part of the digest is shown, so no hash
    // of a longer key follows from it.
    #[must_use]
    pub fn hash(&self, policy: &str, key: &str) -> u64 {
        let mut hasher = Sha256::new();
        for part in [&self.0, policy.as_bytes(), &[0], key.as_bytes()] {
            hasher.update(part);
        }
        u64::from_be_bytes(hasher.finalize().first_chunk().copied().unwrap_or_default())
    }
}
