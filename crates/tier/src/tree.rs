//! The maps of this crate that are in the order of their keys.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

/// A map with its values in boxes: the maps whose keys have one layout then have the same machine code, which is some 5 KB in
/// WebAssembly, and their nodes are small.
pub(crate) type Tree<K, V> = BTreeMap<K, Box<V>>;
