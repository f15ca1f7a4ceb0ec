//! `tidegate config`, and the configuration file of the server: flags come before the environment, that before the file, and that
//! before the defaults.

mod file;
mod variables;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueEnum};
use tidegate::store::Redis;
use toml::{Table, Value};

pub(crate) use self::variables::unknown_variables;
use super::log::LogFormat;
use super::{say, serve};

/// Show the options of the server that hold, and where each comes from: flag, environment, file or default
#[derive(clap::Args)]
#[group(skip)] // the options of `tidegate serve` have a group of this name already
#[command(after_help = "\
Examples:
  tidegate config --config tidegate.toml
  TIDEGATE_REDIS=redis://127.0.0.1:6379 tidegate config

The output has the form of a configuration file. Tokens, secrets and passwords are not shown. What `tidegate serve` would
refuse is an error here too, as long as it is not about the network.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    serve: serve::Arguments,
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
                    let variable =
                        format!("{}{}", variables::PREFIX, long.replace('-', "_").to_uppercase());
                    arg.env(variable)
                }
                None => arg,
            })
        });
    }
    command
}

/// A command line that may be wrong, and the configuration file that it names. The file is read once, because it may be a pipe.
pub(crate) struct Given {
    line: Vec<OsString>,
    /// What of the line can be understood.
    lenient: Option<ArgMatches>,
    file: Option<(PathBuf, io::Result<String>)>,
}

impl Given {
    pub(crate) fn new(command: &Command, line: Vec<OsString>) -> Self {
        let lenient = command.clone().ignore_errors(true).try_get_matches_from(&line).ok();
        let file = lenient.as_ref().and_then(|lenient| {
            let (name, own) = lenient.subcommand()?;
            let own = COMMANDS.contains(&name).then_some(own)?;
            let file = own.get_one::<PathBuf>("config")?.clone();
            let text = tidegate::file::read(&file).and_then(tidegate::file::text);
            Some((file, text))
        });
        Self { line, lenient, file }
    }

    /// The form in which `tidegate serve` would write its log.
    pub(crate) fn log_format(&self) -> LogFormat {
        let own = self.lenient.as_ref().and_then(|lenient| lenient.subcommand_matches("serve"));
        let Some(own) = own else { return LogFormat::Text };
        let in_file = || {
            let (_, text) = self.file.as_ref()?;
            let table: Table = text.as_ref().ok()?.parse().ok()?;
            LogFormat::from_str(table.get("log-format")?.as_str()?, false).ok()
        };
        let in_file = if is_given(own, "log_format") { None } else { in_file() };
        let own = own.get_one::<LogFormat>("log_format").copied();
        in_file.or(own).unwrap_or(LogFormat::Text)
    }
}

/// Reads a command line and its configuration file. Ends the process if the command line asks for help or, unless the log is in
/// JSON, is wrong, as clap does.
///
/// # Errors
/// Returns an error if the command line is wrong, if the file cannot be read, or if an option of it is unknown or wrong.
pub(crate) fn read(command: Command, given: Given) -> Result<Read> {
    let format = given.log_format();
    let Given { line, lenient, file } = given;
    let own = lenient.as_ref().and_then(ArgMatches::subcommand);
    let own = own.and_then(|(name, own)| Some((command.find_subcommand(name)?, own)));
    let Some(((own_command, own), (file, text))) = own.zip(file) else {
        let own = lenient.as_ref().and_then(ArgMatches::subcommand_name);
        let own = own.and_then(|name| command.find_subcommand(name));
        let matches = command.clone().try_get_matches_from(&line).map_err(|error| {
            match own.and_then(|own| variables::blamed(&error, own, &line)) {
                Some(variable) => anyhow!("{variable}: {}", sentence(&error)),
                None => refused(error, format),
            }
        })?;
        return Ok(Read { matches, file: None, from_file: BTreeSet::new() });
    };
    let shown = file.display().to_string();
    let text = text.with_context(|| format!("--config {shown}"))?;
    let (mut whole, mut from_file) = (line.clone(), BTreeSet::new());
    for option in file::options(own_command, &shown, &text)? {
        let long = option.arg.get_long().unwrap_or_default();
        if !is_given(own, option.arg.get_id().as_str()) {
            option.check()?;
            from_file.insert(long.to_owned());
            whole.extend(
                option.values.iter().map(|value| OsString::from(format!("--{long}{value}"))),
            );
        }
    }
    match command.clone().try_get_matches_from(whole) {
        Ok(matches) => Ok(Read { matches, file: Some(file), from_file }),
        Err(error) => {
            // if the line alone is wrong, too, the fault is not in the file
            if let Err(own) = command.try_get_matches_from(line) {
                return Err(refused(own, format));
            }
            Err(anyhow!("{shown}: {}", sentence(&error)))
        }
    }
}

fn is_given(own: &ArgMatches, id: &str) -> bool {
    let source = own.value_source(id);
    matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}

/// The error of a command line. Where people read it, clap shows it with the usage and ends the process.
fn refused(error: clap::Error, format: LogFormat) -> anyhow::Error {
    match format {
        LogFormat::Json if error.use_stderr() => anyhow!("{}", sentence(&error)),
        _ => error.exit(),
    }
}

/// What is wrong, without the usage.
fn sentence(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Whether a configuration file may have the option.
fn is_option(arg: &Arg) -> bool {
    !matches!(arg.get_id().as_str(), "config" | "help" | "version")
}

pub(crate) async fn run(arguments: &Arguments, read: &Read, command: &Command) -> Result<ExitCode> {
    serve::prepare(&arguments.serve).await?;
    let own = read.matches.subcommand_matches("config").context("`tidegate config`")?;
    let own_command = command.find_subcommand("config").context("`tidegate config`")?;
    let mut text = String::new();
    for arg in own_command.get_arguments().filter(|arg| is_option(arg)) {
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
    for warning in unknown_variables(command) {
        let _ = writeln!(text, "# {warning}");
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
    let values = || matches.get_raw(id).into_iter().flatten().map(|value| value.to_string_lossy());
    let value = values().next()?;
    Some(match arg.get_long() {
        Some(long) if SECRETS.contains(&long) => "\"…\"".to_owned(),
        Some("redis") => Value::String(Redis::without_password(&value)).to_string(),
        _ if values().count() > 1 => {
            Value::Array(values().map(|value| Value::String(value.into_owned())).collect())
                .to_string()
        }
        _ if value.parse::<u64>().is_ok() => value.into_owned(),
        _ => Value::String(value.into_owned()).to_string(),
    })
}
