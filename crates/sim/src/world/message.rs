//! Questions and replies on their way.

use super::front::Run;
use super::network::Network;

#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) to: To,
    /// The node that asked.
    pub(super) run: Run,
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) is_corrupt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    Object(usize),
    Node,
}

impl Network<Message> {
    /// A byte of a message changes, if none has changed before.
    pub(super) fn corrupt(&mut self, index: usize, place: usize) {
        if let Some(message) = self.get_mut(index).filter(|message| !message.is_corrupt) {
            let place = place % message.bytes.len();
            message.bytes[place] ^= 1 << (place % 8);
            message.is_corrupt = true;
        }
    }
}
