//! Reads a trace: an access log or newline-delimited JSON, plain or compressed with gzip.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::net::IpAddr;
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
use tidegate_http::{Head, key_of};

/// The longest line that is read. A longer line is skipped and counts as unreadable.
const MAX_LINE_BYTES: usize = 65_536;

/// An operation in a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The operation and its resolved key.
    pub asked: Asked,
    /// The time of the operation, as its line has it.
    pub at: Timestamp,
    /// The key: of a line of JSON as it is written, of an access log as the gate finds it.
    pub key: String,
    /// The operation in JSON, as [`Ask`] reads it.
    pub ask: Value,
    /// The client that the last field of an access log names, if the key is under another address: that of a proxy which the
    /// policy file does not trust.
    pub behind: Option<IpAddr>,
}

/// A line of a trace: its event, or why the line cannot be read.
pub type Line = Result<Event, String>;

/// The lines of a trace, in their order.
#[expect(missing_debug_implementations, reason = "holds a reader")]
pub struct Trace {
    reader: Box<dyn BufRead + Send>,
    policies: Policies,
    /// The policy of lines that name none.
    policy: Option<Arc<Policy>>,
}

impl Trace {
    /// Opens a trace, which may be a pipe; `-` is standard input. `policy` is the policy of lines that name none,
    /// such as those of an access log; if it is `None` and there is only one policy, that one is used. `bar` shows
    /// how much is read, and of how much if `file` is a regular file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, or if `policies` has no policy of that name.
    pub fn open(
        file: &Path,
        policies: &Policies,
        policy: Option<&str>,
        bar: &ProgressBar,
    ) -> Result<Self> {
        let (opened, length): (Box<dyn Read + Send>, _) = if file == Path::new("-") {
            (Box::new(io::stdin()), None)
        } else {
            let opened = File::open(file).with_context(|| file.display().to_string())?;
            let metadata = opened.metadata()?;
            (Box::new(opened), metadata.is_file().then_some(metadata.len()))
        };
        match length {
            Some(length) => bar.set_length(length),
            None => bar.unset_length(),
        }
        let plain = decompressed(BufReader::new(bar.wrap_read(opened)));
        Self::new(plain.with_context(|| file.display().to_string())?, policies, policy)
    }

    /// A trace from any reader; see [`open`](Self::open) for `policy`.
    ///
    /// # Errors
    /// Returns an error if `policies` has no policy of that name.
    pub fn new(
        reader: Box<dyn BufRead + Send>,
        policies: &Policies,
        policy: Option<&str>,
    ) -> Result<Self> {
        let policy = match policy {
            Some(name) => Some(policies.get(name).with_context(|| unknown(policies, name))?),
            None => policies.all().first().filter(|_| policies.all().len() == 1),
        };
        let policy = policy.cloned();
        Ok(Self { reader, policies: policies.clone(), policy })
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
        let text = lossy.trim_end_matches('\n').trim_start_matches('\u{feff}'); // files may be joined
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

    /// Reads `now_us` (or `t_us`), `policy`, `key`, and either the fields of a check or one other operation by its name, such
    /// as `"release":{"lease":"a"}`.
    fn json(&self, text: &str) -> Line {
        let mut fields: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
            format!("column {}: {}", error.column(), without_place(&error.to_string()))
        })?;
        let (name, at) = match ["now_us", "t_us"].map(|name| (name, fields.remove(name))) {
            [(name, Some(at)), (_, None)] | [(_, None), (name, Some(at))] => (name, at),
            [(_, None), (_, None)] => return Err("missing field `now_us`".to_owned()),
            _ => return Err("expected `now_us` or `t_us`, found both".to_owned()),
        };
        let at = at.as_u64().filter(|at| *at <= MAX_QUANTITY).ok_or_else(|| {
            format!("`{name}`: expected a whole number from 0 to {MAX_QUANTITY}, found {at}")
        })?;
        let mut text_of = |field: &str| match fields.remove(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!("`{field}`: expected a string, found {other}")),
        };
        let policy = match text_of("policy")? {
            Some(name) => self.policies.get(&name).ok_or_else(|| unknown(&self.policies, &name))?,
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

    /// Reads a line in common or combined log format, `ADDRESS IDENT USER [TIME] "REQUEST" …`, or in the format
    /// `vhost_combined`, which begins with `VHOST:PORT`.
    fn access_log(&self, text: &str) -> Line {
        let no_log = || "expected a line of an access log or a JSON object".to_owned();
        let (names, rest) = text.split_once(" [").ok_or_else(no_log)?;
        let (time, rest) = rest.split_once(']').ok_or_else(no_log)?;
        if !names.contains(' ') || !rest.starts_with(" \"") {
            return Err(no_log());
        }
        let at = strtime::parse("%d/%b/%Y:%H:%M:%S %z", time)
            .and_then(|time| time.to_timestamp())
            .map_err(|error| format!("time {}: {error}", Quoted(time)))?;
        let at = u64::try_from(at.as_microsecond())
            .map_err(|_| format!("time {}: expected a time from 1970 on", Quoted(time)))?;
        let (policy, at) = (self.default_policy()?, Timestamp(at));
        let (client, forwarded) = (client(names)?, forwarded_for(rest));
        let key = self.key_of(policy, client, forwarded, at)?;
        let first =
            forwarded.and_then(|addresses| addresses.split(',').next()?.trim().parse().ok());
        let is_peer = self.key_of(policy, client, None, at).as_ref() == Ok(&key);
        let behind = first.filter(|first| is_peer && client.parse() != Ok(*first));
        Ok(Event { behind, ..event(policy, key, at, json!({ "check": {} }))? })
    }

    /// The key that the gate finds in a request of which only the client's address is known, and the addresses in the header
    /// `X-Forwarded-For`.
    fn key_of(
        &self,
        policy: &Policy,
        client: &str,
        forwarded: Option<&str>,
        now: Timestamp,
    ) -> Result<String, String> {
        let header =
            &|name: &str| forwarded.filter(|_| name == "x-forwarded-for").map(str::to_owned);
        let head = Head { client_ip: &|| client.parse().ok(), header, now, ..Head::default() };
        key_of(self.policies.gateway(), policy, &head).map_err(|_| {
            format!(
                "an access log has only the client's address: expected a policy whose `key` has the source \"ip\", \
                 found {}",
                Quoted(policy.name())
            )
        })
    }

    fn default_policy(&self) -> Result<&Arc<Policy>, String> {
        self.policy.as_ref().ok_or_else(|| {
            "the line names no policy and the file has several: choose one with --policy".to_owned()
        })
    }
}

/// The bytes of a trace, which begins with 1f 8b if it is compressed. A pipe cannot be rewound.
fn decompressed(mut reader: impl BufRead + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    let mut magic = Vec::new();
    reader.by_ref().take(2).read_to_end(&mut magic)?;
    let is_gzip = magic == [0x1f, 0x8b];
    let reader = Cursor::new(magic).chain(reader);
    Ok(if is_gzip { line_feeds(MultiGzDecoder::new(reader)) } else { line_feeds(reader) })
}

fn line_feeds(inner: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::new(LineFeeds { inner, after_return: false }))
}

/// A reader whose lines end with a line feed, also those that end with a carriage return, or with both.
struct LineFeeds<R> {
    inner: R,
    after_return: bool,
}

impl<R: Read> Read for LineFeeds<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.inner.read(buffer)?;
            let mut kept = 0;
            for at in 0..count {
                let byte = buffer.get(at).copied().unwrap_or_default();
                if let Some(to) = buffer.get_mut(kept)
                    && !(self.after_return && byte == b'\n')
                {
                    *to = if byte == b'\r' { b'\n' } else { byte };
                    kept += 1;
                }
                self.after_return = byte == b'\r';
            }
            if kept > 0 || count == 0 {
                return Ok(kept);
            }
        }
    }
}

/// The client, given the words of a line before its time: `ADDRESS IDENT USER` or `VHOST:PORT ADDRESS IDENT USER`.
/// An IPv6 address may look like a host with a port, and a user's name may have spaces.
fn client(names: &str) -> Result<&str, String> {
    let words: Vec<&str> = names.split(' ').collect();
    let is_address = |word: &str| word.parse::<IpAddr>().is_ok();
    let has_port =
        |word: &str| word.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match words.as_slice() {
        [vhost, client, _, _, ..] if has_port(vhost) && is_address(client) => Ok(client),
        [client, ..] if is_address(client) => Ok(client),
        words => {
            let found = Quoted(words.first().copied().unwrap_or_default());
            Err(format!("expected the client's address, found {found}"))
        }
    }
}

/// The addresses in the last field of a line, where nginx writes `X-Forwarded-For`.
fn forwarded_for(line: &str) -> Option<&str> {
    let (_, last) = line.trim_end().strip_suffix('"')?.rsplit_once(" \"")?;
    let is_address = |word: &str| word.trim().parse::<IpAddr>().is_ok();
    last.split(',').all(is_address).then_some(last)
}

/// The operations that a line may name.
const OPERATIONS: [&str; 11] = [
    "check", "peek", "reserve", "commit", "refund", "renew", "release", "budget", "report",
    "reset", "block",
];

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
    Ok(Event { asked, at, key, ask, behind: None })
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
