//! Overrides of one key for a time, which callers put beside a policy file while a server runs.
//!
//! They stand in lines after the file, so that the text is one revision: it is stored, hashed and passed on as a whole. To TOML the
//! lines are comments. [`Policies::parse`] does not read them; [`TimedPolicies::parse`] reads them at a time.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_core::{MAX_QUANTITY, Timestamp};
use tidegate_form::{Bounded, Error, Form, Node, json};

use super::error::PolicyError;
use super::file::{File, parse_edited};
use super::policies::Policies;
use super::policy::{Policy, Timed};
use super::rule::RuleId;
use crate::key::{canonical_key, check_key};

/// The line before the overrides.
const MARK: &str = "\n# Overrides of one key for a time, by PUT /v1/overrides:\n";

/// How the line of an override begins.
const LINE: &str = "# ";

/// The most timed overrides beside a file.
const MOST: usize = 100;

/// The most bytes of the fields of a timed override.
const MOST_BYTES: usize = 2_048;

/// An override of one key until a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedOverride {
    /// The name of the policy.
    pub policy: String,
    /// The key.
    pub key: String,
    /// Who put it.
    pub by: String,
    /// The time at which it ends.
    pub until: Timestamp,
    /// The fields of the override and `until_us`, a JSON object in one line.
    pub fields: String,
}

/// Tells a policy the ends of its overrides.
fn add_ends(
    policy: &mut Arc<Policy>,
    former: &Policies,
    live: &[&TimedOverride],
) -> Result<(), PolicyError> {
    let own = live.iter().filter(|own| own.policy == policy.name());
    let ends = own.filter_map(|own| match policy.find(&own.key) {
        RuleId::Override(place) => Some((place, own.until)),
        _ => None,
    });
    let ends: Vec<_> = ends.collect();
    if let Some(former) = former.get(policy.name()).filter(|_| !ends.is_empty()) {
        if policy.partition != former.partition {
            let message = "expected overrides of one key that leave the smallest `depth` of all limits as it is, because \
                           every key would start afresh; found another smallest `depth`";
            let path = format!("policies.{}.overrides", policy.name());
            return Err(PolicyError::at_path(path, message.to_owned()));
        }
        Arc::make_mut(policy).timed = Some(Timed { former: Arc::clone(former), ends });
    }
    Ok(())
}

impl Policy {
    /// The end of a rule, and the policy that holds from then on; `None` for a rule without an end.
    pub(super) fn end_of(&self, found: RuleId) -> Option<(Timestamp, &Arc<Self>)> {
        let Timed { former, ends } = self.timed.as_ref()?;
        let RuleId::Override(found) = found else { return None };
        let end = ends.iter().find(|(place, _)| *place == found);
        end.map(|(_, until)| (*until, former))
    }
}

/// A policy file with the overrides that hold at a time.
#[derive(Clone, Debug)]
pub struct TimedPolicies {
    /// The policies, with these overrides.
    pub policies: Policies,
    /// The end of the override that ended last; `None` if all of them hold. The text has the same policies at each time from it on and
    /// before [`ends`](Self::ends).
    pub since: Option<Timestamp>,
    /// The earliest time at which an override ends; `None` without overrides.
    pub ends: Option<Timestamp>,
}

impl TimedPolicies {
    /// Reads a policy file and the overrides after it that hold at `now`. An override of a policy that the file does not have holds
    /// nothing.
    ///
    /// # Errors
    /// Fails with [`PolicyError`], which names the place in the file. For an override it names no line.
    ///
    /// ```
    /// use tidegate_gate::{TimedOverride, TimedPolicies, Timestamp};
    /// let file = "[policies.api]\nlimits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]\n";
    /// let own = TimedOverride::new("api", "user:42", "alice", r#"{"limit": 50, "until_us": 7000000}"#).unwrap();
    /// let text = TimedOverride::join(file, &[own]);
    /// let limit = |now| {
    ///     let policies = TimedPolicies::parse(&text, Timestamp(now)).unwrap().policies;
    ///     policies.get("api").unwrap().overrides().first().map(|(_, limits)| limits.capacity())
    /// };
    /// assert_eq!(limit(6_999_999), Some(50));
    /// assert_eq!(limit(7_000_000), None);
    /// ```
    pub fn parse(text: &str, now: Timestamp) -> Result<Self, PolicyError> {
        let (file, overrides) = TimedOverride::split(text);
        let (ended, live): (Vec<_>, Vec<_>) = overrides.iter().partition(|own| own.until <= now);
        let since = ended.iter().map(|own| own.until).max();
        let ends = live.iter().map(|own| own.until).min();
        let edited: File =
            parse_edited(file, &mut |tree| live.iter().for_each(|own| own.add_to(tree)))?;
        let mut policies: Policies = edited.try_into()?;
        if !live.is_empty() {
            let former = Policies::parse(file)?;
            for policy in &mut policies.policies {
                add_ends(policy, &former, &live)?;
            }
        }
        Ok(Self { policies, since, ends })
    }
}

impl TimedOverride {
    /// An override with the fields of this JSON object, of which `until_us` says when it ends.
    ///
    /// # Errors
    /// The message says what was expected and what was found.
    pub fn new(policy: &str, key: &str, by: &str, fields: &str) -> Result<Self, String> {
        check_key(key).map_err(|error| format!("{error}"))?;
        if key.contains('*') {
            let message = "`key`: expected one key, found a key with `*`; the policy file has overrides of many keys";
            return Err(message.to_owned());
        }
        if fields.len() > MOST_BYTES {
            let found = fields.len();
            return Err(format!("the body: expected at most {MOST_BYTES} bytes, found {found}"));
        }
        let fields = fields.trim().replace(['\n', '\r'], " "); // a string of JSON has no line breaks
        let until = json(&fields).and_then(|node| until(&node));
        let until = until.map_err(|error| {
            let (path, message) = (error.path(), error.message("an object"));
            if path.is_empty() { message } else { format!("`{path}`: {message}") }
        })?;
        let (policy, by) = (policy.to_owned(), by.to_owned());
        let key = canonical_key(key, 128).into_owned(); // one address has several spellings
        Ok(Self { policy, key, by, until, fields })
    }

    /// The policy file in a text that may also have overrides.
    #[must_use]
    pub fn file_of(text: &str) -> &str {
        text.split_once(MARK).map_or(text, |(file, _)| file)
    }

    /// A policy file and the overrides after it. Lines that cannot be read are no overrides.
    #[must_use]
    pub fn split(text: &str) -> (&str, Vec<Self>) {
        let Some((file, lines)) = text.split_once(MARK) else { return (text, Vec::new()) };
        (file, lines.lines().filter_map(Self::read).collect())
    }

    /// A policy file, followed by overrides.
    #[must_use]
    pub fn join(file: &str, overrides: &[Self]) -> String {
        let mut text = file.to_owned();
        if !overrides.is_empty() {
            text.push_str(MARK);
        }
        for Self { policy, key, by, fields, .. } in overrides {
            // policies have names without special characters
            let [key, by] = [key, by].map(|text| quoted(text));
            text.push_str(&format!(
                "{LINE}{{\"policy\":\"{policy}\",\"key\":{key},\"by\":{by},\"override\":{fields}}}\n"
            ));
        }
        text
    }

    /// Puts an override beside others, in place of an earlier one of the same key.
    ///
    /// # Errors
    /// The message says that there are too many.
    pub fn put(self, overrides: &mut Vec<Self>) -> Result<(), String> {
        overrides.retain(|other| (&other.policy, &other.key) != (&self.policy, &self.key));
        if overrides.len() >= MOST {
            return Err(format!(
                "expected at most {MOST} overrides of one key that have not ended, found {MOST} others; delete one of \
                 them, or write some into the policy file"
            ));
        }
        overrides.push(self);
        Ok(())
    }

    fn read(line: &str) -> Option<Self> {
        let mut node = json(line.strip_prefix(LINE)?).ok()?;
        // the fields as they were written, because a tree cannot be written
        let fields = line.split_once("\"override\":")?.1.strip_suffix('}')?;
        let [policy, key, by] = ["policy", "key", "by"].map(|name| node.remove(name));
        let (policy, key, by) = (policy?, key?, by?);
        Self::new(policy.text().ok()?, key.text().ok()?, by.text().ok()?, fields).ok()
    }

    /// Adds the override to the tree of a file.
    fn add_to<'t>(&'t self, tree: &mut Node<'t>) {
        let Ok(mut fields) = json(&self.fields) else { return }; // it was read before
        fields.remove("until_us");
        let policy = tree.field_mut("policies").and_then(|all| all.field_mut(&self.policy));
        let Some(policy) = policy else { return };
        if policy.field_mut("overrides").is_none() {
            let Ok(empty) = json("{}") else { return }; // never: it is JSON
            policy.put("overrides", empty);
        }
        if let Some(overrides) = policy.field_mut("overrides") {
            overrides.put(self.key.as_str(), fields);
        }
    }
}

fn until(fields: &Node<'_>) -> Result<Timestamp, Error> {
    fields.must_be_map("an object")?;
    let until = fields.entries().find(|(name, _)| *name == "until_us").map(|(_, node)| node);
    let until = until.ok_or_else(|| Error::plain("missing field `until_us`".to_owned()))?;
    let until: Bounded<1, MAX_QUANTITY> =
        Form::read(until).map_err(|error: Error| error.in_field("until_us"))?;
    if fields.entries().all(|(name, _)| name == "until_us") {
        // the key would start afresh under the limits that it has
        let message =
            "expected `limits`, or a field of the policy's limit, beside `until_us`; found neither";
        return Err(Error::plain(message.to_owned()));
    }
    Ok(Timestamp(until.get()))
}

/// A text as JSON has it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            _ if char.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(char))),
            _ => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}
