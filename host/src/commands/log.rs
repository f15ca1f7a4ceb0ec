//! Where the lines of the server's log go.

use std::io::{self, Write};

use clap::ValueEnum;
use tidegate::serve::AUDIT;
use tracing::subscriber::with_default;
use tracing::{Level, Subscriber, error};
use tracing_subscriber::filter::Targets;
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

/// Writes events of Tidegate to standard error from now on. Events of libraries are not written, because they could name keys.
pub(crate) fn start(format: LogFormat, level: LogLevel) {
    lines(format, level).init();
}

/// Says why the process ends: in JSON as a line of the log, which need not have started.
pub(crate) fn fatal(format: LogFormat, error: &anyhow::Error) {
    match format {
        LogFormat::Text => {
            let _ = writeln!(io::stderr().lock(), "error: {error:#}"); // nobody else could be told
        }
        LogFormat::Json => with_default(lines(format, LogLevel::Error), || error!("{error:#}")),
    }
}

fn lines(format: LogFormat, level: LogLevel) -> impl Subscriber + Send + Sync {
    let level = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    };
    let targets = Targets::new().with_target("tidegate", level).with_target(AUDIT, Level::INFO);
    // an event that cannot be written is lost, and the server goes on
    let lines = fmt::layer().with_writer(io::stderr).log_internal_errors(false).with_ansi(false);
    let lines = match format {
        LogFormat::Text => lines.with_target(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    registry().with(lines.with_filter(targets))
}
