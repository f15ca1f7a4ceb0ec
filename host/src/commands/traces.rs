//! What `replay` and `parity` share.

use std::path::Path;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use tidegate::replay::Backend;

use super::warn;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Deletes what a replay has stored, even if the replay failed. If both fail, the replay's error is returned
/// and the other one is a warning.
pub(crate) async fn clean_up<T>(backend: Backend, replayed: Result<T>) -> Result<T> {
    let cleaned = backend.clean_up().await.context("the states of the replay cannot be deleted");
    match (replayed, cleaned) {
        (Err(error), Err(also)) => {
            warn(format!("{also:#}"));
            Err(error)
        }
        (replayed, cleaned) => {
            let replayed = replayed?;
            cleaned.map(|()| replayed)
        }
    }
}

/// Ends work early at Ctrl-C, or at the signal that `kill` and service managers send.
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// From now on these signals no longer end the process by themselves.
    pub(crate) fn new() -> Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    /// Does some work, or fails with [`Interrupted`] once a signal comes. The work must yield now and then.
    pub(crate) async fn end<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => Err(Interrupted { code: 130 }.into()),
            _ = self.terminate.recv() => Err(Interrupted { code: 143 }.into()),
            done = work => done,
        }
    }
}

/// A signal has ended the work.
#[derive(Debug, thiserror::Error)]
#[error("a signal ended the command")]
pub(crate) struct Interrupted {
    /// The code that a shell reports for a process that this signal ended.
    pub(crate) code: u8,
}

/// A progress bar on standard error. It is not drawn if standard error is not a terminal.
pub(crate) fn progress(what: &Path, template: &str) -> Result<ProgressBar> {
    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template(template)?);
    bar.set_message(what.file_name().unwrap_or_default().to_string_lossy().into_owned());
    Ok(bar)
}
