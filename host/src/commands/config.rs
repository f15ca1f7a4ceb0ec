//! `tidegate config`, and the configuration file of the server: flags come before the environment, that before the file, and that
//! before the defaults.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use toml::{Table, Value};

use super::{say, serve, without_password};

/// Show the options of the server that hold, and where each comes from: flag, environment, file or default
#[derive(clap::Args)]
#[group(skip)] // the options of `tidegate serve` have a group of this name already
#[command(after_help = "\
Examples:
  tidegate config --config tidegate.toml
  TIDEGATE_REDIS=redis://127.0.0.1:6379 tidegate config

The output has the form of a configuration file. Tokens, secrets and passwords are not shown.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    _serve: serve::Arguments,
}

/// The commands that read a configuration file.
const COMMANDS: [&str; 2] = ["serve", "config"];

/// The options whose values are not shown.
const SECRETS: [&str; 3] = ["token", "admin-token", "log-secret"];

/// A command line, with the options that came from a configuration file.
pub(crate) struct Read {
    pub(crate) matches: ArgMatches,
    file: Option<PathBuf>,
    from_file: BTreeSet<String>,
}

/// Gives each option of the server its environment variable: `TIDEGATE_` and the name of the flag.
pub(crate) fn with_environment(mut command: Command) -> Command {
    for name in COMMANDS {
        command = command.mut_subcommand(name, |own| {
            own.mut_args(|arg| match arg.get_long() {
                Some(long) => {
                    let variable = format!("TIDEGATE_{}", long.replace('-', "_").to_uppercase());
                    arg.env(variable)
                }
                None => arg,
            })
        });
    }
    command
}

/// Reads a command line and, if it names one, the configuration file. Ends the process if the command line is wrong or asks for
/// help, as clap does.
///
/// # Errors
/// Returns an error if the file cannot be read, or if an option of it is unknown or wrong.
pub(crate) fn read(command: Command, line: Vec<OsString>) -> Result<Read> {
    let lenient = command.clone().ignore_errors(true).try_get_matches_from(&line).ok();
    let named = lenient.as_ref().and_then(|lenient| {
        let (name, own) = lenient.subcommand()?;
        let own = COMMANDS.contains(&name).then_some(own)?;
        Some((command.find_subcommand(name)?, own, own.get_one::<PathBuf>("config")?.clone()))
    });
    let Some((own_command, own, file)) = named else {
        let matches = command.get_matches_from(line);
        return Ok(Read { matches, file: None, from_file: BTreeSet::new() });
    };
    let (mut whole, mut from_file) = (line.clone(), BTreeSet::new());
    for (arg, text) in options(own_command, &file)? {
        let is_given = matches!(
            own.value_source(arg.get_id().as_str()),
            Some(ValueSource::CommandLine | ValueSource::EnvVariable)
        );
        let long = arg.get_long().unwrap_or_default();
        if !is_given {
            from_file.insert(long.to_owned());
            whole.extend(text.map(|text| OsString::from(format!("--{long}{text}"))));
        }
    }
    match command.clone().try_get_matches_from(whole) {
        Ok(matches) => Ok(Read { matches, file: Some(file), from_file }),
        Err(error) => {
            // if the line alone is wrong, too, the fault is not in the file
            if let Err(own) = command.try_get_matches_from(line) {
                own.exit();
            }
            let text = error.render().to_string();
            let text = text.trim_start_matches("error: ").lines().next().unwrap_or_default();
            Err(anyhow!("{}: {text}", file.display()))
        }
    }
}

/// The options of a file, each as what follows the name of its flag on a command line; `None` for a flag that is off.
fn options<'c>(command: &'c Command, file: &Path) -> Result<Vec<(&'c Arg, Option<String>)>> {
    let shown = file.display().to_string();
    let text = fs::read_to_string(file).with_context(|| format!("--config {shown}"))?;
    let table: Table = text.parse().map_err(|error| without_text(&shown, &text, &error))?;
    let known = || command.get_arguments().filter(|arg| is_option(arg));
    let mut options = Vec::new();
    for (name, value) in table {
        let Some(arg) = known().find(|arg| arg.get_long() == Some(&name)) else {
            let known: Vec<_> = known().filter_map(Arg::get_long).collect();
            bail!("{shown}: expected one of {}; found {name:?}", known.join(", "));
        };
        let is_flag = matches!(arg.get_action(), ArgAction::SetTrue);
        let text = match value {
            Value::Boolean(is_on) if is_flag => is_on.then(String::new),
            Value::String(text) if !is_flag => Some(format!("={text}")),
            Value::Integer(number) if !is_flag => Some(format!("={number}")),
            other => {
                let expected = if is_flag { "true or false" } else { "a text or a whole number" };
                let found = other.type_str(); // the value may be a secret
                bail!("{shown}: {name}: expected {expected}, found a value of the type {found}");
            }
        };
        options.push((arg, text));
    }
    Ok(options)
}

/// The error without the line of the file that it is about, which may have a secret.
fn without_text(shown: &str, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count().saturating_add(1);
    anyhow!("{shown}: line {line}: {}", error.message())
}

/// Whether a configuration file may have the option.
fn is_option(arg: &Arg) -> bool {
    !matches!(arg.get_id().as_str(), "config" | "help" | "version")
}

pub(crate) fn run(read: &Read, command: &Command) -> Result<ExitCode> {
    let own = read.matches.subcommand_matches("config").context("`tidegate config`")?;
    let command = command.find_subcommand("config").context("`tidegate config`")?;
    let mut text = String::new();
    for arg in command.get_arguments().filter(|arg| is_option(arg)) {
        let long = arg.get_long().unwrap_or_default();
        let source = match own.value_source(arg.get_id().as_str()) {
            _ if read.from_file.contains(long) => {
                let file = read.file.as_deref().unwrap_or(Path::new(""));
                format!("file {}", file.display())
            }
            Some(ValueSource::CommandLine) => "flag".to_owned(),
            Some(ValueSource::EnvVariable) => {
                let variable = arg.get_env().unwrap_or_default().to_string_lossy();
                format!("environment {variable}")
            }
            _ => "default".to_owned(),
        };
        let _ = match shown(own, arg) {
            Some(value) => writeln!(text, "{:<50} # {source}", format!("{long} = {value}")),
            None => writeln!(text, "{:<50} # {source}", format!("# {long} is not set")),
        };
    }
    say(text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// The value of an option as a configuration file has it.
fn shown(matches: &ArgMatches, arg: &Arg) -> Option<String> {
    let id = arg.get_id().as_str();
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return Some(matches.get_flag(id).to_string());
    }
    let value = matches.get_raw(id)?.next()?.to_string_lossy();
    Some(match arg.get_long() {
        Some(long) if SECRETS.contains(&long) => "\"…\"".to_owned(),
        Some("redis") => Value::String(without_password(&value)).to_string(),
        _ if value.parse::<u64>().is_ok() => value.into_owned(),
        _ => Value::String(value.into_owned()).to_string(),
    })
}
