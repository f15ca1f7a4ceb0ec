//! A process of `tidegate serve`.

use std::path::Path;
use std::process::{Command, ExitStatus};

use tidegate::local::Process;

use crate::command;

/// The built command in a folder. It gets no variable of the tests. A file that may not grow is an error for it and no signal.
pub fn command_in(folder: &Path) -> Command {
    let mut run = Command::new("sh");
    run.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(command());
    run.current_dir(folder).env_remove("SSL_CERT_DIR");
    let own = std::env::vars_os().map(|(name, _)| name);
    own.filter(|name| name.to_string_lossy().starts_with("TIDEGATE_")).for_each(|name| {
        run.env_remove(name);
    });
    run
}

/// A host that serves the `policies.toml` of its folder on a free port. It is killed when it is dropped.
#[derive(Debug)]
pub struct HostProcess {
    process: Process,
    url: String,
}

impl HostProcess {
    /// Starts a host, and waits until it listens.
    ///
    /// # Panics
    /// Panics with the log of the host if it does not listen.
    #[must_use]
    pub fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut serve = command_in(folder);
        serve.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments);
        let mut process = Process::start("tidegate serve", &mut serve).expect("the built command");
        let url = process.announced(|line| {
            line.split([' ', ',']).find(|word| word.starts_with("http")).map(str::to_owned)
        });
        Self { process, url: url.expect("a host that listens") }
    }

    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The number of the process.
    #[must_use]
    pub fn id(&self) -> String {
        self.process.id().to_string()
    }

    /// What the host has written so far: the line that it listens, and its log.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.output()
    }

    /// Ends the host as a service manager does.
    ///
    /// # Panics
    /// Panics if the host has ended by itself.
    #[must_use]
    pub fn terminate(mut self) -> ExitStatus {
        self.process.signal("TERM").expect("a host that runs");
        self.process.wait().expect("a child")
    }
}

#[test]
fn a_process_that_ends_too_early_shows_what_it_wrote() {
    let mut shell = Command::new("sh");
    let mut shell =
        Process::start("sh", shell.args(["-c", "echo one; echo two >&2; exit 3"])).unwrap();
    let error = shell.announced(|_| None::<()>).unwrap_err();
    assert_eq!(error.to_string(), "sh ended at once, exit status: 3: one\ntwo");
    assert_eq!(shell.output(), "one\ntwo\n");
}
