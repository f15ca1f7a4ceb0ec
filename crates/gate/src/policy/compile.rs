//! Writes the data of time zones into a policy file, for a build without the time zone database.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::Timestamp;
use tidegate_form::{Error, Node, Value, json, toml};

use super::error::PolicyError;
use super::policies::Policies;
use crate::limit::zone_data;

/// A text to put in place of some bytes.
struct Edit {
    at: usize,
    bytes: usize,
    text: String,
}

impl Policies {
    /// Writes `zone_data` beside each `timezone` of a policy file, from one instant up to another, and leaves the rest of the
    /// file as it is. Returns the new text. A file that names no time zone, or only UTC, stays as it is.
    ///
    /// The feature `timezones` has this function, and the time zone database.
    ///
    /// # Errors
    /// Fails with [`PolicyError`] if the file is not valid, or becomes invalid because no field can be put beside a `timezone`.
    ///
    /// ```
    /// use tidegate_gate::{Policies, Timestamp};
    /// let file = r#"
    ///     [policies.api]
    ///     limits = [{ algorithm = "calendar", limit = 9, period = "day", timezone = "Asia/Tokyo" }]
    /// "#;
    /// let until = Timestamp(2_000_000_000_000_000);
    /// let compiled = Policies::compile(file, Timestamp(1_700_000_000_000_000), until).unwrap();
    /// assert!(compiled.contains(r#"timezone = "Asia/Tokyo", zone_data = "20"#));
    /// assert!(compiled.contains(r#" 1700000000+32400 2000000000" }]"#));
    /// ```
    pub fn compile(text: &str, from: Timestamp, until: Timestamp) -> Result<String, PolicyError> {
        let start = text.len().saturating_sub(text.trim_start_matches('\u{feff}').len());
        let (mark, file) = text.split_at_checked(start).unwrap_or(("", text));
        let is_json = file.trim_start().starts_with('{');
        let map = if is_json { "an object" } else { "a table" };
        let failed = |error: Error| PolicyError::new(file, &error, map);
        let tree = if is_json { json(file) } else { toml(file) }.map_err(failed)?;
        let mut edits = Vec::new();
        collect(&tree, file, is_json, &|name| zone_data(name, from, until), &mut edits);
        edits.sort_by_key(|edit: &Edit| edit.at);
        let mut compiled = String::from(mark);
        let mut rest = 0;
        for Edit { at, bytes, text } in edits {
            compiled.push_str(file.get(rest..at).unwrap_or_default());
            compiled.push_str(&text);
            rest = at.saturating_add(bytes);
        }
        compiled.push_str(file.get(rest..).unwrap_or_default());
        Self::parse(text)?;
        Self::parse(&compiled)?;
        Ok(compiled)
    }
}

/// Finds each map with a time zone that has data.
fn collect(
    node: &Node<'_>,
    file: &str,
    is_json: bool,
    data: &impl Fn(&str) -> Option<String>,
    edits: &mut Vec<Edit>,
) {
    if let Value::List(items) = &node.value {
        items.iter().for_each(|item| collect(item, file, is_json, data, edits));
    }
    let find = |field: &str| node.entries().find(|(name, _)| *name == field).map(|(_, node)| node);
    for (_, child) in node.entries() {
        collect(child, file, is_json, data, edits);
    }
    let Some(zone) = find("timezone") else { return };
    let Some(data) = zone.text().ok().and_then(data) else { return };
    if let Some(old) = find("zone_data") {
        let bytes = old.text().map_or(0, str::len);
        edits.push(Edit { at: old.at().saturating_add(1), bytes, text: data });
        return;
    }
    let quoted = zone.text().map_or(0, str::len).saturating_add(2);
    let at = zone.at().saturating_add(quoted);
    let before = file.get(..zone.at()).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default().trim_start();
    let text = match (is_json, line.starts_with("timezone")) {
        (true, _) => format!(", \"zone_data\": \"{data}\""),
        // a line of its own, in a table with a header of its own
        (false, true) => format!("\nzone_data = \"{data}\""),
        (false, false) => format!(", zone_data = \"{data}\""),
    };
    edits.push(Edit { at, bytes: 0, text });
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    const FROM: Timestamp = Timestamp(1_735_689_600_000_000);
    const UNTIL: Timestamp = Timestamp(1_767_225_600_000_000);

    fn compiled(text: &str) -> String {
        let new = Policies::compile(text, FROM, UNTIL).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(Policies::compile(&new, FROM, UNTIL), Ok(new.clone()), "nothing changes twice");
        new
    }

    fn tokyo() -> String {
        let data = zone_data("Asia/Tokyo", FROM, UNTIL).unwrap();
        assert!(data.ends_with(" 1735689600+32400 1767225600"), "{data}");
        data
    }

    #[test]
    fn data_come_after_the_zone_in_each_way_to_write_a_limit() {
        let limit = "algorithm = 'calendar', limit = 1, period = 'day'";
        let data = tokyo();
        for (before, after) in [
            (
                format!("\u{feff}[policies.a] # zone\nlimits = [{{ {limit}, timezone = 'Asia/Tokyo' }}]\n"),
                format!("\u{feff}[policies.a] # zone\nlimits = [{{ {limit}, timezone = 'Asia/Tokyo', zone_data = \"{data}\" }}]\n"),
            ),
            (
                "[[policies.a.limits]]\ntimezone = \"Asia/Tokyo\" # here\nalgorithm = 'calendar'\nlimit = 1\nperiod = 'day'\n".to_string(),
                format!("[[policies.a.limits]]\ntimezone = \"Asia/Tokyo\"\nzone_data = \"{data}\" # here\nalgorithm = 'calendar'\nlimit = 1\nperiod = 'day'\n"),
            ),
            (
                r#"{"policies": {"a": {"limits": [{"algorithm": "calendar", "limit": 1, "period": "day", "timezone": "Asia/Tokyo"}]}}}"#.to_string(),
                format!(r#"{{"policies": {{"a": {{"limits": [{{"algorithm": "calendar", "limit": 1, "period": "day", "timezone": "Asia/Tokyo", "zone_data": "{data}"}}]}}}}}}"#),
            ),
            (
                format!("[policies.a]\nlimits = [{{ {limit} }}]\noverrides = {{ b = {{ timezone = 'Asia/Tokyo' }} }}\n"),
                format!("[policies.a]\nlimits = [{{ {limit} }}]\noverrides = {{ b = {{ timezone = 'Asia/Tokyo', zone_data = \"{data}\" }} }}\n"),
            ),
            (
                format!("[policies.a]\nlimits = [{{ {limit}, timezone = 'UTC' }}]\n"),
                format!("[policies.a]\nlimits = [{{ {limit}, timezone = 'UTC' }}]\n"),
            ),
        ] {
            assert_eq!(compiled(&before), after);
        }
    }

    #[test]
    fn old_data_are_replaced() {
        let limit = |data: &str| {
            format!(
                "[policies.a]\nlimits = [{{ zone_data = '{data}', algorithm = 'calendar', limit = 1, period = 'day', timezone = 'Asia/Tokyo' }}]"
            )
        };
        assert_eq!(compiled(&limit("1999z 0+0 9")), limit(&tokyo()));
    }

    #[test]
    fn an_override_with_another_zone_has_no_data_of_the_first_one() {
        let text = "[policies.a]\nlimits = [{ algorithm = 'calendar', limit = 1, period = 'day', timezone = 'Asia/Tokyo' }]\n\
                    overrides = { b = { timezone = 'UTC' }, c = { timezone = 'Europe/Madrid' }, d = { limit = 2 } }\n";
        let text = compiled(text);
        let policies = Policies::parse(&text).unwrap();
        let own = policies.get("a").unwrap().overrides();
        let zones: Vec<_> = own
            .iter()
            .map(|(_, limits)| limits.iter().next().unwrap().limit.calendar().unwrap().timezone())
            .map(|zone| (zone.name, zone.until < Timestamp(2_000_000_000_000_000)))
            .collect();
        assert_eq!(zones.len(), 3);
        for zone in [("UTC", false), ("Europe/Madrid", true), ("Asia/Tokyo", true)] {
            assert!(zones.contains(&zone), "{zones:?}");
        }
    }

    #[test]
    fn what_is_no_policy_file_is_refused() {
        for text in ["[policies.a]\nlimits = []", "{", "x"] {
            let error = Policies::compile(text, FROM, UNTIL).unwrap_err();
            assert_eq!(Policies::parse(text).unwrap_err(), error);
        }
    }
}
