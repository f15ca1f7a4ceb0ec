//! What a server may be told: what it says about itself, and how much of it clients may use.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// What the server tells about itself.
#[derive(Clone)]
pub struct Watch {
    /// Whether answers say in `Server-Timing` how long the store took.
    pub server_timing: bool,
    /// The secret of the hashes that stand for keys in the log. Random by default, so that no one can look a key up.
    pub log_secret: String,
}

impl Default for Watch {
    fn default() -> Self {
        let random = RandomState::new(); // random keys of the standard library
        let log_secret = format!("{:x}{:x}", random.hash_one("first"), random.hash_one("second"));
        Self { server_timing: false, log_secret }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("server_timing", &self.server_timing).finish_non_exhaustive()
    }
}

/// How much of the server clients may use.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The longest time for a request's head, counted from when the connection opened or the last answer was
    /// written, and the longest time for its body, counted from the end of the head.
    pub read_timeout: Duration,
    /// The longest time for the head of the first request, counted from when the connection opened, so that
    /// silent connections give up their places. The shorter of the two times counts.
    pub first_head_timeout: Duration,
    /// The longest time that an answer may take from the first write that has to wait until the client has
    /// taken all of it.
    pub write_timeout: Duration,
    /// The largest number of open connections. If a further one comes, one without a request for 1 to 2 s is closed; if there is
    /// none, further ones wait in the queue of the operating system.
    pub max_connections: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            // Proxies keep idle connections for a minute. The proxy has to close first, because a
            // request on a connection that the server is closing gets no answer.
            read_timeout: Duration::from_secs(75),
            first_head_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(30),
            max_connections: 1_000,
        }
    }
}
