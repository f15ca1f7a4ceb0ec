//! Where the lines of the server's log go.

use std::io::{self, Write};
use std::panic::{self, PanicHookInfo};

use clap::ValueEnum;
use tidegate::serve::AUDIT;
use tracing::subscriber::with_default;
use tracing::{Level, Subscriber, error};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

/// The form of the log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line of text for each event
    Text,
    /// A JSON object for each event, on a line
    Json,
}

/// The least important lines of the log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogLevel {
    /// Only what ends the server
    Error,
    /// Also errors of the store, and files that are refused
    Warn,
    /// Also refusals (a sample), and each start, stop and change
    Info,
    /// Also what helps to find a fault of Tidegate
    Debug,
}

/// Writes events of Tidegate to standard error from now on, in JSON also panics. Events of libraries are not written, because they
/// could name keys.
pub(crate) fn start(format: LogFormat, level: LogLevel) {
    lines(format, level, io::stderr).init();
    if matches!(format, LogFormat::Json) {
        panic::set_hook(Box::new(panicked));
    }
}

/// A panic, which is a fault of Tidegate, as a line.
fn panicked(panic: &PanicHookInfo<'_>) {
    error!("{panic}");
}

/// Says why the process ends: in JSON as a line of the log, which need not have started.
pub(crate) fn fatal(format: LogFormat, error: &anyhow::Error) {
    match format {
        LogFormat::Text => {
            let _ = writeln!(io::stderr().lock(), "error: {error:#}"); // nobody else could be told
        }
        LogFormat::Json => {
            with_default(lines(format, LogLevel::Error, io::stderr), || error!("{error:#}"))
        }
    }
}

fn lines<W>(format: LogFormat, level: LogLevel, to: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let level = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    };
    let targets = Targets::new().with_target("tidegate", level).with_target(AUDIT, Level::INFO);
    // an event that cannot be written is lost, and the server goes on
    let lines = fmt::layer().with_writer(to).log_internal_errors(false).with_ansi(false);
    let lines = match format {
        LogFormat::Text => lines.with_target(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    registry().with(lines.with_filter(targets))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_panic_is_one_line_of_json() {
        let path = std::env::temp_dir().join(format!("tidegate-panic-{}", std::process::id()));
        let file = Mutex::new(File::create(&path).unwrap());
        panic::set_hook(Box::new(panicked));
        let panics = || panic::catch_unwind(|| panic!("a \"fault\"\nof two lines"));
        let caught = with_default(lines(LogFormat::Json, LogLevel::Error, file), panics);
        let _ = panic::take_hook();
        assert!(caught.is_err());
        let log = fs::read_to_string(&path).unwrap();
        fs::remove_file(path).unwrap();
        assert_eq!(log.lines().count(), 1, "{log}");
        let line: serde_json::Value = serde_json::from_str(&log).unwrap();
        let message = line["message"].as_str().unwrap();
        assert!(message.starts_with("panicked at host/src/commands/log.rs:"), "{log}");
        assert!(message.ends_with(":\na \"fault\"\nof two lines"), "{log}");
        assert_eq!(line["level"], "ERROR");
    }
}
