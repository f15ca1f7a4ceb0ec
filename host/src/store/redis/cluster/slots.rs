//! Which master has which slot.

use std::fmt;
use std::sync::Arc;

use redis::Value;

/// The number of slots of a Cluster.
const SLOTS: u16 = 16_384;

/// The owner of a slot without one.
const NOBODY: u16 = u16::MAX;

/// The slot of a name: of the text in its first braces, if there is any, or else of the whole name.
pub(in super::super) fn slot_of(name: &[u8]) -> u16 {
    let tag = || {
        let from = name.iter().position(|byte| *byte == b'{')?.checked_add(1)?;
        let tag = name.get(from..)?;
        let tag = tag.get(..tag.iter().position(|byte| *byte == b'}')?)?;
        (!tag.is_empty()).then_some(tag)
    };
    crc16::State::<crc16::XMODEM>::calculate(tag().unwrap_or(name)) % SLOTS
}

/// Where a node is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeAddress {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl NodeAddress {
    /// Reads `HOST:PORT`, as in an error of a node at `asked`. The address of IPv6 has no brackets; without a host it is that
    /// of the node itself.
    pub(super) fn read(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = if is_unknown(host) { &asked.host } else { host };
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }
}

/// The answer to `CLUSTER SLOTS`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterSlots {
    /// The first and the last slot of each range, and their master.
    pub(super) ranges: Vec<(u16, u16, NodeAddress)>,
    /// Other nodes.
    pub(super) replicas: Vec<NodeAddress>,
}

impl ClusterSlots {
    /// Reads the answer of the node at `asked`. What cannot be read is left out, so its slots have no master.
    pub(super) fn read(answer: Value, asked: &NodeAddress) -> Self {
        let mut told = Self::default();
        let Value::Array(ranges) = answer else { return told };
        for range in ranges {
            let Value::Array(range) = range else { continue };
            let mut range = range.into_iter();
            let (Some(first), Some(last)) = (number(range.next()), number(range.next())) else {
                continue;
            };
            let Some(master) = range.next().and_then(|node| place(node, asked)) else { continue };
            told.replicas.extend(range.filter_map(|node| place(node, asked)));
            told.ranges.push((first, last.min(SLOTS - 1), master));
        }
        told.ranges.sort_unstable_by_key(|(first, ..)| *first); // nodes list them in any order
        told
    }
}

fn number(value: Option<Value>) -> Option<u16> {
    match value? {
        Value::Int(number) => u16::try_from(number).ok(),
        _ => None,
    }
}

fn place(node: Value, asked: &NodeAddress) -> Option<NodeAddress> {
    let Value::Array(node) = node else { return None };
    let mut node = node.into_iter();
    let host = match node.next()? {
        Value::BulkString(host) => String::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        Value::Nil => String::new(),
        _ => return None,
    };
    if host == "?" {
        return None; // the Cluster does not know it
    }
    let host = if is_unknown(&host) { asked.host.clone() } else { host };
    Some(NodeAddress { host, port: number(node.next())? })
}

/// Whether a node does not know its own address.
fn is_unknown(host: &str) -> bool {
    matches!(host, "" | "0.0.0.0" | "::")
}

/// The masters of a Cluster.
pub(super) struct Slots<M> {
    /// An index into the masters for each slot, or [`NOBODY`].
    owners: Vec<u16>,
    pub(super) masters: Vec<Arc<M>>,
}

impl<M> Default for Slots<M> {
    fn default() -> Self {
        Self { owners: vec![NOBODY; usize::from(SLOTS)], masters: Vec::new() }
    }
}

impl<M> Slots<M> {
    /// The master of a slot.
    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<M>> {
        self.masters.get(usize::from(*self.owners.get(usize::from(slot))?))
    }

    /// From now on these slots are this master's.
    pub(super) fn give(&mut self, (first, last): (u16, u16), master: &Arc<M>) {
        let known = self.masters.iter().position(|known| Arc::ptr_eq(known, master));
        let index = known.unwrap_or_else(|| {
            self.masters.push(Arc::clone(master));
            self.masters.len() - 1
        });
        let owner = u16::try_from(index).unwrap_or(NOBODY);
        let given = self.owners.get_mut(usize::from(first)..=usize::from(last));
        given.into_iter().flatten().for_each(|slot| *slot = owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str, port: u16) -> NodeAddress {
        NodeAddress { host: host.to_owned(), port }
    }

    #[test]
    fn the_slot_of_a_name_is_that_of_its_tag() {
        // by CLUSTER KEYSLOT
        for (name, slot) in [
            ("123456789", 12_739),
            ("", 0),
            ("{123456789}", 12_739),
            ("x{123456789}y{z}", 12_739),
            ("{}123456789", 1_951),
            ("{123456789", 5_574),
            ("x}y{123456789}", 12_739),
        ] {
            assert_eq!(slot_of(name.as_bytes()), slot, "{name}");
        }
    }

    #[test]
    fn whatever_a_node_tells_is_read() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let range = |first, last, nodes: Vec<Value>| {
            Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
        };
        let asked = place("asked", 1);
        let told = ClusterSlots::read(
            Value::Array(vec![
                range(6, 7, vec![node(Value::Nil, 9), node(text("?"), 8)]),
                range(0, 5, vec![node(text("a"), 7), node(text("b"), 8)]),
                range(8, 9, vec![node(text(""), 9)]),
                range(8, 9, vec![node(text("?"), 9)]),
                range(-1, 9, vec![node(text("a"), 9)]),
                range(1, 9, vec![node(text("a"), 99_999)]),
                range(1, 9, vec![Value::Nil]),
                range(1, 9, vec![]),
                range(16_000, 65_000, vec![node(text("a"), 7)]),
                Value::Array(vec![]),
                Value::Nil,
            ]),
            &asked,
        );
        let expected =
            [(0, 5, place("a", 7)), (6, 7, place("asked", 9)), (8, 9, place("asked", 9))];
        assert_eq!(told.ranges[..3], expected);
        assert_eq!(told.ranges[3..], [(16_000, SLOTS - 1, place("a", 7))]);
        assert_eq!(told.replicas, [place("b", 8)]);
        assert_eq!(ClusterSlots::read(Value::Okay, &asked), ClusterSlots::default());
    }

    #[test]
    fn a_redirect_names_a_node() {
        let asked = place("asked", 1);
        for (text, expected) in [
            ("127.0.0.1:7000", Some(place("127.0.0.1", 7_000))),
            ("::1:7000", Some(place("::1", 7_000))),
            (":7000", Some(place("asked", 7_000))),
            ("0.0.0.0:7000", Some(place("asked", 7_000))),
            ("h:x", None),
            ("h", None),
        ] {
            assert_eq!(NodeAddress::read(text, &asked), expected, "{text}");
        }
    }

    #[test]
    fn slots_are_given_and_taken() {
        let (a, b) = (Arc::new("a"), Arc::new("b"));
        let mut slots = Slots::default();
        assert_eq!(slots.owner(0), None);
        slots.give((0, 9), &a);
        slots.give((10, SLOTS - 1), &b);
        slots.give((5, 5), &b);
        slots.give((7, 3), &b); // nothing
        slots.give((7, u16::MAX), &b); // nothing
        for (slot, owner) in
            [(0, Some(&a)), (5, Some(&b)), (7, Some(&a)), (16_383, Some(&b)), (u16::MAX, None)]
        {
            assert_eq!(slots.owner(slot), owner, "{slot}");
        }
        assert_eq!(slots.masters.len(), 2);
    }
}
