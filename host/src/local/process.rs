//! A child process whose output is kept.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// How many of its last lines a process shows of itself.
const SHOWN_LINES: usize = 60;

/// A child process. What it writes is kept in a file without a name. It is killed when it is dropped; if that happens because
/// the thread panics, as in a test that fails, the end of its output is printed.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    output: File,
}

impl Process {
    /// Starts a process, which reads nothing. Its name stands before what is printed of it.
    ///
    /// # Errors
    /// Returns an error if the process cannot be started.
    pub fn start(name: &str, command: &mut Command) -> io::Result<Self> {
        let output = tempfile::tempfile()?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
        Ok(Self { name: name.to_owned(), child: command.spawn()?, output })
    }

    /// The number of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// All that the process has written so far.
    #[must_use]
    pub fn output(&self) -> String {
        let length = self.output.metadata().map_or(0, |file| file.len());
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        let _ = self.output.read_exact_at(&mut bytes, 0); // then it is all zeros
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the process has written a line of which `find` makes something.
    ///
    /// # Errors
    /// Returns an error with the end of the output if the process ends before.
    pub fn announced<T>(&mut self, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        self.until(|output| {
            let mut whole = output.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            whole.find_map(&find)
        })
    }

    /// Waits until `find` makes something of the output.
    pub(super) fn until<T>(&mut self, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        loop {
            let ended = self.child.try_wait().context(self.name.clone())?;
            if let Some(found) = find(&self.output()) {
                return Ok(found);
            }
            if let Some(status) = ended {
                bail!("{} ended at once, {status}: {}", self.name, self.end());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a signal, such as `TERM`.
    ///
    /// # Errors
    /// Returns an error if there is no program `kill`, or the process has ended.
    pub fn signal(&self, name: &str) -> Result<()> {
        let sent = Command::new("kill").args(["-s", name, &self.id().to_string()]).status()?;
        if sent.success() { Ok(()) } else { bail!("{} has ended by itself", self.name) }
    }

    /// Waits until the process ends by itself.
    ///
    /// # Errors
    /// Returns an error if the system does not tell how it ended.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Kills the process and waits until it has ended.
    pub fn kill(&mut self) {
        let _ = self.child.kill(); // it may have ended by itself
        let _ = self.child.wait();
    }

    fn end(&self) -> String {
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the end of {}, process {}:\n{}", self.name, self.id(), self.end());
        }
        self.kill();
    }
}
