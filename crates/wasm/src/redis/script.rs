//! The script that compares and swaps, for clients that carry bytes and for those that carry texts.

use std::fmt::Write;
use std::sync::LazyLock;

/// The host's script.
const SWAP: &str = include_str!("../../../../host/src/store/redis/swap.lua");

/// What the host has before its script in a call over several slots of a Cluster.
const BEFORE_SWAP_ACROSS: &str = include_str!("../../../../host/src/store/redis/across.lua");

/// Before the host's script, if the client carries texts alone: the values come in hexadecimal digits.
const BEFORE_SWAP: &str = "\
local function bytes(digits)
  return (string.gsub(digits, '%x%x', function(two) return string.char(tonumber(two, 16)) end))
end
local function text(value)
  if type(value) == 'number' then return value end
  if type(value) == 'string' then
    return 'x' .. (string.gsub(value, '.', function(byte) return string.format('%02x', string.byte(byte)) end))
  end
  if not value then return 'n' end
  if value.err then return 'e' .. value.err end
  local all = {}
  for place, each in ipairs(value) do all[place] = text(each) end
  return all
end
local values = {}
for place, value in ipairs(ARGV) do
  local is_bytes = place <= 3 * #KEYS and place % 3 ~= 0
  values[place] = is_bytes and bytes(value) or value
end
local function swap_all(ARGV)
";

/// After it: the replies go as texts, whose first letter says what they are.
const AFTER_SWAP: &str = "\nend\nreturn text(swap_all(values))\n";

static BYTES: LazyLock<Script> = LazyLock::new(|| Script::new(SWAP.to_owned(), false));
static TEXTS: LazyLock<Script> =
    LazyLock::new(|| Script::new([BEFORE_SWAP, SWAP, AFTER_SWAP].concat(), true));

static ACROSS: LazyLock<Script> =
    LazyLock::new(|| Script::new([BEFORE_SWAP_ACROSS, SWAP].concat(), false));

/// A script.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) source: String,
    /// Its name in Redis.
    pub(super) hash: String,
    /// Whether the client carries texts alone.
    pub(super) has_texts: bool,
}

impl Script {
    fn new(source: String, has_texts: bool) -> Self {
        let digest = sha1_smol::Sha1::from(&source).digest().bytes();
        Self { hash: digits(&digest), source, has_texts }
    }

    /// The script for a client.
    pub(super) fn of(has_texts: bool) -> &'static Self {
        if has_texts { &TEXTS } else { &BYTES }
    }

    /// The script for names of several slots of a Cluster.
    pub(super) fn across() -> &'static Self {
        &ACROSS
    }

    /// Bytes as the client carries them.
    pub(super) fn carried(&self, bytes: &[u8]) -> Vec<u8> {
        if self.has_texts { digits(bytes).into_bytes() } else { bytes.to_vec() }
    }
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // a text has room
        text
    })
}

/// The bytes of these hexadecimal digits.
pub(super) fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    let each = pairs.iter().map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    each.collect()
}

#[test]
fn digits_are_bytes_again() {
    let all: Vec<u8> = (0..=u8::MAX).collect();
    assert_eq!(bytes_of(&digits(&all)), Some(all));
    for wrong in ["0", "0g", "é"] {
        assert_eq!(bytes_of(wrong), None);
    }
}
