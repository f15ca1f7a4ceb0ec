//! The configuration file. Its errors never show a value, which may be a secret, also where none belongs.

use std::any::TypeId;
use std::error::Error;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command};
use tidegate::http::Tokens;
use toml::de::{DeTable, DeValue};

use super::is_option;
use crate::commands::values::{NotAllowed, Size};

/// An option of a file.
pub(super) struct InFile<'c> {
    pub(super) arg: &'c Arg,
    /// What follows the name of its flag on a command line, once for each value: a flag that is off has none.
    pub(super) values: Vec<String>,
    /// Where the value is.
    at: String,
}

impl InFile<'_> {
    /// Checks that the file which the option names exists. A later error would show the value, which may be a secret in the wrong place.
    ///
    /// # Errors
    /// Fails with the place of the option and the expected value.
    pub(super) fn check(&self) -> Result<()> {
        let long = self.arg.get_long().unwrap_or_default();
        let is_path = self.arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
        if !is_path || long == "revisions" {
            return Ok(()); // the server makes the file of the revisions
        }
        let is_there = |value: &String| Path::new(value.trim_start_matches('=')).exists();
        match self.values.iter().all(is_there) {
            true => Ok(()),
            false => {
                bail!(
                    "{}: {long}: expected the path of an existing file, found another string",
                    self.at
                )
            }
        }
    }
}

/// The options of a file.
pub(super) fn options<'c>(
    command: &'c Command,
    shown: &str,
    text: &str,
) -> Result<Vec<InFile<'c>>> {
    let place = |start| format!("{shown}: {}", place(text, start));
    // not by serde, whose errors show values
    let table = DeTable::parse(text).map_err(|error| {
        anyhow!("{}: {}", place(error.span().unwrap_or_default().start), error.message())
    })?;
    let mut table: Vec<_> = table.into_inner().into_iter().collect();
    table.sort_by_key(|(name, _)| name.span().start);
    let known = || command.get_arguments().filter(|arg| is_option(arg));
    let mut options = Vec::new();
    for (name, value) in table {
        let Some(arg) = known().find(|arg| arg.get_long() == Some(name.get_ref().as_ref())) else {
            let (at, name) = (place(name.span().start), name.get_ref());
            let known: Vec<_> = known().filter_map(Arg::get_long).collect();
            bail!("{at}: expected one of {}; found {name:?}", known.join(", "));
        };
        let at = place(value.span().start);
        let values = values(arg, value.get_ref());
        let values = values.map_err(|wrong| anyhow!("{at}: {}: {wrong}", name.get_ref()))?;
        options.push(InFile { arg, values, at });
    }
    Ok(options)
}

/// The line and the column of a byte.
fn place(text: &str, start: usize) -> String {
    let before = text.get(..start).unwrap_or(text);
    let (line, column) =
        (before.matches('\n').count(), before.rsplit('\n').next().unwrap_or("").chars().count());
    format!("line {}, column {}", line.saturating_add(1), column.saturating_add(1))
}

/// The values of an option.
///
/// # Errors
/// Returns what was expected, and what kind of value was found.
fn values(arg: &Arg, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let kind = value.type_str();
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        let is_on = value.as_bool();
        let is_on = is_on
            .ok_or_else(|| format!("expected true or false, found a value of the type {kind}"))?;
        return Ok(is_on.then(String::new).into_iter().collect());
    }
    let texts: Option<Vec<_>> = match value {
        DeValue::Array(all) if matches!(arg.get_action(), ArgAction::Append) => {
            all.iter().map(|value| text_of(arg, value.get_ref())).collect()
        }
        one => text_of(arg, one).map(|text| vec![text]),
    };
    let Some(texts) = texts.filter(|texts| !texts.is_empty()) else {
        let expected = refusal(arg, "").unwrap_or("a text".to_owned());
        return Err(format!("expected {expected}, found a value of the type {kind}"));
    };
    match texts.iter().find_map(|text| refusal(arg, text)) {
        Some(expected) => Err(format!("expected {expected}, found another {kind}")),
        None => Ok(texts.iter().map(|text| format!("={text}")).collect()),
    }
}

/// The text of a value on a command line; `None` if the option has values of another type.
fn text_of(arg: &Arg, value: &DeValue<'_>) -> Option<String> {
    let kind = arg.get_value_parser().type_id();
    let is_size = kind == TypeId::of::<Size>();
    let is_number = kind == TypeId::of::<u64>() || kind == TypeId::of::<usize>();
    match value {
        DeValue::Integer(number) if is_number || is_size => {
            let number = u64::from_str_radix(number.as_str(), number.radix());
            number.ok().map(|number| number.to_string())
        }
        DeValue::String(text) if !is_number => Some(text.to_string()),
        _ => None,
    }
}

/// What is expected, if the option may not be this text: in words that show nothing of it.
fn refusal(arg: &Arg, text: &str) -> Option<String> {
    // the server itself would show the first two, and name a variable for the others
    let has_port = || text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let expected = match arg.get_long() {
        Some("listen") if !has_port() => {
            "an address or a name, and a port, as \"localhost:8080\", or a list of them"
        }
        Some("redis") if !text.contains("://") => "an address such as \"redis://127.0.0.1:6379\"",
        Some("token" | "admin-token") if !text.is_empty() && !Tokens::may_be(text) => {
            "printable ASCII without spaces around it"
        }
        _ => "",
    };
    if !expected.is_empty() {
        return Some(expected.to_owned());
    }
    let one = Arg::new("one").long("one").value_parser(arg.get_value_parser().clone());
    let parser = Command::new("parser").no_binary_name(true).arg(one);
    let error = parser.try_get_matches_from([format!("--one={text}")]).err()?;
    if let Some(own) = error.source().and_then(|source| source.downcast_ref::<NotAllowed>()) {
        return Some(own.expected.clone());
    }
    Some(match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(all)) if !all.is_empty() => format!("one of {}", all.join(", ")),
        _ => "a text that is not empty".to_owned(),
    })
}
