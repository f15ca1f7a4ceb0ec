//! What the server reads again while it runs: its policy file and its certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use super::log;
use super::server::Server;
use super::tls::Tls;
use crate::file;

/// How often the server looks at its files. It compares their contents, because a volume of Kubernetes replaces a link and not
/// the file, and because the time of a file says little.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the server reads again while it runs.
#[derive(Clone, Debug, Default)]
pub struct Reload {
    again: Arc<Notify>,
    tls: Option<Arc<Tls>>,
}

impl Reload {
    /// The server speaks TLS, with this certificate. Its files are read again when they change.
    #[must_use]
    pub fn with_tls(self, tls: Tls) -> Self {
        Self { tls: Some(Arc::new(tls)), ..self }
    }

    /// Reads all files again now, as at SIGHUP.
    pub fn again(&self) {
        self.again.notify_one();
    }

    /// Whether the server speaks TLS.
    #[must_use]
    pub const fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub(super) const fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }
}

/// Looks at the files until the server ends.
pub(super) async fn run(server: Arc<Server>, reload: Reload) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut look = Look::default();
    loop {
        let is_asked = tokio::select! {
            _ = ticks.tick() => false,
            () = reload.again.notified() => true,
        };
        look.at_policies(&server, is_asked).await;
        look.at_tls(reload.tls(), is_asked).await;
    }
}

/// What was seen at the last look, so that each fault is told once.
#[derive(Default)]
struct Look {
    /// Another text of the policy file, which the next look takes if it is still the same: a file may be half written.
    seen: Option<String>,
    refused: Option<String>,
    tls_fault: Option<String>,
}

impl Look {
    async fn at_policies(&mut self, server: &Server, is_asked: bool) {
        let Some(path) = server.swap.policy_file().await else {
            if is_asked {
                info!("SIGHUP: this server has no policy file to read again");
            }
            return;
        };
        let text = match read(path.clone()).await {
            Ok(text) => text,
            Err(error) => return self.refuse(server, &path, error, is_asked),
        };
        if server.swap.has_read(&text).await {
            (self.seen, self.refused) = (None, None);
            if is_asked {
                info!(file = %path.display(), "SIGHUP: the policy file is as it was");
            }
            return;
        }
        if !is_asked && self.seen.as_ref() != Some(&text) {
            self.seen = Some(text);
            return;
        }
        match server.swap.reread(text).await {
            Ok((tag, warning)) => {
                (self.seen, self.refused) = (None, None);
                log::in_force(&tag, "the policy file was read again");
                server.limited().keep(&server.swap.in_force().policies);
                if let Some(warning) = warning {
                    warn!("{warning}");
                }
            }
            Err(reason) => self.refuse(server, &path, reason, is_asked),
        }
    }

    fn refuse(&mut self, server: &Server, path: &Path, reason: String, is_asked: bool) {
        if self.refused.as_ref() == Some(&reason) && !is_asked {
            return;
        }
        warn!(
            file = %path.display(), reason,
            "the policy file is refused, so the policies in force stay as they are"
        );
        server.swap.in_force().metrics.count_ignored();
        self.refused = Some(reason);
    }

    async fn at_tls(&mut self, tls: Option<&Arc<Tls>>, is_asked: bool) {
        let Some(tls) = tls.map(Arc::clone) else { return };
        let read = spawn_blocking(move || tls.reread().map_err(|error| error.to_string())).await;
        match read.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(is_new) => {
                self.tls_fault = None;
                if is_new {
                    info!("the certificate was read again");
                }
            }
            Err(fault) => {
                if self.tls_fault.as_ref() != Some(&fault) || is_asked {
                    warn!("the certificate is refused, so the earlier one stays: {fault}");
                }
                self.tls_fault = Some(fault);
            }
        }
    }
}

async fn read(path: PathBuf) -> Result<String, String> {
    let read = spawn_blocking(move || file::read_regular(&path).and_then(file::text));
    read.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}
