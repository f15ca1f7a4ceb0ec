//! Time zones: their names, and the data that travel with a policy.
//!
//! `zone_data` is a line of words: the version of the time zone database; for each change of the zone's offset the second of
//! the epoch from which it is in force, and the offset in seconds with its sign; and the second until which the changes are
//! known: `2026b 1735689600+3600 1743296400+7200 … 2366841600`. The first change is where the data begin.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;

use tidegate_core::window::calendar::{Shift, Zone};
use tidegate_core::{MAX_QUANTITY, Timestamp};
use tidegate_form::{Error, Form, Node, Quoted};

use super::super::parameters::wide;

/// The changes of a zone's offset, its name, and the version of the database from which they are. All clones are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shifts(Arc<Named>);

#[derive(Debug, PartialEq, Eq)]
struct Named {
    name: String,
    /// Empty for UTC.
    version: String,
    shifts: Vec<Shift>,
}

impl AsRef<[Shift]> for Shifts {
    fn as_ref(&self) -> &[Shift] {
        &self.0.shifts
    }
}

/// The time zone of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timezone<'a> {
    /// The name in the IANA time zone database, such as `Europe/Madrid`.
    pub name: &'a str,
    /// The version of the database from which the offsets are, such as `2026b`; empty for UTC, which needs none.
    pub version: &'a str,
    /// The instant from which the offsets are known.
    pub from: Timestamp,
    /// The instant until which the offsets are known.
    pub until: Timestamp,
}

const UTC: &str = "UTC";
const SECOND: u64 = 1_000_000;
/// The most changes of an offset. Two a year are usual, and Morocco has four.
const MAX_SHIFTS: usize = 1_024;
const MAX_NAME_BYTES: usize = 40;
const MAX_VERSION_BYTES: usize = 8;

/// A name such as `Europe/Madrid`.
#[derive(Clone, Debug)]
pub(crate) struct ZoneName(String);

impl Form for ZoneName {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/_+-".contains(&byte);
        node.parse(|name| {
            match (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(allowed) {
                true => Ok(Self(name.into())),
                false => Err(format!("{EXPECTED}, found {}", Quoted(name))),
            }
        })
    }
}

const EXPECTED: &str = "expected a time zone such as \"Europe/Madrid\", or \"UTC\"";

/// What a policy says of a time zone.
#[derive(Clone, Debug)]
pub(crate) struct ZoneData {
    pub(super) version: String,
    pub(super) shifts: Vec<Shift>,
    pub(super) until: Timestamp,
}

impl Form for ZoneData {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(|text| {
            Self::parse(text).ok_or_else(|| {
                format!(
                    "expected what `tidegate check --compile` wrote, such as \"2026b 0+3600 2366841600\"; found {}",
                    Quoted(text)
                )
            })
        })
    }
}

impl ZoneData {
    /// `None` if the text is no data of a zone.
    fn parse(text: &str) -> Option<Self> {
        let mut words: Vec<&str> = text.split(' ').collect();
        let until = instant(words.pop()?)?;
        let shift = |word: &str| {
            let (from, offset) = word.split_at_checked(word.find(['+', '-'])?)?;
            Some(Shift { from: instant(from)?, offset_s: offset.parse().ok()? })
        };
        let (version, shifts) = words.split_first()?;
        let shifts: Vec<Shift> = shifts.iter().map(|word| shift(word)).collect::<Option<_>>()?;
        let fits = (1..=MAX_VERSION_BYTES).contains(&version.len())
            && (1..=MAX_SHIFTS).contains(&shifts.len());
        let data = Self { version: (*version).into(), shifts, until };
        (fits && Zone::new(&data.shifts, until).is_ok()).then_some(data)
    }

    fn named(self, name: &str) -> Option<Zone<Shifts>> {
        let Self { version, shifts, until } = self;
        Zone::new(Shifts(Arc::new(Named { name: name.into(), version, shifts })), until).ok()
    }
}

fn instant(seconds: &str) -> Option<Timestamp> {
    let plain = seconds.bytes().all(|byte| byte.is_ascii_digit());
    let seconds: u64 = plain.then(|| seconds.parse().ok()).flatten()?;
    seconds.checked_mul(SECOND).map(Timestamp)
}

/// The zone of these fields.
pub(super) fn of(name: Option<&ZoneName>, data: Option<&ZoneData>) -> Result<Zone<Shifts>, String> {
    let name = name.map_or(UTC, |name| &name.0);
    let found = match data {
        Some(_) if name == UTC => {
            return Err("`zone_data`: expected no such field, because UTC needs none".into());
        }
        Some(data) => Some(data.clone()),
        None if name == UTC => None,
        None => database(name)?,
    };
    let zone = match found {
        None if name == UTC => without_shifts(name.into(), Timestamp(MAX_QUANTITY)),
        found => found.and_then(|data| data.named(name)),
    };
    zone.ok_or_else(|| format!("`timezone`: {EXPECTED}, found {}", Quoted(name)))
}

#[cfg(feature = "timezones")]
#[expect(clippy::unnecessary_wraps, reason = "without the database it fails")]
fn database(name: &str) -> Result<Option<ZoneData>, String> {
    Ok(super::tzdb::data(name))
}

#[cfg(feature = "timezones")]
pub(super) fn of_database(name: &str) -> Option<Zone<Shifts>> {
    (name != UTC).then(|| super::tzdb::data(name)?.named(name)).flatten()
}

#[cfg(not(feature = "timezones"))]
fn database(_: &str) -> Result<Option<ZoneData>, String> {
    Err("missing field `zone_data`: this build has no time zones; `tidegate check --compile` adds the field".into())
}

/// A zone without a change of its offset.
fn without_shifts(name: String, until: Timestamp) -> Option<Zone<Shifts>> {
    let (version, shifts) = (String::new(), Vec::new());
    Zone::new(Shifts(Arc::new(Named { name, version, shifts })), until).ok()
}

fn named(zone: &Zone<Shifts>) -> &Named {
    &zone.table().0
}

pub(super) fn name(zone: &Zone<Shifts>) -> &str {
    &named(zone).name
}

/// The time zone, without the instants at which its offset changes.
pub(super) fn facts(zone: &Zone<Shifts>) -> Timezone<'_> {
    let Named { name, version, shifts } = named(zone);
    let from = shifts.first().map_or(Timestamp::EPOCH, |first| first.from);
    Timezone { name, version, from, until: zone.until() }
}

/// The field `zone_data` with what is known of the zone between two instants; `None` for UTC.
pub(super) fn data(zone: &Zone<Shifts>, from: Timestamp, until: Timestamp) -> Option<String> {
    let Named { version, shifts, .. } = named(zone);
    let first = shifts.partition_point(|shift| shift.from <= from).saturating_sub(1);
    let (first, rest) = shifts.get(first..)?.split_first()?;
    let from = first.from.max(from);
    let mut text = version.clone();
    let rest = rest.iter().filter(|shift| shift.from < until);
    for shift in [Shift { from, ..*first }].iter().chain(rest) {
        let second = shift.from.0.checked_div(SECOND).unwrap_or_default();
        let _ = write!(text, " {second}{:+}", shift.offset_s);
    }
    let _ = write!(text, " {}", zone.until().min(until).0.checked_div(SECOND).unwrap_or_default());
    Some(text)
}

/// The name in numbers: how many there are, and its bytes.
pub(super) fn write_name(zone: &Zone<Shifts>, numbers: &mut Vec<u64>) {
    let words = name(zone).as_bytes().chunks(8);
    numbers.push(wide(words.len()));
    numbers.extend(words.map(packed));
}

/// The version, the end and the changes in numbers; nothing for UTC.
pub(super) fn write_data(zone: &Zone<Shifts>, numbers: &mut Vec<u64>) {
    let Named { version, shifts, .. } = named(zone);
    if !version.is_empty() {
        numbers.extend([packed(version.as_bytes()), zone.until().0]);
        let offset = |shift: &Shift| shift.offset_s.cast_unsigned().into();
        numbers.extend(shifts.iter().flat_map(|shift| [shift.from.0, offset(shift)]));
    }
}

/// The zone whose name, and perhaps data, are these numbers. Nothing is known of a zone without data: a limit says what a state
/// counts, and its one window never ends.
pub(super) fn of_numbers(numbers: &[u64]) -> Option<Zone<Shifts>> {
    let (&words, rest) = numbers.split_first()?;
    let (name, data) = rest.split_at_checked(usize::try_from(words).ok()?)?;
    let name = unpacked(name).filter(|name| (1..=MAX_NAME_BYTES).contains(&name.len()))?;
    let [version, until, ref shifts @ ..] = *data else {
        let until = if name == UTC { MAX_QUANTITY } else { 0 };
        return data.is_empty().then(|| without_shifts(name, Timestamp(until)))?;
    };
    let (shifts, []) = shifts.as_chunks() else { return None };
    let shift = |&[from, offset]: &[u64; 2]| {
        let offset_s = u32::try_from(offset).ok()?.cast_signed();
        Some(Shift { from: Timestamp(from), offset_s })
    };
    let shifts: Vec<Shift> = shifts.iter().map(shift).collect::<Option<_>>()?;
    let version = unpacked(&[version]).filter(|_| name != UTC && !shifts.is_empty())?;
    ZoneData { version, shifts, until: Timestamp(until) }.named(&name)
}

/// Up to eight bytes, none of which is 0.
fn packed(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn unpacked(words: &[u64]) -> Option<String> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    while bytes.pop_if(|last| *last == 0).is_some() {}
    let text = String::from_utf8(bytes).ok()?;
    (!text.is_empty() && !text.contains('\0')).then_some(text)
}
