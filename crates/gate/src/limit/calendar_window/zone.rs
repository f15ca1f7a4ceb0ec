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
use tidegate_form::Quoted;

use crate::fnv::fnv1a;
use crate::units::whole;

/// The changes of a zone's offset, its name, and the version of the database from which they are. All clones are one.
#[derive(Clone, Debug)]
pub struct Shifts(Arc<Named>);

#[derive(Debug)]
struct Named {
    /// A hash of the name, which fingerprints of stored states contain.
    hash: u64,
    name: String,
    /// Empty for UTC.
    version: String,
    shifts: Vec<Shift>,
}

/// The version only says where the changes come from, and the hash stands for the name.
impl PartialEq for Shifts {
    fn eq(&self, other: &Self) -> bool {
        self.0.hash == other.0.hash && self.0.shifts == other.0.shifts
    }
}

impl Eq for Shifts {}

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

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/_+-".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(allowed)
}

/// What is known of a time zone.
pub(super) struct ZoneData {
    pub(super) version: String,
    pub(super) shifts: Vec<Shift>,
    pub(super) until: Timestamp,
}

impl ZoneData {
    const fn utc() -> Self {
        Self { version: String::new(), shifts: Vec::new(), until: Timestamp(MAX_QUANTITY) }
    }

    /// `None` if the text is no data of a zone.
    fn parse(text: &str) -> Option<Self> {
        let (version, rest) = text.split_once(' ')?;
        let (changes, until) = rest.rsplit_once(' ')?;
        let mut shifts = Vec::new();
        for change in changes.split(' ') {
            let (from, offset) = change.split_at_checked(change.find(['+', '-'])?)?;
            let size = i32::try_from(whole(offset.get(1..)?)?).ok()?;
            let offset_s = if offset.starts_with('-') { size.saturating_neg() } else { size };
            shifts.push(Shift { from: instant(from)?, offset_s });
        }
        let fits = version.len() <= MAX_VERSION_BYTES && shifts.len() <= MAX_SHIFTS;
        fits.then_some(Self { version: version.into(), shifts, until: instant(until)? })
    }

    fn named(self, name: &str) -> Option<Zone<Shifts>> {
        let Self { version, shifts, until } = self;
        named_zone(hash_of(name), name.into(), version, shifts, until)
    }
}

fn named_zone(
    hash: u64,
    name: String,
    version: String,
    shifts: Vec<Shift>,
    until: Timestamp,
) -> Option<Zone<Shifts>> {
    Zone::new(Shifts(Arc::new(Named { hash, name, version, shifts })), until).ok()
}

fn hash_of(name: &str) -> u64 {
    fnv1a(name.bytes())
}

fn instant(seconds: &str) -> Option<Timestamp> {
    whole(seconds)?.checked_mul(SECOND).map(Timestamp)
}

/// The zone of these fields.
pub(super) fn of(name: Option<&str>, text: Option<&str>) -> Result<Zone<Shifts>, String> {
    let name = name.unwrap_or(UTC);
    let data = match text {
        Some(text) if name != UTC => ZoneData::parse(text),
        Some(_) => return Err("`zone_data`: expected no such field, because UTC needs none".into()),
        None if name == UTC => Some(ZoneData::utc()),
        None => return database(name),
    };
    if !is_name(name) {
        return Err(unknown(name));
    }
    data.and_then(|data| data.named(name)).ok_or_else(|| {
        let found = Quoted(text.unwrap_or_default());
        format!("`zone_data`: expected what `tidegate check --compile` writes, found {found}")
    })
}

fn unknown(name: &str) -> String {
    let found = Quoted(name);
    format!("`timezone`: expected a time zone such as \"Europe/Madrid\", or \"UTC\", found {found}")
}

#[cfg(feature = "timezones")]
fn database(name: &str) -> Result<Zone<Shifts>, String> {
    of_database(name).ok_or_else(|| unknown(name))
}

#[cfg(feature = "timezones")]
pub(super) fn of_database(name: &str) -> Option<Zone<Shifts>> {
    (name != UTC).then(|| super::tzdb::data(name)?.named(name)).flatten()
}

#[cfg(not(feature = "timezones"))]
fn database(_: &str) -> Result<Zone<Shifts>, String> {
    Err("missing field `zone_data`: this build has no time zones; `tidegate check --compile` adds the field".into())
}

fn named(zone: &Zone<Shifts>) -> &Named {
    &zone.table().0
}

pub(super) fn name(zone: &Zone<Shifts>) -> &str {
    &named(zone).name
}

/// The time zone, without the instants at which its offset changes.
pub(super) fn facts(zone: &Zone<Shifts>) -> Timezone<'_> {
    let Named { name, version, shifts, .. } = named(zone);
    let from = shifts.first().map_or(Timestamp::EPOCH, |first| first.from);
    Timezone { name, version, from, until: zone.until() }
}

/// The text of `zone_data`: the known changes of the zone between two instants. `None` for UTC.
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

/// The hash of the name, which stands for the zone in fingerprints.
pub(super) fn hash(zone: &Zone<Shifts>) -> u64 {
    named(zone).hash
}

/// The end and the changes in numbers; nothing for UTC.
pub(super) fn write_data(zone: &Zone<Shifts>, numbers: &mut Vec<u64>) {
    let shifts = &named(zone).shifts;
    if !shifts.is_empty() {
        numbers.push(zone.until().0);
        let offset = |shift: &Shift| shift.offset_s.cast_unsigned().into();
        numbers.extend(shifts.iter().flat_map(|shift| [shift.from.0, offset(shift)]));
    }
}

/// The zone whose hash, and perhaps data, are these numbers. Nothing is known of a zone without data: a limit says what a state
/// counts, and its one window never ends.
pub(super) fn of_numbers(numbers: &[u64]) -> Option<Zone<Shifts>> {
    let (&hash, data) = numbers.split_first()?;
    let is_utc = hash == hash_of(UTC);
    let (until, data) = match data.split_first() {
        Some((until, shifts)) if !is_utc && !shifts.is_empty() => (*until, shifts),
        None => (if is_utc { MAX_QUANTITY } else { 0 }, data),
        _ => return None,
    };
    let (pairs, []) = data.as_chunks() else { return None };
    let mut shifts = Vec::new();
    for &[from, offset] in pairs {
        let offset_s = u32::try_from(offset).ok()?.cast_signed();
        shifts.push(Shift { from: Timestamp(from), offset_s });
    }
    named_zone(hash, String::new(), String::new(), shifts, Timestamp(until))
}
