//! What to do where a broken invariant is found.

/// Marks a place that no input leads to. There, a fallback such as 0 would often read as "never seen", which grants.
///
/// In tests, in fuzzing and in debug builds the call panics. In release builds the caller goes on with `strict`: the
/// value that refuses, counts as used, or keeps.
#[doc(hidden)]
#[cold]
#[inline(never)]
#[cfg_attr(debug_assertions, track_caller)] // without it, release builds need no place in the source
pub const fn never<T>(strict: T) -> T {
    debug_assert!(false, "an invariant is broken");
    strict
}
