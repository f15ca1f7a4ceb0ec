//! The lines of an event stream (the HTML standard, "Server-sent events"), of which the values of `data` are JSON.

use super::seek::Seeker;

/// Where the last byte of a stream was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Events {
    state: LineState,
    /// Whether the stream has said that it ends. Its client may then leave before it does.
    pub(super) is_done: bool,
    /// Whether the last byte was a carriage return, whose line feed belongs to it.
    is_return: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineState {
    /// In the name of a field that has begun as `data:`, for this many bytes.
    Name(u8),
    /// Before the value of `data`, which may begin with a space.
    Begin,
    /// In the value of `data`, which has begun as [`DONE`] for this many bytes.
    Data(usize),
    /// In another line.
    Other,
}

const DATA: &[u8] = b"data:";
/// The last value of a stream of many language models.
const DONE: &[u8] = b"[DONE]";
/// The bytes of a byte order mark, which may stand before the first line. No other line can begin with them.
const MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

impl Events {
    pub(super) const START: Self =
        Self { state: LineState::Name(0), is_done: false, is_return: false };

    /// Hands the values of `data` in these bytes to the seeker. Several lines of one event are one text.
    pub(super) fn push(&mut self, bytes: &[u8], seeker: &mut Seeker) {
        for byte in bytes {
            let is_return = core::mem::replace(&mut self.is_return, *byte == b'\r');
            match (byte, self.state) {
                (b'\n', _) if is_return => {}
                (b'\r' | b'\n', state) => {
                    match state {
                        LineState::Name(0) => seeker.restart(), // an empty line ends an event
                        _ => seeker.take(b'\n'),
                    }
                    self.state = LineState::Name(0);
                }
                (byte, LineState::Name(0)) if MARK.contains(byte) => {}
                (byte, LineState::Name(same)) => self.state = named(*byte, same),
                (b' ', LineState::Begin) => self.state = LineState::Data(0),
                (byte, LineState::Begin) => self.value(*byte, 0, seeker),
                (byte, LineState::Data(same)) => self.value(*byte, same, seeker),
                (_, LineState::Other) => {}
            }
        }
    }
}

impl Events {
    fn value(&mut self, byte: u8, same: usize, seeker: &mut Seeker) {
        let is_same = DONE.get(same) == Some(&byte);
        let same = if is_same { same.saturating_add(1) } else { DONE.len() };
        self.is_done |= is_same && same == DONE.len();
        self.state = LineState::Data(same);
        seeker.take(byte);
    }
}

fn named(byte: u8, same: u8) -> LineState {
    let longer = same.saturating_add(1);
    match DATA.get(usize::from(same)) {
        Some(wanted) if *wanted == byte && usize::from(longer) == DATA.len() => LineState::Begin,
        Some(wanted) if *wanted == byte => LineState::Name(longer),
        _ => LineState::Other,
    }
}
