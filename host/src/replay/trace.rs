//! Reads a trace: an access log or newline-delimited JSON, plain or compressed with gzip.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use flate2::bufread::MultiGzDecoder;
use indicatif::ProgressBar;
use jiff::fmt::strtime;
use serde_json::{Map, Value, json};
use tidegate_gate::{
    Ask, AskError, Asked, MAX_QUANTITY, OperationError, Policies, Policy, Quoted, Timestamp,
};

/// The longest line that is read. A longer line is skipped and counts as unreadable.
const MAX_LINE_BYTES: usize = 65_536;

/// An operation in a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The operation and its resolved key.
    pub asked: Asked,
    /// The time of the operation, as its line has it.
    pub at: Timestamp,
    /// The key, as the line has it.
    pub key: String,
    /// The operation in JSON, as [`Ask`] reads it.
    pub ask: Value,
}

/// A line of a trace: its event, or why the line cannot be read.
pub type Line = Result<Event, String>;

/// The lines of a trace, in their order.
#[expect(missing_debug_implementations, reason = "holds a reader")]
pub struct Trace<'a> {
    reader: Box<dyn BufRead>,
    policies: &'a Policies,
    /// The policy of lines that name none.
    policy: Option<&'a Arc<Policy>>,
}

impl<'a> Trace<'a> {
    /// Opens a trace. `policy` is the policy of lines that name none, such as those of an access log; if it
    /// is `None` and there is only one policy, that one is used. `bar` shows how much of the file is read.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, or if `policies` has no policy of that name.
    pub fn open(
        file: &Path,
        policies: &'a Policies,
        policy: Option<&str>,
        bar: &ProgressBar,
    ) -> Result<Self> {
        let shown = file.display();
        let mut opened = File::open(file).with_context(|| format!("{shown}"))?;
        bar.set_length(opened.metadata()?.len());
        let mut magic = [0; 2];
        let is_gzip = opened.read(&mut magic).with_context(|| format!("{shown}"))? == 2
            && magic == [0x1f, 0x8b];
        opened.rewind()?;
        let reader = BufReader::new(bar.wrap_read(opened));
        let reader: Box<dyn BufRead> = if is_gzip {
            Box::new(BufReader::new(MultiGzDecoder::new(reader)))
        } else {
            Box::new(reader)
        };
        Self::new(reader, policies, policy)
    }

    /// A trace from any reader; see [`open`](Self::open) for `policy`.
    ///
    /// # Errors
    /// Returns an error if `policies` has no policy of that name.
    pub fn new(
        reader: Box<dyn BufRead>,
        policies: &'a Policies,
        policy: Option<&str>,
    ) -> Result<Self> {
        let policy = match policy {
            Some(name) => Some(policies.get(name).with_context(|| unknown(policies, name))?),
            None => policies.all().first().filter(|_| policies.all().len() == 1),
        };
        Ok(Self { reader, policies, policy })
    }

    /// Reads the next line; `None` at the end.
    ///
    /// # Errors
    /// Returns an error if the rest of the trace cannot be read, for example because its gzip is broken.
    pub fn next_line(&mut self) -> io::Result<Option<Line>> {
        let mut bytes = Vec::new();
        let limit = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX);
        if self.reader.by_ref().take(limit).read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        if bytes.last() != Some(&b'\n') && bytes.len() == MAX_LINE_BYTES {
            self.reader.skip_until(b'\n')?;
            return Ok(Some(Err(format!("the line is longer than {MAX_LINE_BYTES} bytes"))));
        }
        let lossy = String::from_utf8_lossy(&bytes);
        let text = lossy.trim_end_matches(['\n', '\r']);
        let line = if text.starts_with('{') { self.json(text) } else { self.access_log(text) };
        // several invalid byte sequences would become one key
        let is_unsure = |key: &str| key.contains(char::REPLACEMENT_CHARACTER);
        Ok(Some(match (line, lossy) {
            (Ok(event), Cow::Owned(_)) if is_unsure(&event.key) => {
                Err("`key`: expected UTF-8, found other bytes".to_owned())
            }
            (line, _) => line,
        }))
    }

    /// Reads `t_us`, `policy`, `key`, and either the fields of a check or one other operation by its name, such
    /// as `"release":{"lease":"a"}`.
    fn json(&self, text: &str) -> Line {
        let mut fields: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
            format!("column {}: {}", error.column(), without_place(&error.to_string()))
        })?;
        let at = fields.remove("t_us").ok_or("missing field `t_us`")?;
        let at = at.as_u64().filter(|at| *at <= MAX_QUANTITY).ok_or_else(|| {
            format!("`t_us`: expected a whole number from 0 to {MAX_QUANTITY}, found {at}")
        })?;
        let mut text_of = |field: &str| match fields.remove(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!("`{field}`: expected a string, found {other}")),
        };
        let policy = match text_of("policy")? {
            Some(name) => self.policies.get(&name).ok_or_else(|| unknown(self.policies, &name))?,
            None => self.default_policy()?,
        };
        let key = text_of("key")?.ok_or("missing field `key`")?;
        let Some(name) = OPERATIONS.into_iter().find(|name| fields.contains_key(*name)) else {
            let implied = json!({ "check": fields });
            return event(policy, key, Timestamp(at), implied).map_err(|error| {
                // the line has the fields of a check, but no `check`
                error.strip_prefix("`check.").map(|rest| format!("`{rest}")).unwrap_or(error)
            });
        };
        if let Some(other) = fields.keys().find(|field| *field != name) {
            return Err(format!("expected no field beside `{name}`, found {}", Quoted(other)));
        }
        if let Some(found) = fields.get(name).filter(|value| !value.is_object()) {
            return Err(format!("`{name}`: expected an object, found {found}"));
        }
        event(policy, key, Timestamp(at), Value::Object(fields))
    }

    /// Reads a line in common or combined log format: `ADDRESS IDENT USER [TIME] "REQUEST" …`.
    fn access_log(&self, text: &str) -> Line {
        let no_log = || "expected a line of an access log or a JSON object".to_owned();
        let (address, rest) = text.split_once(' ').ok_or_else(no_log)?;
        let (_ident_and_user, rest) = rest.split_once(" [").ok_or_else(no_log)?;
        let (time, rest) = rest.split_once(']').ok_or_else(no_log)?;
        if !rest.starts_with(" \"") {
            return Err(no_log());
        }
        let at = strtime::parse("%d/%b/%Y:%H:%M:%S %z", time)
            .and_then(|time| time.to_timestamp())
            .map_err(|error| format!("time {}: {error}", Quoted(time)))?;
        let at = u64::try_from(at.as_microsecond())
            .map_err(|_| format!("time {}: expected a time from 1970 on", Quoted(time)))?;
        event(self.default_policy()?, address.to_owned(), Timestamp(at), json!({ "check": {} }))
    }

    fn default_policy(&self) -> Result<&'a Arc<Policy>, String> {
        self.policy.ok_or_else(|| {
            "the line names no policy and the file has several: choose one with --policy".to_owned()
        })
    }
}

/// The operations that a line may name.
const OPERATIONS: [&str; 10] =
    ["check", "peek", "settle", "refund", "renew", "release", "budget", "report", "reset", "block"];

/// An operation that every backend would refuse to do makes its line unreadable. A cost that can never be
/// granted does not: the decision on it is a refusal. No random numbers are drawn here, so that all backends
/// get the same operation.
fn event(policy: &Arc<Policy>, key: String, at: Timestamp, ask: Value) -> Line {
    let asked = Ask::parse(&ask.to_string())
        .and_then(|ask| ask.resolve_any_cost(policy, &key, &mut || None))
        .map_err(|error| match error {
            AskError::NoRandomness => OperationError::NeedsLease.to_string(),
            error => without_place(&error.to_string()).to_owned(),
        })?;
    Ok(Event { asked, at, key, ask })
}

/// A message of serde without its line and column: the line is that of a text of one line, and the column
/// may be one of the JSON that is built from the line.
fn without_place(message: &str) -> &str {
    match message.rsplit_once(" at line 1 column ") {
        Some((message, column)) if column.bytes().all(|byte| byte.is_ascii_digit()) => message,
        _ => message,
    }
}

fn unknown(policies: &Policies, name: &str) -> String {
    let names: Vec<&str> = policies.all().iter().map(|policy| policy.name()).collect();
    format!("`policy`: expected one of {}; found {}", names.join(", "), Quoted(name))
}
