//! A process of `tidegate serve`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

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
    process: Child,
    url: String,
}

impl HostProcess {
    /// Starts a host, and waits until it listens. `None` if it does not: the log says why.
    ///
    /// # Panics
    /// Panics if the command is not built.
    #[must_use]
    pub fn start(folder: &Path, arguments: &[&str], log: impl Into<Stdio>) -> Option<Self> {
        let mut serve = command_in(folder);
        serve.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments);
        let process = serve.stdout(Stdio::piped()).stderr(log).spawn().expect("the built command");
        let mut host = Self { process, url: String::new() };
        let mut line = String::new();
        BufReader::new(host.process.stdout.take()?).read_line(&mut line).ok()?;
        host.url = line.split([' ', ',']).find(|word| word.starts_with("http"))?.to_owned();
        Some(host)
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

    /// Ends the host as a service manager does.
    ///
    /// # Panics
    /// Panics if there is no `kill`.
    #[must_use]
    pub fn terminate(mut self) -> ExitStatus {
        let ended = Command::new("kill").args(["-TERM", &self.id()]).status().expect("kill");
        assert!(ended.success(), "the host has ended by itself");
        self.process.wait().expect("a child")
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        let _ = self.process.kill(); // it may have ended
        let _ = self.process.wait();
    }
}
