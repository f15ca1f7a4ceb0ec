//! The environment variables of the server: what a wrong value and a misspelt name have to say.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

/// How all variables of Tidegate begin.
pub(super) const PREFIX: &str = "TIDEGATE_";

/// The variables that are no option: `tidegate replay` starts the Redis that this one names.
const NO_OPTIONS: [&str; 1] = ["TIDEGATE_REDIS_SERVER"];

/// From which likeness on, between 0 and 1, a name may be a misspelt one.
const ALIKE: f64 = 0.8;

/// A warning for each variable that begins as those of the options and belongs to none. It is no error, because Kubernetes sets such
/// variables for a service of the name `tidegate`.
pub(crate) fn unknown_variables(command: &Command) -> Vec<String> {
    let arguments = command.get_subcommands().flat_map(Command::get_arguments);
    let known: BTreeSet<&str> =
        arguments.filter_map(Arg::get_env).filter_map(OsStr::to_str).chain(NO_OPTIONS).collect();
    let names = env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let unknown: BTreeSet<String> =
        names.filter(|name| name.starts_with(PREFIX) && !known.contains(name.as_str())).collect();
    unknown.iter().map(|name| warning(name, &known)).collect()
}

fn warning(name: &str, known: &BTreeSet<&str>) -> String {
    let own = |name| str::strip_prefix(name, PREFIX).unwrap_or_default();
    let alike = known.iter().copied().filter(|known| strsim::jaro(own(known), own(name)) > ALIKE);
    let alike = match alike.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "`tidegate serve --help` names all".to_owned(),
        some => format!("did you mean {some}?"),
    };
    format!("{name}: no option has this environment variable, so it is ignored; {alike}")
}

/// The variable that holds the wrong value of this error. `None` if the value is from the command line.
pub(super) fn blamed(error: &clap::Error, own: &Command, line: &[OsString]) -> Option<String> {
    let is_value = matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue);
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return None };
    let flag = shown.split(' ').next().filter(|_| is_value)?;
    let is_given = |word: &OsString| {
        let word = word.to_string_lossy();
        word.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    let arg = own.get_arguments().find(|arg| arg.get_long() == flag.strip_prefix("--"))?;
    let variable = arg.get_env()?;
    let is_set = env::var_os(variable).is_some() && !line.iter().any(is_given);
    is_set.then(|| variable.to_string_lossy().into_owned())
}
