//! The places of connections: how many may be open, and who leaves when all are taken.

use std::fmt::Write as _;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::log::ServerLog;
use super::metrics::head;

/// How often an idle connection is asked to leave while a client waits. One that has got half a head leaves late.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The places of a server. A connection has one until it ends.
#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    most: usize,
    /// An idle connection that waits for this gives up its place.
    pub(super) wanted: Notify,
}

impl Places {
    pub(super) fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(most)), most, wanted: Notify::new() }
    }

    /// A place for a client that waits. If there is none, the log says so, and the connection that is idle for longest leaves.
    pub(super) async fn take(&self, log: &ServerLog) -> io::Result<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.free).try_acquire_owned() {
            return Ok(place);
        }
        let most = self.most;
        log.error(&format_args!(
            "all {most} connections of --max-connections are open: new ones wait until one is idle or closed"
        ));
        let place = loop {
            self.wanted.notify_one();
            if let Ok(place) =
                timeout(ASK_AGAIN_AFTER, Arc::clone(&self.free).acquire_owned()).await
            {
                break place;
            }
        };
        pin!(self.wanted.notified()).enable(); // takes the question back if no connection was idle
        place.map_err(io::Error::other)
    }

    pub(super) fn write(&self, text: &mut String) {
        let open = self.most.saturating_sub(self.free.available_permits());
        head(text, "connections", "Connections that are open", "gauge");
        let _ = writeln!(text, "tidegate_connections {open}");
        head(text, "connections_max", "The most connections that may be open", "gauge");
        let _ = writeln!(text, "tidegate_connections_max {}", self.most);
    }
}
