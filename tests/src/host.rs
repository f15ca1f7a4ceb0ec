//! A process of `tidegate serve`.

use std::path::Path;
use std::process::Command;

use tidegate::local::Process;

use crate::{Api, command, until};

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

/// A host that serves on free ports. It is killed when it is dropped.
#[derive(Debug)]
pub struct HostProcess {
    process: Process,
    /// What the host wrote when it listened.
    pub line: String,
    pub api: Api,
}

impl HostProcess {
    /// Starts a host that serves the `policies.toml` of this folder.
    ///
    /// # Panics
    /// Panics with the log of the host if it does not listen.
    #[must_use]
    pub fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::of(command_in(folder).args(["serve", "--listen", "127.0.0.1:0"]).args(arguments))
    }

    /// Starts a host by this command.
    ///
    /// # Panics
    /// Panics with the log of the host if it does not listen.
    #[must_use]
    pub fn of(serve: &mut Command) -> Self {
        let mut process = Process::start("tidegate serve", serve).expect("the built command");
        let line = process.announced(|line| is_first(line).then(|| line.trim_end().to_owned()));
        let line = line.expect("a host that listens");
        let url = urls(&line).next().expect("an address").to_owned();
        Self { process, line, api: Api::new(&url, None) }
    }

    #[must_use]
    pub fn url(&self) -> &str {
        self.api.url()
    }

    /// All addresses of the host.
    #[must_use]
    pub fn apis(&self) -> Vec<Api> {
        urls(&self.line).map(|url| Api::new(url, None)).collect()
    }

    /// The number of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What the host has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.output().split_inclusive('\n').filter(|line| !is_first(line)).collect()
    }

    /// Waits until the log contains this.
    pub fn until_logged(&self, text: &str) {
        until(format_args!("the log contains {text:?}"), || self.log().contains(text));
    }

    /// Sends a signal, such as `TERM`.
    ///
    /// # Panics
    /// Panics if the host has ended.
    pub fn signal(&self, name: &str) {
        self.process.signal(name).expect("a host that runs");
    }

    /// Waits until the host ends after `TERM`, and returns its log.
    ///
    /// # Panics
    /// Panics if the host does not end well.
    #[must_use]
    pub fn ended(mut self) -> String {
        assert!(self.process.wait().expect("a child").success());
        self.log()
    }

    /// Ends the host as a service manager does, and returns its log.
    ///
    /// # Panics
    /// Panics if the host has ended by itself, or does not end well.
    pub fn terminate(self) -> String {
        self.signal("TERM");
        self.ended()
    }
}

fn is_first(line: &str) -> bool {
    line.starts_with("listening on ")
}

fn urls(line: &str) -> impl Iterator<Item = &str> {
    line.split([' ', ',']).filter(|word| word.starts_with("http"))
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
