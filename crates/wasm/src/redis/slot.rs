//! The slots of a Cluster, and which master has which.

use js_sys::Function;
use wasm_bindgen::JsValue;

/// A Cluster has 16,384 slots.
const SLOTS_MASK: u16 = 0x3fff;

/// The slot of a name: of the text between its first brace and the next one that closes, if there is any.
pub(super) fn slot(name: &[u8]) -> u16 {
    let tag = name.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = name.get(open.saturating_add(1)..)?;
        rest.get(..rest.iter().position(|byte| *byte == b'}')?).filter(|tag| !tag.is_empty())
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(name)) & SLOTS_MASK
}

/// The number of a master; 0 if it is unknown, or if there is one Redis.
pub(super) type Master = u32;

/// The masters of a Cluster, as the client knows them. `None` for one Redis.
#[derive(Debug)]
pub(super) struct Masters(pub(super) Option<Function>);

impl Masters {
    pub(super) const fn are_cluster(&self) -> bool {
        self.0.is_some()
    }

    /// The slot of a name; 0 for each name if there is one Redis.
    pub(super) fn slot(&self, name: &[u8]) -> u16 {
        if self.are_cluster() { slot(name) } else { 0 }
    }

    /// The master that has this slot.
    pub(super) fn master(&self, slot: u16) -> Master {
        let told = self.0.as_ref().map(|of| of.call1(&JsValue::NULL, &slot.into()));
        let number = told.and_then(Result::ok).and_then(|told| told.as_f64());
        number
            .and_then(crate::number::to_quantity)
            .map_or(0, |number| Master::try_from(number).unwrap_or_default())
    }
}

#[test]
fn a_name_has_the_slot_of_a_cluster() {
    // as the client `ioredis` finds them
    for (name, expected) in
        [("foo", 12_182), ("p:{foo}:1", 12_182), ("{}a", 10_875), ("{bar", 4_015)]
    {
        assert_eq!(slot(name.as_bytes()), expected, "{name}");
    }
}
