//! Reading a trace: an access log or newline-delimited JSON, plain or gzip.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;

use anyhow::{Context, Result};
use flate2::bufread::MultiGzDecoder;
use indicatif::ProgressBar;
use jiff::fmt::strtime;
use serde::Deserialize;
use tidegate_gate::{Cost, MAX_QUANTITY, Policies, Timestamp, check_key};

/// The longest line that is read; of a longer one the rest is skipped, and it counts as unreadable.
const MAX_LINE_BYTES: usize = 65_536;

/// A request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The policy's place in [`Policies::all`].
    pub policy: usize,
    /// What it is counted by.
    pub key: String,
    /// When it came, by its own line.
    pub at: Timestamp,
    /// What it costs.
    pub cost: u64,
}

/// A line of a trace: a request, or why it is none.
pub type Line = Result<Event, String>;

/// The lines of a trace, in their order.
#[expect(missing_debug_implementations, reason = "holds a reader")]
pub struct Trace<'a> {
    reader: Box<dyn BufRead>,
    policies: &'a Policies,
    /// For lines that name none.
    policy: Option<usize>,
}

impl<'a> Trace<'a> {
    /// Opens a trace. `policy` is for the lines that name none: those of an access log. `bar`
    /// follows the bytes read.
    ///
    /// # Errors
    /// If the file cannot be opened, or there is no such policy.
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

    /// A trace out of any reader.
    ///
    /// # Errors
    /// If there is no such policy.
    pub fn new(
        reader: Box<dyn BufRead>,
        policies: &'a Policies,
        policy: Option<&str>,
    ) -> Result<Self> {
        let policy = match policy {
            Some(name) => Some(policies.index_of(name).with_context(|| unknown(policies, name))?),
            None => (policies.all().len() == 1).then_some(0),
        };
        Ok(Self { reader, policies, policy })
    }

    /// The next line, or `None` at the end.
    ///
    /// # Errors
    /// If the file cannot be read further: a broken gzip, a disk that fails.
    pub fn next_line(&mut self) -> io::Result<Option<Line>> {
        let mut bytes = Vec::new();
        let limit = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX);
        if self.reader.by_ref().take(limit).read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        if bytes.last() != Some(&b'\n') && bytes.len() == MAX_LINE_BYTES {
            self.reader.skip_until(b'\n')?;
            return Ok(Some(Err(format!("longer than {MAX_LINE_BYTES} bytes"))));
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches(['\n', '\r']);
        let event = if text.starts_with('{') { self.json(text) } else { self.access_log(text) };
        Ok(Some(event.and_then(|event| self.validated(event))))
    }

    fn json(&self, text: &str) -> Line {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Form {
            t_us: u64,
            policy: Option<String>,
            key: String,
            cost: Option<u64>,
        }
        let form: Form = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let policy = match form.policy {
            Some(name) => {
                self.policies.index_of(&name).ok_or_else(|| unknown(self.policies, &name))?
            }
            None => self.default_policy()?,
        };
        let cost = form.cost.unwrap_or_else(|| self.default_cost(policy));
        Ok(Event { policy, key: form.key, at: Timestamp(form.t_us), cost })
    }

    /// Common and combined log format: `ADDRESS IDENT USER [TIME] "REQUEST" …`.
    fn access_log(&self, text: &str) -> Line {
        let no_log = || "neither an access log's line nor JSON".to_owned();
        let (address, rest) = text.split_once(' ').ok_or_else(no_log)?;
        let (_ident_and_user, rest) = rest.split_once(" [").ok_or_else(no_log)?;
        let (time, rest) = rest.split_once(']').ok_or_else(no_log)?;
        if !rest.starts_with(" \"") {
            return Err(no_log());
        }
        let at = strtime::parse("%d/%b/%Y:%H:%M:%S %z", time)
            .and_then(|time| time.to_timestamp())
            .map_err(|error| format!("time {time:?}: {error}"))?;
        let at = u64::try_from(at.as_microsecond())
            .map_err(|_| format!("time {time:?}: before 1970"))?;
        let policy = self.default_policy()?;
        let cost = self.default_cost(policy);
        Ok(Event { policy, key: address.to_owned(), at: Timestamp(at), cost })
    }

    fn default_policy(&self) -> Result<usize, String> {
        self.policy.ok_or_else(|| {
            "names no policy, and there are several: say which with --policy".to_owned()
        })
    }

    fn default_cost(&self, policy: usize) -> u64 {
        match self.policies.all().get(policy).map(tidegate_gate::Policy::cost) {
            Some(Cost::Fixed(cost) | Cost::Header { default: cost, .. }) => *cost,
            _ => 1,
        }
    }

    /// What every backend would refuse to decide is an error of the line.
    fn validated(&self, event: Event) -> Line {
        check_key(&event.key).map_err(|error| error.to_string())?;
        if event.key.contains(char::REPLACEMENT_CHARACTER) {
            return Err("the key is not UTF-8".to_owned()); // it would be counted with others
        }
        let policy = self.policies.all().get(event.policy);
        let most = policy.map_or(0, |policy| policy.limits_for(&event.key).most_at_once());
        if event.cost > most {
            let (cost, capacity) = (event.cost, most);
            return Err(tidegate_gate::CostExceedsCapacity { cost, capacity }.to_string());
        }
        if event.at.0 > MAX_QUANTITY {
            return Err(format!("`t_us`: found {}, allowed are 0 to {MAX_QUANTITY}", event.at.0));
        }
        Ok(event)
    }
}

fn unknown(policies: &Policies, name: &str) -> String {
    let names: Vec<&str> = policies.all().iter().map(tidegate_gate::Policy::name).collect();
    format!("policy: found {name:?}, there are: {}", names.join(", "))
}
