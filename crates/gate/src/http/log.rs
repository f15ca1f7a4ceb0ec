//! Lines for a log: they name the policy and a hash of the key, and come at a bounded rate.

use alloc::string::String;
use core::fmt::{Debug, Display};

use sha2::{Digest, Sha256};
use tidegate_core::Timestamp;

use crate::resolved::Resolved;

/// Makes the lines of a log, at most one a second. The others are counted.
///
/// A line never contains a key. It contains a keyed hash, so that a reader of the log who does not know the secret
/// cannot find a key by trying keys.
///
/// ```
/// use tidegate_gate::Timestamp;
/// use tidegate_gate::http::Log;
/// let mut log = Log::new(b"secret");
/// assert_eq!(log.line(Timestamp(8_000_000), &"away").as_deref(), Some("away"));
/// assert_eq!(log.line(Timestamp(8_000_001), &"away"), None);
/// let next = log.line(Timestamp(9_000_000), &"away");
/// assert_eq!(next.as_deref(), Some("away; 1 more error since the last line"));
/// ```
pub struct Log {
    secret: [u8; 32],
    /// The second of the last line.
    second: u64,
    /// The number of errors since then.
    errors: u64,
}

impl Debug for Log {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { second, errors, .. } = self;
        f.debug_struct("Log")
            .field("second", second)
            .field("errors", errors)
            .finish_non_exhaustive()
    }
}

impl Log {
    /// A log whose hashes need this secret. Two servers with the same secret write the same hash of a key.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self { secret: Sha256::digest(secret).into(), second: 0, errors: 0 }
    }

    /// The line for an error; `None` if the error is only counted.
    pub fn line(&mut self, now: Timestamp, error: &dyn Display) -> Option<String> {
        let second = now.0.div_euclid(1_000_000);
        if self.second == second {
            self.errors = self.errors.saturating_add(1);
            return None;
        }
        self.second = second;
        let line = alloc::format!("{error}");
        Some(match self.rest() {
            None => line,
            Some(rest) => alloc::format!("{line}; {rest}"),
        })
    }

    /// The line for an error of an operation.
    pub fn line_of(
        &mut self,
        now: Timestamp,
        resolved: &Resolved,
        error: &dyn Display,
    ) -> Option<String> {
        let policy = resolved.policy().name();
        let hash = self.hash(policy, resolved.key());
        self.line(now, &format_args!("policy {policy:?}, key {hash:016x}: {error}"))
    }

    /// The number of errors since the last line, in words; `None` without such errors.
    pub fn rest(&mut self) -> Option<String> {
        let errors = core::mem::take(&mut self.errors);
        let s = if errors == 1 { "" } else { "s" };
        (errors > 0).then(|| alloc::format!("{errors} more error{s} since the last line"))
    }

    /// The secret has the length of a block's half and comes first, and only a part of the digest is shown, so no hash
    /// of a longer key follows from it.
    fn hash(&self, policy: &str, key: &str) -> u64 {
        let mut hasher = Sha256::new();
        for part in [&self.secret, policy.as_bytes(), &[0], key.as_bytes()] {
            hasher.update(part);
        }
        u64::from_be_bytes(hasher.finalize().first_chunk().copied().unwrap_or_default())
    }
}
