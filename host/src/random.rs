//! Random numbers of the system.

/// The number may become the name of a lease, so it must not be guessable.
pub(crate) fn random() -> Option<u64> {
    getrandom::u64().ok()
}
