//! Calendar windows for people: when they begin, how far they are known, and what to do about it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use tidegate::gate::{CalendarFacts, Limits, Policies, Policy, Timestamp, zone_data};

/// Below this time until the last known boundary, a policy is warned of.
const SOON_US: u64 = 2 * 366 * 86_400_000_000;

/// The next windows of each calendar limit of a policy.
pub(super) fn describe(policy: &Policy, now: Timestamp) -> String {
    let line = |(name, calendar): (String, CalendarFacts<'_>)| {
        let next = calendar.boundaries_after(now).take(3).map(shown).collect::<Vec<_>>();
        let zone = calendar.timezone();
        let known = match zone.version {
            "" => String::new(),
            version => format!("; {} of {version}, until {}", zone.name, shown(zone.until)),
        };
        format!("  {name} begins again {}{known}\n", next.join(", "))
    };
    calendars(policy).map(line).collect()
}

/// What is wrong, or soon will be, with the data of a policy's time zones.
pub(super) fn warnings(policy: &Policy, now: Timestamp) -> Vec<String> {
    let of_limit = |(name, calendar): (String, CalendarFacts<'_>)| {
        let zone = calendar.timezone();
        let (from, last) = calendar.reach();
        let remedy = "`tidegate check --compile` writes newer data";
        if now < from || last <= now {
            let (from, last) = (shown(from), shown(last));
            return Some(format!(
                "`zone_data`: expected data for the time of now, found data from {from} to {last}; `{name}` grants its limit \
                 once, and then nothing until it has newer data; {remedy}"
            ));
        }
        if last.saturating_since(now).0 < SOON_US {
            return Some(format!(
                "`zone_data`: expected data for two years or more, found data until {}; {remedy}",
                shown(last)
            ));
        }
        let known = zone_data(zone.name, now, zone.until)?;
        let (version, newer) = known.split_once(' ')?;
        let own = calendar.zone_data(now, zone.until)?;
        let (_, own) = own.split_once(' ')?;
        (own != newer).then(|| {
            format!(
                "`zone_data`: expected what version {version} knows of {}, found other data, of version {}; {remedy}",
                zone.name, zone.version
            )
        })
    };
    calendars(policy).filter_map(of_limit).collect()
}

/// Writes the data of its time zones into a policy file. Returns what was done.
pub(super) fn compile(file: &Path, years: u16, now: Timestamp) -> Result<String> {
    let shown_file = file.display();
    let text = tidegate::file::read(file)
        .and_then(tidegate::file::text)
        .with_context(|| shown_file.to_string())?;
    let (from, until) = span(years, now)?;
    let compiled = Policies::compile(&text, from, until).with_context(|| shown_file.to_string())?;
    if compiled != text {
        fs::write(file, &compiled).with_context(|| shown_file.to_string())?;
    }
    let what = if compiled == text { "as it was" } else { "written" };
    Ok(format!("{shown_file}: zone data from {} to {}, {what}", shown(from), shown(until)))
}

/// From the beginning of the year before last, so that the windows of now are known, to the end of a year.
fn span(years: u16, now: Timestamp) -> Result<(Timestamp, Timestamp)> {
    let this = instant(now)?.to_zoned_datetime(TimeZone::UTC).year();
    let begin = |year: i16| -> Result<Timestamp> {
        let begin = Date::new(year, 1, 1)?.to_zoned_datetime(TimeZone::UTC)?.timestamp();
        Ok(Timestamp(u64::try_from(begin.as_microsecond())?))
    };
    let end = this.saturating_add_unsigned(years).saturating_add(1);
    Ok((begin(this.saturating_sub(2))?, begin(end)?))
}

fn calendars(policy: &Policy) -> impl Iterator<Item = (String, CalendarFacts<'_>)> {
    let own = policy.overrides().iter().map(|(pattern, own)| (format!("{pattern}: "), own));
    let rules = std::iter::once((String::new(), policy.limits())).chain(own);
    rules.flat_map(|(place, limits): (String, &Limits)| {
        let named = limits.iter().filter_map(|named| Some((named, named.limit.calendar()?)));
        named
            .map(|(named, calendar)| (format!("{place}{}", named.name), calendar))
            .collect::<Vec<_>>()
    })
}

fn instant(time: Timestamp) -> Result<jiff::Timestamp> {
    Ok(jiff::Timestamp::from_microsecond(i64::try_from(time.0)?)?)
}

fn shown(time: Timestamp) -> String {
    instant(time).map_or_else(|_| "the end of time".to_owned(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_795_392_000_000_000); // 2026-11-23

    fn policy(fields: &str) -> Policy {
        let limit = format!("{{ algorithm = 'calendar', limit = 5, period = 'month', {fields} }}");
        Policy::parse("p", &format!("limits = [{limit}]")).unwrap()
    }

    #[test]
    fn the_next_windows_are_named() {
        let text = describe(&policy("anchor = 31"), NOW);
        let next = "2026-11-30T00:00:00Z, 2026-12-31T00:00:00Z, 2027-01-31T00:00:00Z";
        assert_eq!(text, format!("  p begins again {next}\n"));
        let text = describe(&policy("timezone = 'Europe/Madrid'"), NOW);
        let next = "2026-11-30T23:00:00Z, 2026-12-31T23:00:00Z, 2027-01-31T23:00:00Z";
        assert!(
            text.starts_with(&format!("  p begins again {next}; Europe/Madrid of 20")),
            "{text}"
        );
        assert!(text.ends_with(", until 2120-01-01T00:00:00Z\n"), "{text}");
    }

    #[test]
    fn data_that_end_or_are_old_are_warned_of() {
        let madrid = "timezone = 'Europe/Madrid'";
        assert_eq!(warnings(&policy(madrid), NOW), [""; 0]);
        assert_eq!(warnings(&policy("anchor = 31"), NOW), [""; 0]);
        let (from, until) = span(20, NOW).unwrap();
        assert_eq!(
            (shown(from), shown(until)),
            ("2024-01-01T00:00:00Z".into(), "2047-01-01T00:00:00Z".into())
        );
        let data = |until| zone_data("Europe/Madrid", from, until).unwrap();
        let with = |data: &str| policy(&format!("{madrid}, zone_data = '{data}'"));
        assert_eq!(warnings(&with(&data(until)), NOW), [""; 0]);
        for (data, expected) in [
            (
                data(NOW),
                "`zone_data`: expected data for the time of now, found data from 2024-01-01T00:00:00Z to 2026-10-31T23:00:00Z",
            ),
            (
                data(Timestamp(NOW.0 + SOON_US)),
                "`zone_data`: expected data for two years or more, found data until 2028-10-31T23:00:00Z",
            ),
            (
                "2020a 1704067200+3600 2429913600".to_owned(),
                "`zone_data`: expected what version 20",
            ),
        ] {
            let found = warnings(&with(&data), NOW);
            assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
        }
    }

    #[test]
    fn data_are_written_into_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policies.toml");
        let text = "[policies.p]\nlimits = [{ algorithm = 'calendar', limit = 5, period = 'day', timezone = 'Asia/Tokyo' }]\n";
        fs::write(&file, text).unwrap();
        let said = compile(&file, 20, NOW).unwrap();
        assert!(
            said.ends_with("zone data from 2024-01-01T00:00:00Z to 2047-01-01T00:00:00Z, written"),
            "{said}"
        );
        let compiled = fs::read_to_string(&file).unwrap();
        assert!(compiled.contains("timezone = 'Asia/Tokyo', zone_data = \"20"), "{compiled}");
        assert!(compile(&file, 20, NOW).unwrap().ends_with("as it was"));
    }
}
